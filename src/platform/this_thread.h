#pragma once

#include <cstdint>
#include <span>

namespace nibble {

// Asks the scheduler to give this thread its share of a busy processor in slices of this length
// (Linux 6.12 and later: sched_setattr's runtime of ordinary policies; the share itself stays). A
// thread that wakes with a short slice goes before one in the middle of a long slice, so threads
// that wait for each other many times a step do not wait a slice of other programs each time. Where
// the kernel or a sandbox does not allow it, nothing happens.
void RequestTimeSlice(uint64_t nanoseconds);

// The shortest that Linux gives, for threads that do little and are waited for; and that of threads
// that compute. A thread that wakes goes at once before one whose slice is longer, but behind one
// with the same until the next tick (4 ms): with 100 us for all, what carries answers to sockets
// waited 1.4 ms in the median for the threads of the next step, with 150 us it waits 0.3 ms.
inline constexpr uint64_t kShortSliceNs = 100'000;
inline constexpr uint64_t kComputeSliceNs = 150'000;

// As the kernel tells it, 0 where it does not.
uint64_t TimeSliceOfThisThread();

// The processor it runs on now.
int ProcessorOfThisThread();

// Moves this thread to an allowed processor that is not among the taken ones, if there is one;
// where it may run stays as it was.
void MoveOffProcessors(std::span<const int> taken);

}  // namespace nibble
