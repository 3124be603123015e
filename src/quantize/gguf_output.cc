#include "quantize/gguf_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/gguf_config.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/imatrix.h"
#include "quantize/same_config.h"

namespace nibble {
namespace {

// llama.cpp's numbers for whole files (enum llama_ftype).
constexpr std::pair<std::string_view, uint32_t> kFileTypes[] = {
    {"f32", 0},     {"f16", 1},     {"q4_0", 2},    {"q4_1", 3},    {"q8_0", 7},    {"q5_0", 8},
    {"q5_1", 9},    {"q2_k", 10},   {"q2_k_s", 21}, {"q3_k_s", 11}, {"q3_k_m", 12}, {"q3_k", 12},
    {"q3_k_l", 13}, {"q4_k_s", 14}, {"q4_k_m", 15}, {"q4_k", 15},   {"q5_k_s", 16}, {"q5_k_m", 17},
    {"q5_k", 17},   {"q6_k", 18},   {"iq4_nl", 25}, {"iq4_xs", 30}, {"bf16", 32},   {"mxfp4", 38},
};

std::optional<uint32_t> FileType(std::string_view mix) {
  for (const auto& [name, type] : kFileTypes) {
    if (name == mix) return type;
  }
  return std::nullopt;
}

constexpr size_t kPieceBytes = size_t{4} << 20;

Status CopyMetadata(const GgufFile& source, GgufWriter& writer) {
  for (const GgufEntry& entry : source.metadata()) {
    const bool replaced = entry.key == "general.file_type" || entry.key == kCardKey ||
                          entry.key == "general.quantization_version" ||
                          entry.key == "general.alignment" || entry.key.starts_with("split.");
    if (replaced) continue;
    NIBBLE_RETURN_IF_ERROR(writer.Copy(entry));
  }
  return {};
}

// The name of a Hugging Face model: its folder's.
std::string NameOf(const ModelFile& model) {
  if (!model.config().name.empty()) return model.config().name;
  std::error_code ignored;
  const auto path = std::filesystem::absolute(model.path(), ignored).lexically_normal();
  const auto folder = std::filesystem::is_directory(path, ignored) ? path : path.parent_path();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

Status SetMetadata(const ModelFile& model, std::string_view mix,
                   const std::function<Status(GgufWriter&)>& tokenizer, GgufWriter& writer) {
  if (model.is_gguf()) {
    NIBBLE_RETURN_IF_ERROR(CopyMetadata(*model.gguf(), writer));
  } else {
    WriteGgufConfig(model.config(), writer);
    writer.SetString("general.name", NameOf(model));
    NIBBLE_RETURN_IF_ERROR(tokenizer(writer));
  }
  if (const auto type = FileType(mix)) writer.SetUint32("general.file_type", *type);
  writer.SetUint32("general.quantization_version", 2);
  writer.SetString(kCardKey, std::string(kCardBytes, ' '));
  return {};
}

// Hands the bytes of a tensor of the new file on, piece by piece.
Status ForPieces(const TensorChoice& choice, const TensorStore& store,
                 const std::function<Status(std::span<const std::byte>)>& take) {
  // What is in the store goes before the source: a norm that took scales in.
  if (store.Find(choice.name()) == nullptr) {
    std::span<const std::byte> bytes = choice.view.tensor->bytes;
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      NIBBLE_RETURN_IF_ERROR(take(piece));
      bytes = bytes.subspan(piece.size());
    }
    return {};
  }
  const TensorStore::Record& record = *store.Find(choice.name());
  std::vector<std::byte> buffer(std::min<uint64_t>(record.bytes, kPieceBytes));
  for (uint64_t done = 0; done < record.bytes;) {
    const auto piece =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), record.bytes - done));
    NIBBLE_RETURN_IF_ERROR(store.Read(record, done, piece));
    NIBBLE_RETURN_IF_ERROR(take(piece));
    done += piece.size();
  }
  return {};
}

// Gives the pages of a source tensor that has been read back to the system.
void DropPages(const ModelFile& model, const TensorView& view) {
  if (view.tensor == nullptr || view.tensor->linear != nullptr) return;
  const MappedFile& file = model.files()[static_cast<size_t>(view.tensor->file)];
  const std::span<const std::byte> bytes = view.tensor->bytes;
  file.Drop(static_cast<size_t>(bytes.data() - file.bytes().data()), bytes.size());
}

// Compares the file with what was to be written; where the card's bytes lie.
Result<uint64_t> ReadBack(const ModelFile& model, const std::vector<TensorChoice>& choices,
                          const TensorStore& store, const OutputFile& file) {
  const auto damaged = [&](std::string_view what) {
    return IoError("{}: read back, {} is not what was written", file.temporary_path(), what);
  };
  auto opened = ModelFile::Open(file.temporary_path());
  if (!opened) return std::unexpected(opened.error());
  const GgufFile& read = *opened->gguf();
  for (const TensorChoice& choice : choices) {
    const SourceTensor* tensor = read.tensors().Find(choice.name());
    if (tensor == nullptr || tensor->format != choice.to) return damaged(choice.name());
    std::span<const std::byte> bytes = tensor->bytes;
    bool equal = true;
    NIBBLE_RETURN_IF_ERROR(ForPieces(choice, store, [&](std::span<const std::byte> piece) {
      equal = equal && bytes.size() >= piece.size() &&
              std::memcmp(bytes.data(), piece.data(), piece.size()) == 0;
      bytes = bytes.subspan(std::min(piece.size(), bytes.size()));
      return Status{};
    }));
    if (!equal || !bytes.empty()) return damaged(choice.name());
    const MappedFile& mapped = read.files()[0];
    mapped.Drop(static_cast<size_t>(tensor->bytes.data() - mapped.bytes().data()),
                tensor->bytes.size());
    if (choice.copied) DropPages(model, choice.view);
  }
  if (const Status same = CheckSameConfig(model.config(), opened->config()); !same) {
    return BadInput("GGUF's metadata cannot describe this model: {}", same.error().message);
  }
  const GgufEntry* card = read.Find(kCardKey);
  if (card == nullptr || card->bytes.size() < kCardBytes) return damaged("the card");
  const std::byte* text = card->bytes.data() + card->bytes.size() - kCardBytes;
  return static_cast<uint64_t>(text - read.files()[0].bytes().data());
}

}  // namespace

std::string LossNote(const EncodeLoss& loss, std::string_view note) {
  return fmt::format("{:a} {:a} {:a} {}|{}", loss.squared_error, loss.squares, loss.largest,
                     loss.weights, note);
}

void ReadLossNote(const std::string& text, TensorReport& report) {
  unsigned long long weights = 0;  // NOLINT(google-runtime-int): scanf's type
  int read = 0;
  std::sscanf(text.c_str(), "%la %la %a %llu|%n", &report.loss.squared_error, &report.loss.squares,
              &report.loss.largest, &weights, &read);
  report.loss.weights = weights;
  const std::string_view note = std::string_view(text).substr(static_cast<size_t>(read));
  if (note.empty()) return;
  report.note += (report.note.empty() ? "" : "; ") + std::string(note);
}

Status EncodeTensors(const ModelFile& model, const std::vector<TensorChoice>& choices,
                     const EncodeRunOptions& options, ThreadPool& pool, TensorStore& store) {
  double total = 0;
  double done = 0;
  for (const TensorChoice& choice : choices) {
    const bool finished = choice.copied || store.Find(choice.name()) != nullptr;
    if (!finished) total += static_cast<double>(choice.view.elements());
  }
  for (const TensorChoice& choice : choices) {
    if (choice.copied || store.Find(choice.name()) != nullptr) continue;
    std::vector<float> importance;
    if (options.importance != nullptr && choice.matrix) {
      NIBBLE_TRY(importance, options.importance->ImportanceOf(choice.name(), choice.view.cols()));
    }
    const FormatTraits& traits = TraitsOf(choice.to);
    const auto rows = choice.view.rows();
    NIBBLE_RETURN_IF_ERROR(store.Begin(choice.name(), rows * traits.RowBytes(choice.view.cols())));
    NIBBLE_TRY(const EncodeLoss loss,
               EncodeTensor(
                   choice.view, {.format = choice.to, .importance = importance}, pool,
                   [&](std::span<const std::byte> bytes) { return store.Append(bytes); },
                   [&](uint64_t more) {
                     done += static_cast<double>(more);
                     if (options.progress) options.progress(done / total, choice.name());
                   }));
    NIBBLE_RETURN_IF_ERROR(store.End(LossNote(loss, "")));
    DropPages(model, choice.view);
  }
  return {};
}

Result<uint64_t> GgufBytesBesideTensors(const ModelFile& model,
                                        const std::vector<TensorChoice>& choices,
                                        std::string_view mix_name,
                                        const std::function<Status(GgufWriter&)>& tokenizer) {
  GgufWriter writer;
  NIBBLE_RETURN_IF_ERROR(SetMetadata(model, mix_name, tokenizer, writer));
  for (const TensorChoice& choice : choices) {
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(choice.name(), choice.to, choice.view.Shape()));
  }
  constexpr uint64_t kPadding = 31;  // behind a tensor
  return writer.HeaderBytes() + kPadding * choices.size();
}

Result<QuantizedGguf> AssembleGguf(const ModelFile& model, const std::vector<TensorChoice>& choices,
                                   const std::filesystem::path& path, std::string_view mix_name,
                                   const std::function<Status(GgufWriter&)>& tokenizer,
                                   const TensorStore& store) {
  GgufWriter writer;
  NIBBLE_RETURN_IF_ERROR(SetMetadata(model, mix_name, tokenizer, writer));
  std::vector<TensorReport> reports;
  for (const TensorChoice& choice : choices) {
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(choice.name(), choice.to, choice.view.Shape()));
    reports.push_back({.name = choice.name(),
                       .from = choice.from,
                       .to = choice.to,
                       .note = choice.note,
                       .loss = {}});
    const TensorStore::Record* record = store.Find(choice.name());
    if (record != nullptr) ReadLossNote(record->note, reports.back());
  }
  NIBBLE_TRY(TensorStream stream, writer.Begin(path));
  for (const TensorChoice& choice : choices) {
    NIBBLE_RETURN_IF_ERROR(ForPieces(
        choice, store, [&](std::span<const std::byte> piece) { return stream.Append(piece); }));
    if (choice.copied) DropPages(model, choice.view);
  }
  NIBBLE_TRY(OutputFile file, stream.Complete());
  NIBBLE_TRY(const uint64_t card_at, ReadBack(model, choices, store, file));
  return QuantizedGguf(std::move(file), card_at, std::move(reports));
}

Status QuantizedGguf::Commit(std::string_view card) {
  if (card.size() > kCardBytes) {
    return BadInput("card: expected at most {} bytes, found {}", kCardBytes, card.size());
  }
  NIBBLE_RETURN_IF_ERROR(file_.Overwrite(card_at_, std::as_bytes(std::span(card))));
  return file_.Commit();
}

}  // namespace nibble
