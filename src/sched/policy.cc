#include "sched/policy.h"

#include <algorithm>

namespace nibble {

ServiceOrder OrderOf(Policy policy, int priority, uint64_t arrival) {
  if (policy != Policy::kPriority) return {arrival, arrival};
  return {arrival + static_cast<uint64_t>(std::max(priority, 0)) * kOvertaking, arrival};
}

int BusLoad(int waiting, int seats, bool closed) {
  return waiting >= seats ? seats : (closed ? waiting : 0);
}

size_t ChooseNext(Policy policy, std::span<const WaitingView> waiting) {
  if (policy != Policy::kLongestPrefix || waiting[0].passes >= kMostPasses) return 0;
  const auto longest = std::ranges::max_element(
      waiting, [](const WaitingView& a, const WaitingView& b) { return a.cached < b.cached; });
  return static_cast<size_t>(longest - waiting.begin());  // the first of equal ones
}

}  // namespace nibble
