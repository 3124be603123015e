// deps: cost
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include "cost/step_check.h"

// Whatever stands in a log of steps: an error, or as many lines as steps are compared.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  StepCheck check(in);
  for (int i = 1; i <= 4; ++i) check.OnStep({.number = i, .rows = 1, .sequences = 1});
  const Status status = check.Finish();
  if (status && check.compared() + check.different() == 0) std::abort();
  if (check.different() > 0 && check.first_difference().empty()) std::abort();
  return 0;
}
