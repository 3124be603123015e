#pragma once

#include <nlohmann/json.hpp>

namespace nibble::cli {

using Json = nlohmann::ordered_json;

// Prints one line of JSON to standard output. Bytes that are no UTF-8 (file names, half characters)
// become U+FFFD, since JSON cannot hold them.
void PrintJsonLine(const Json& json);

// A string as JSON writes it, quotes included.
std::string QuoteJson(std::string_view text);

}  // namespace nibble::cli
