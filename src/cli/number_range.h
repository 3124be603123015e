#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace nibble::cli {

// A number from low to high. CLI::Range takes nan for one, because nan is neither below nor above.
inline CLI::Validator NumberFrom(double low, double high) {
  return {[low, high](const std::string& text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return "";
            return fmt::format("expected a number from {} to {}, found {}", low, high, text);
          },
          fmt::format("FLOAT in [{} - {}]", low, high), "number"};
}

}  // namespace nibble::cli
