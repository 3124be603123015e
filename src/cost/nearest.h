#pragma once

#include <span>
#include <string>
#include <string_view>

namespace nibble {

// "llama-3-8b, llama-3.1-8b and llama-2-7b": the names that are the fewest edits away.
std::string NearestNames(std::string_view name, std::span<const std::string_view> names);

}  // namespace nibble
