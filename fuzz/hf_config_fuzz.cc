// deps: model_config container
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "container/json.h"
#include "model/config/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document =
      nibble::JsonDocument::Parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!document) return 0;
  // What it prints must read as the same value.
  const std::string printed = document->root().ToString();
  const auto again = nibble::JsonDocument::Parse(printed);
  if (!again || again->root().ToString() != printed) std::abort();
  (void)nibble::ReadHfConfig(document->root());
  return 0;
}
