#pragma once

namespace nibble {

// Prints "file:line: CHECK failed: condition" to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace nibble

// Our own bug, never reachable from a file, a request or a flag: those return a Result.
#define NIBBLE_CHECK(condition)                              \
  do {                                                       \
    if (!(condition)) [[unlikely]]                           \
      ::nibble::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
