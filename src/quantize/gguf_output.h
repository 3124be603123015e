#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/output_file.h"
#include "quantize/encode_tensor.h"
#include "quantize/tensor_choice.h"
#include "quantize/tensor_store.h"

namespace nibble {

class GgufWriter;
class Imatrix;
class ModelFile;
class ThreadPool;

struct TensorReport {
  std::string name;
  Format from = Format::kF32;
  Format to = Format::kF32;
  std::string note;
  EncodeLoss loss;        // zeros for what was copied
  std::string type = {};  // a layout in place of `to`
};

// A complete GGUF file under its temporary name, with room for a card.
class QuantizedGguf {
 public:
  QuantizedGguf(OutputFile file, uint64_t card_at, std::vector<TensorReport> tensors)
      : file_(std::move(file)), card_at_(card_at), tensors_(std::move(tensors)) {}

  const std::string& path() const { return file_.temporary_path(); }
  uint64_t bytes() const { return file_.position(); }
  const std::vector<TensorReport>& tensors() const { return tensors_; }

  // Puts the card into its place and gives the file its name. Error: a card that is too long.
  Status Commit(std::string_view card);

 private:
  OutputFile file_;
  uint64_t card_at_;
  std::vector<TensorReport> tensors_;
};

// Metadata key of the card: JSON, padded with spaces.
inline constexpr std::string_view kCardKey = "nibble.card";
// The card's name in a folder.
inline constexpr std::string_view kFolderCard = "nibble_card.json";
inline constexpr size_t kCardBytes = size_t{8} << 10;

struct EncodeRunOptions {
  const Imatrix* importance = nullptr;  // checked against the choices
  // Called with how much is done and the tensor at hand.
  std::function<void(double fraction, std::string_view tensor)> progress = {};
};

// Encodes every tensor that is neither copied nor in the store already, one at a time, into the
// store. Errors: a weight that is NaN or infinite, the file system.
Status EncodeTensors(const ModelFile& model, const std::vector<TensorChoice>& choices,
                     const EncodeRunOptions& options, ThreadPool& pool, TensorStore& store);

// What the store keeps beside a tensor's bytes.
std::string LossNote(const EncodeLoss& loss, std::string_view note);
// The other way round.
void ReadLossNote(const std::string& text, TensorReport& report);

// What the file that AssembleGguf writes has beside the tensors' bytes, at most.
Result<uint64_t> GgufBytesBesideTensors(const ModelFile& model,
                                        const std::vector<TensorChoice>& choices,
                                        std::string_view mix_name,
                                        const std::function<Status(GgufWriter&)>& tokenizer);

// Writes the file of the tensors in the store and of those that are copied, and reads it back: what
// is on disk must be what was written, and decode to it. mix_name: names general.file_type.
// tokenizer: writes the tokenizer of a Hugging Face model. Errors: a model that GGUF's keys cannot
// describe (the first difference), the file system (nothing is left, an old file of that name
// stays).
Result<QuantizedGguf> AssembleGguf(const ModelFile& model, const std::vector<TensorChoice>& choices,
                                   const std::filesystem::path& path, std::string_view mix_name,
                                   const std::function<Status(GgufWriter&)>& tokenizer,
                                   const TensorStore& store);

}  // namespace nibble
