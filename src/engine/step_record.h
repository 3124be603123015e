#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace nibble {

// One step of the engine as it was.
struct StepRecord {
  // Consecutive tokens of one sequence.
  struct Span {
    RequestId request;  // the caller's
    int choice = 0;
    int first = 0;  // position of the first row
    int rows = 0;
    int drafted = 0;      // the last of these: guessed tokens
    bool answer = false;  // the row of an answer's last token, and guesses; else part of a prompt
  };

  int64_t number = 0;       // from 1
  double begin_s = 0;       // of the engine's clock
  double seconds = 0;       // until its tokens were drawn and told
  int rows = 0;             // of all spans
  int sampled = 0;          // tokens that it gave
  int drafted = 0;          // rows of guessed tokens; of these
  int accepted = 0;         // guessed rightly
  int admitted = 0;         // sequences that got pages
  int preempted = 0;        // sequences that lost theirs
  int cancelled = 0;        // sequences that were cancelled since the step before
  int running = 0;          // sequences that hold pages, behind it
  int waiting = 0;          // sequences in the queue, behind it
  double weight_bytes = 0;  // read from memory
  double kv_bytes = 0;
  double price_s = 0;  // what the scheduler expected it to take; 0: it knows no prices
  bool failed = false;
  std::vector<Span> spans = {};
};

// Told of every step, on the engine's thread behind its end: it must return at once.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void OnStep(const StepRecord& step) = 0;
};

}  // namespace nibble
