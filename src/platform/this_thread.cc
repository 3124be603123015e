#include "platform/this_thread.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nibble {
namespace {

// The kernel's struct sched_attr, which glibc does not declare.
struct SchedAttr {
  uint32_t size = sizeof(SchedAttr);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;
  uint64_t deadline = 0;
  uint64_t period = 0;
};
static_assert(sizeof(SchedAttr) == 48);

bool ReadAttr(SchedAttr& attr) {
  return syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) == 0;
}

bool HasSlices(const SchedAttr& attr) {
  return attr.policy == SCHED_NORMAL || attr.policy == SCHED_BATCH;
}

}  // namespace

void RequestTimeSlice(uint64_t nanoseconds) {
  SchedAttr attr;
  if (!ReadAttr(attr) || !HasSlices(attr)) return;
  attr.runtime = nanoseconds;
  syscall(SYS_sched_setattr, 0, &attr, 0);
}

uint64_t TimeSliceOfThisThread() {
  SchedAttr attr;
  return ReadAttr(attr) && HasSlices(attr) ? attr.runtime : 0;
}

int ProcessorOfThisThread() { return sched_getcpu(); }

void MoveOffProcessors(std::span<const int> taken) {
  cpu_set_t allowed;
  // A machine with more processors than the set holds is an error here: the thread stays.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (const int processor : taken) CPU_CLR(static_cast<size_t>(processor), &free);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof(free), &free) != 0) return;
  sched_setaffinity(0, sizeof(allowed), &allowed);
}

}  // namespace nibble
