#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace nibble {
class Tokenizer;
}

namespace nibble::cli {

// --logit-bias: "15043+1", "15043-0.5", "15043-inf" (llama.cpp's form: a token id and what is
// added) or "TEXT=-2": each of the text's tokens. Errors name the flag's value.
Result<std::vector<LogitBias>> ReadLogitBias(std::span<const std::string> values,
                                             const Tokenizer& tokenizer);

}  // namespace nibble::cli
