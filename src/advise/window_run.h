#pragma once

#include <functional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "model/decoder.h"

namespace nibble {

// A text's window through a decoder, as an engine computes it, with a cache of its own in the given
// formats.
struct WindowRun {
  std::span<const TokenId> ids;
  int score_from = 0;  // logits of [score_from, size - 1) go to the sink
  KvFormats kv = {};
  std::function<bool()> keep_going = {};  // asked between chunks; false: stop
};

// The sink's rows count from score_from. Errors: formats that the model cannot have, no memory for
// the pages, kCancelled.
Status RunWindow(Decoder& decoder, const WindowRun& run, LogitsSink& sink);

}  // namespace nibble
