#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

class ModelFile;
class Tokenizer;

// A config.json by which transformers (4.x and 5.x) and ReadHfConfig build the model of a GGUF
// file. dtype: "float16". Ids of BOS, EOS and padding are the tokenizer's. The caller reads the
// result back and compares (same_config.h): where GGUF says what no key of the model_type can, that
// shows there. Errors: rotation factors of no known rule, biases that the model_type has none of.
Result<std::string> HfConfigJson(const ModelFile& model, const Tokenizer& tokenizer,
                                 std::string_view dtype);

// generation_config.json: what ends an answer.
std::string HfGenerationConfigJson(const Tokenizer& tokenizer);

}  // namespace nibble
