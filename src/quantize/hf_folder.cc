#include "quantize/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/utf8.h"
#include "container/hf_scheme.h"
#include "container/safetensors.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/encode_tensor.h"
#include "quantize/hf_config_json.h"
#include "quantize/hf_tokenizer.h"
#include "quantize/same_config.h"
#include "quantize/tensor_view.h"
#include "quantize/tokenizer_samples.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 12> kBeside = {"generation_config.json",
                                                      "tokenizer.json",
                                                      "tokenizer_config.json",
                                                      "tokenizer.model",
                                                      "special_tokens_map.json",
                                                      "added_tokens.json",
                                                      "vocab.json",
                                                      "merges.txt",
                                                      "chat_template.jinja",
                                                      "chat_template.json",
                                                      "preprocessor_config.json",
                                                      "LICENSE"};

bool IsPlainFloat(const SourceTensor& tensor) {
  if (tensor.linear != nullptr || !tensor.format) return false;
  return *tensor.format == Format::kF32 || *tensor.format == Format::kF16 ||
         *tensor.format == Format::kBF16;
}

Format FormatOf(const TensorView& view, const HfFloatFolder& options) {
  const bool plain = IsPlainFloat(*view.tensor);
  if (view.tensor->rank == 1) return plain ? *view.tensor->format : Format::kF32;
  if (options.matrices) return *options.matrices;
  return plain ? *view.tensor->format : Format::kF16;
}

std::string_view DtypeOf(Format format) {
  if (format == Format::kF32) return "F32";
  return format == Format::kF16 ? "F16" : "BF16";
}

// Of the largest matrix, which is what a loader asks for.
std::string_view TorchDtype(const std::vector<TensorView>& views, const HfFloatFolder& options) {
  const auto largest = std::ranges::max_element(
      views, {}, [](const TensorView& view) { return view.tensor->elements(); });
  const Format format = FormatOf(*largest, options);
  if (format == Format::kF32) return "float32";
  return format == Format::kF16 ? "float16" : "bfloat16";
}

// Gives the pages of a mapped tensor up to a share of it back to the system, as far as they are
// done with. The largest tensor of a model may be larger than what a run may keep.
class PageDrop {
 public:
  PageDrop(const ModelFile& model, const SourceTensor& tensor) {
    if (tensor.linear != nullptr || model.files().empty()) return;
    file_ = &model.files()[static_cast<size_t>(tensor.file)];
    bytes_ = tensor.bytes;
  }
  void UpTo(double share) {
    if (file_ == nullptr) return;
    const auto at =
        std::min(bytes_.size(), static_cast<size_t>(share * static_cast<double>(bytes_.size())));
    if (at <= dropped_) return;
    file_->Drop(static_cast<size_t>(bytes_.data() - file_->bytes().data()) + dropped_,
                at - dropped_);
    dropped_ = at;
  }

 private:
  const MappedFile* file_ = nullptr;
  std::span<const std::byte> bytes_;
  size_t dropped_ = 0;
};

// The bytes of a tensor of the folder, piece by piece.
Status ForBytes(const ModelFile& model, const TensorView& view, Format format, ThreadPool& pool,
                const AppendBytes& take) {
  PageDrop pages(model, *view.tensor);
  uint64_t done = 0;
  NIBBLE_TRY(const EncodeLoss loss,
             EncodeTensor(view, {.format = format}, pool, take, [&](uint64_t weights) {
               done += weights;
               if (view.transposed) return;  // of which every row reads all
               pages.UpTo(static_cast<double>(done) / static_cast<double>(view.elements()));
             }));
  pages.UpTo(1);
  constexpr float kLargestHalf = 65504;
  if (format != Format::kF16 || loss.largest <= kLargestHalf) return {};
  return BadInput("'{}': a weight of magnitude {} is beyond f16 ({}); use f32 or bf16", view.name,
                  loss.largest, kLargestHalf);
}

Status WriteWeights(const ModelFile& model, const std::vector<TensorView>& views,
                    const HfFloatFolder& options, ThreadPool& pool, HfFolderWriter& writer) {
  double total = 0;
  for (const TensorView& view : views) {
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(
        {.name = view.name, .dtype = DtypeOf(FormatOf(view, options)), .shape = view.Shape()}));
    total += static_cast<double>(view.elements());
  }
  NIBBLE_RETURN_IF_ERROR(writer.Begin());
  double done = 0;
  for (const TensorView& view : views) {
    NIBBLE_RETURN_IF_ERROR(
        ForBytes(model, view, FormatOf(view, options), pool,
                 [&](std::span<const std::byte> bytes) { return writer.Append(bytes); }));
    done += static_cast<double>(view.elements());
    if (options.progress) options.progress(done / total, view.name);
  }
  return {};
}

Result<std::string> ReadConfig(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) return IoError("{}: cannot read", path.string());
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

Status WriteTexts(const ModelFile& model, const Tokenizer& tokenizer, std::string_view dtype,
                  HfFolderWriter& writer) {
  if (model.is_gguf()) {
    NIBBLE_TRY(const std::string config, HfConfigJson(model, tokenizer, dtype));
    NIBBLE_RETURN_IF_ERROR(writer.WriteText("config.json", config));
    NIBBLE_RETURN_IF_ERROR(
        writer.WriteText("generation_config.json", HfGenerationConfigJson(tokenizer)));
    if (tokenizer.vocab_size() == 0 || tokenizer.Piece(TokenId{0}).empty()) return {};
    NIBBLE_TRY(const HfTokenizerFiles files, HfTokenizerFromGguf(*model.gguf(), tokenizer));
    NIBBLE_RETURN_IF_ERROR(writer.WriteText("tokenizer.json", files.tokenizer_json));
    return writer.WriteText("tokenizer_config.json", files.tokenizer_config_json);
  }
  std::error_code ignored;
  const fs::path from =
      fs::is_directory(model.path(), ignored) ? model.path() : model.path().parent_path();
  NIBBLE_TRY(const std::string config, ReadConfig(from));
  NIBBLE_TRY(const std::string plain, HfConfigInFloats(config, dtype));
  NIBBLE_RETURN_IF_ERROR(writer.WriteText("config.json", plain));
  for (const std::string_view name : kBeside) {
    if (!fs::exists(from / name, ignored)) continue;
    NIBBLE_RETURN_IF_ERROR(writer.CopyFile(from / name));
  }
  return {};
}

Status CheckTokenizer(const Tokenizer& tokenizer, const HfFloatFolder& options,
                      const fs::path& folder) {
  if (FindTokenizerFile(folder).empty()) return {};
  auto read = LoadTokenizer(folder);
  if (!read) return Within("tokenizer.json as written", read.error());
  const auto samples = TokenizerSamples(tokenizer, options.sample, true);
  const TokenizerSample* other = FindDifference(*read, tokenizer, samples);
  if (other == nullptr) return {};
  constexpr size_t kShown = 40;
  const std::string_view text = other->text;
  return BadInput(
      "tokenizer.json as written cuts a text otherwise than this file's tokenizer ({}): '{}'",
      tokenizer.description(), ReplaceInvalidUtf8(text.substr(0, kShown)));
}

// Opens the folder as a model and compares all of it.
Status ReadFolderBack(const ModelFile& model, const std::vector<TensorView>& views,
                      const HfFloatFolder& options, ThreadPool& pool, const fs::path& folder) {
  NIBBLE_TRY(const ModelFile read, ModelFile::Open(folder));
  if (const Status same = CheckSameConfig(model.config(), read.config()); !same) {
    return BadInput("no config.json describes this model: {}", same.error().message);
  }
  for (const TensorView& view : views) {
    const SourceTensor* found = read.source().Find(view.name);
    std::span<const std::byte> left =
        found != nullptr ? found->bytes : std::span<const std::byte>{};
    bool equal = found != nullptr;
    std::optional<PageDrop> pages;
    if (equal) pages.emplace(read, *found);
    NIBBLE_RETURN_IF_ERROR(ForBytes(model, view, FormatOf(view, options), pool,
                                    [&](std::span<const std::byte> piece) -> Status {
                                      equal = equal && left.size() >= piece.size() &&
                                              std::ranges::equal(piece, left.first(piece.size()));
                                      left = left.subspan(std::min(piece.size(), left.size()));
                                      if (pages) {
                                        pages->UpTo(1 -
                                                    static_cast<double>(left.size()) /
                                                        static_cast<double>(found->bytes.size()));
                                      }
                                      return {};
                                    }));
    if (!equal || !left.empty()) {
      return IoError("{}: read back, {} is not what was written", folder.string(), view.name);
    }
  }
  return {};
}

}  // namespace

std::span<const std::string_view> HfFilesBeside() { return kBeside; }

Result<HfFolderWriter> WriteHfFloatFolder(const ModelFile& model, const Tokenizer& tokenizer,
                                          const fs::path& folder, const HfFloatFolder& options,
                                          ThreadPool& pool) {
  NIBBLE_TRY(const std::vector<TensorView> views, HfTensors(model));
  NIBBLE_TRY(HfFolderWriter writer, HfFolderWriter::Create(folder, {.replace = options.replace}));
  // What may be refused comes first.
  NIBBLE_RETURN_IF_ERROR(WriteTexts(model, tokenizer, TorchDtype(views, options), writer));
  NIBBLE_RETURN_IF_ERROR(CheckTokenizer(tokenizer, options, writer.temporary_path()));
  NIBBLE_RETURN_IF_ERROR(WriteWeights(model, views, options, pool, writer));
  NIBBLE_RETURN_IF_ERROR(writer.Finish());
  NIBBLE_RETURN_IF_ERROR(ReadFolderBack(model, views, options, pool, writer.temporary_path()));
  return writer;
}

}  // namespace nibble
