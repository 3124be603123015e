#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace nibble {

class ModelFile;

// One query of a head of a model's first layer against all keys before it, in f32: what tiled
// attention works on.
struct AttentionProbe {
  int head = 0;
  int tile = 0;               // keys that attention takes at a time
  std::vector<float> scores;  // [tokens] scaled products of the last token's query with each key
  int channel = 0;            // of the head's output: the one of largest magnitude
  std::vector<float> values;  // [tokens] what the keys' values hold in it
  float output = 0;           // what attention gave there
};

// tokens: at least one; the query is the last one's. Of all heads, the one whose attention is
// neither on one key alone nor on all alike: the middle one by entropy. Errors: those of the file;
// a window shorter than the tokens.
Result<AttentionProbe> ProbeAttention(const ModelFile& file, std::span<const TokenId> tokens);

}  // namespace nibble
