// deps: container
#include <cstddef>
#include <cstdint>
#include <span>

#include "container/safetensors.h"
#include "tests/support/touch_containers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = nibble::SafetensorsModel::Parse(std::as_bytes(std::span(data, size)));
  if (model) nibble::testing::TouchSafetensors(*model);
  return 0;
}
