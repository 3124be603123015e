#pragma once

#include <cstdint>

namespace nibble {

// Bits that nobody can foretell, from the system: for seeds that were not given.
uint64_t RandomBits();

}  // namespace nibble
