#pragma once

#include <string>
#include <string_view>

namespace nibble {

// Appends text (UTF-8) as a JSON string, with its quotes.
void AppendJsonString(std::string_view text, std::string& out);

}  // namespace nibble
