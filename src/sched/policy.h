#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nibble {

// Whom the scheduler serves next. All of it is pure: no state, no clock.
enum class Policy : uint8_t {
  kFirstCome,      // by arrival
  kPriority,       // lower priority values first, but see kOvertaking
  kLongestPrefix,  // of the first kLookAhead by arrival, who has most in the prefix cache
};

// No request waits for ever because others matter more: a level of priority lets a request overtake
// those that came at most so many arrivals before it.
inline constexpr uint64_t kOvertaking = 1024;
// Waiting requests that kLongestPrefix compares, and how often the first of them is passed over
// before it is served all the same.
inline constexpr size_t kLookAhead = 32;
inline constexpr int kMostPasses = 16;

// When waiting sequences may begin.
enum class Batching : uint8_t {
  kContinuous,  // with the next step that has room
  kStatic,      // as a bus: it waits until it is full, then takes nobody until all have got off
};
// Passengers that a bus at its stop leaves with; 0: it waits on. closed: nobody else will come, it
// need not be full.
int BusLoad(int waiting, int seats, bool closed);

// Order of service; what comes later is preempted first.
struct ServiceOrder {
  uint64_t place = 0;
  uint64_t arrival = 0;  // unique
  auto operator<=>(const ServiceOrder&) const = default;
};
ServiceOrder OrderOf(Policy policy, int priority, uint64_t arrival);

// A waiting request as kLongestPrefix sees it.
struct WaitingView {
  int cached = 0;  // positions in the prefix cache
  int passes = 0;  // times it was first in order and another one was served
};
// Index of the next to be served among the first waiting ones in order (at least one).
size_t ChooseNext(Policy policy, std::span<const WaitingView> waiting);

}  // namespace nibble
