#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "eval/statistics.h"

namespace nibble {

// Share of ones and its standard error sqrt(p (1 - p) / (n - 1)), as lm-evaluation-harness's; NaN
// of one.
MeanError ShareOf(std::span<const uint8_t> right);

// Two models' answers to the same questions.
struct PairedAnswers {
  int64_t items = 0;
  int64_t gained = 0;    // right here, wrong in the base
  int64_t lost = 0;      // the reverse
  MeanError difference;  // of the shares, paired
  double p = 1;          // McNemar's exact test, two-sided: gains and losses equally likely
};

// Both of one length: 1 for a right answer, 0 for a wrong one.
PairedAnswers ComparePaired(std::span<const uint8_t> candidate, std::span<const uint8_t> base);

// In words, at 95%: "worse, p = 0.021: …", "better, …", "no difference seen, p = 0.4: …".
std::string Verdict(const PairedAnswers& answers);

}  // namespace nibble
