#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace nibble::server {

using Json = nlohmann::ordered_json;

// One line of text. Bytes that are no UTF-8 become U+FFFD, since JSON cannot hold them.
std::string DumpJson(const Json& json);

// A string as JSON writes it, quotes included; the rest of one of more than 200 bytes is left out.
std::string QuoteJson(std::string_view text);

}  // namespace nibble::server
