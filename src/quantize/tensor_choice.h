#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/format.h"
#include "model/config/format_mix.h"
#include "quantize/tensor_view.h"
#include "tokenizer/regex.h"

namespace nibble {

class Imatrix;
class ModelFile;

// --tensor-type REGEX=TYPE: every matrix whose name the expression matches anywhere gets the type.
class TypeRule {
 public:
  // Errors: no '=', a wrong expression, an unknown type; each with the text.
  static Result<TypeRule> Parse(const std::string& text);

  Result<bool> Matches(std::string_view name) const;
  Format format() const { return format_; }
  const std::string& text() const { return text_; }

 private:
  TypeRule(std::string text, std::shared_ptr<const Regex> pattern, Format format)
      : text_(std::move(text)), pattern_(std::move(pattern)), format_(format) {}

  std::string text_;
  std::shared_ptr<const Regex> pattern_;
  Format format_;
};

struct ChoiceOptions {
  FormatMix mix;
  std::vector<TypeRule> rules = {};  // the first that matches counts, before the mix
  bool requantize = false;           // sources below 8 bits a weight too
};

// What becomes of one tensor of the file to be written.
struct TensorChoice {
  TensorView view;
  Format from = Format::kF32;
  Format to = Format::kF32;
  bool matrix = false;    // one that the model multiplies by, or an embedding
  bool copied = false;    // byte for byte
  bool ruled = false;     // by --tensor-type
  std::string note = {};  // why it is not what the mix wanted

  const std::string& name() const { return view.name; }
};

// In the order of GgufTensors. Matrices that a model multiplies by, and embeddings, get the mix's
// format; learned positions and what belongs to no layer stay as they are, and so do norms and
// biases of GGUF files, which are f32 where the source is a Hugging Face model. Errors: a source of
// less than 8 bits without `requantize` (named), a rule that no tensor matches.
Result<std::vector<TensorChoice>> ChooseFormats(const ModelFile& file,
                                                const ChoiceOptions& options);

// Checks an importance matrix against what is to be quantised. The names of the matrices that it
// says nothing about and that it could change. Errors: a width that is not the matrix's, no name in
// common (one of each).
Result<std::vector<std::string>> CheckImportance(const Imatrix& imatrix,
                                                 const std::vector<TensorChoice>& choices);

}  // namespace nibble
