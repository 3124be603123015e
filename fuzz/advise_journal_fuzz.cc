// deps: advise
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "advise/advise_journal.h"

// Whatever stands in a journal of measurements: an error, or whole lines of it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  const auto lines = AdviseJournal::Parse({reinterpret_cast<const char*>(data), size}, "key");
  if (!lines) return 0;
  if (lines->complete == 0 || lines->complete > size) std::abort();
  for (const JournalQuality& quality : lines->qualities) {
    if (quality.sums.tokens < 1 || quality.sums.same_top > quality.sums.tokens) std::abort();
  }
  return 0;
}
