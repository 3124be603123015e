#pragma once

#include <chrono>

namespace nibble {

// Seconds since some fixed moment; never goes back.
inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace nibble
