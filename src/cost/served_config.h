#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cost/simulator.h"

namespace nibble {

// What the first line of `serve --trace-log` says of the server.
struct ServedConfig {
  std::string model;
  SimulatorOptions options;  // limits, pools, pages, price and context
};

// Errors name the key, what was expected and what was found.
Result<ServedConfig> ReadServedConfig(std::string_view head);

}  // namespace nibble
