#pragma once

#include <string_view>

namespace nibble {

// About 120 kB for measurements when the user gives no text of their own: verse (Tiny Shakespeare,
// public domain), technical prose and C++ (nibble's own), a snapshot that does not change with
// them.
extern const std::string_view kBuiltinText;

}  // namespace nibble
