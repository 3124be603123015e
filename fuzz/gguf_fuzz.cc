// deps: container
#include <cstddef>
#include <cstdint>
#include <span>

#include "container/gguf.h"
#include "tests/support/touch_containers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = nibble::GgufFile::Parse(std::as_bytes(std::span(data, size)));
  if (file) nibble::testing::TouchGguf(*file);
  return 0;
}
