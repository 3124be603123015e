#pragma once

#include <cstddef>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "kv/page_book.h"
#include "model/batch.h"

namespace nibble {

// One sequence's share of a step: `rows` consecutive tokens from position `first` on, whose pages
// are reserved in its tables.
struct ExecuteSpan {
  int first = 0;
  int rows = 0;
  const SequencePages* pages = nullptr;
};

struct ExecuteInput {
  std::span<const TokenId> tokens;        // [rows]
  std::span<const ExecuteSpan> spans;     // cover all rows in order
  std::span<const int> logit_rows;        // ascending
  std::span<const PageCopy> copies = {};  // to be done first
};

// Computes steps. The engine has one, on its own thread.
class Executor {
 public:
  virtual ~Executor() = default;

  virtual int vocabulary() const = 0;

  // Computes the rows, keeps their keys and values in the pages and hands the wanted logits to the
  // sink, all before it returns. Error: the step as a whole failed.
  virtual Status Execute(const ExecuteInput& input, LogitsSink& sink) = 0;

  // What a step reads, for Usage: all weights, and the keys and values of one query.
  virtual size_t WeightBytesPerStep() const = 0;
  virtual double KvBytesRead(int position) const = 0;
};

}  // namespace nibble
