// deps: quantize
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "quantize/imatrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto imatrix = nibble::Imatrix::Parse(std::as_bytes(std::span(data, size)));
  if (!imatrix) return 0;
  for (const auto& entry : imatrix->entries()) {
    const auto importance = imatrix->ImportanceOf(entry.name, entry.sums.size());
    if (!importance) std::abort();
    for (const float value : *importance) {
      if (!(value >= 0)) std::abort();
    }
  }
  return 0;
}
