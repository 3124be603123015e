#pragma once

#include "base/result.h"
#include "engine/request.h"

namespace nibble {

// Bounds of a request, beside those of CheckSampling.
inline constexpr int kMostChoices = 128;
inline constexpr int64_t kMostPromptTokens = int64_t{1} << 22;  // of all choices together
inline constexpr int kMostLogprobs = 1000;
inline constexpr size_t kMostStops = 64;
inline constexpr size_t kMostStopBytes = 4096;

// Everything about a request but its prompt that can be wrong by itself: kBadInput names the field,
// what was expected and what was found.
Status CheckParameters(const Request& request, int vocabulary);

// The same, and its prompt.
Status CheckRequest(const Request& request, int vocabulary, int max_context);

}  // namespace nibble
