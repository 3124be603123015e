#include "quantize/gguf_output.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "container/gguf.h"
#include "container/gguf_writer.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/imatrix.h"

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

Status SetMetadata(const GgufFile& source, std::string_view mix, GgufWriter& writer) {
  for (const GgufEntry& entry : source.metadata()) {
    const bool replaced = entry.key == "general.file_type" || entry.key == kCardKey ||
                          entry.key == "general.quantization_version" ||
                          entry.key == "general.alignment" || entry.key.starts_with("split.");
    if (replaced) continue;
    NIBBLE_RETURN_IF_ERROR(writer.Copy(entry));
  }
  if (const auto type = FileType(mix)) writer.SetUint32("general.file_type", *type);
  writer.SetUint32("general.quantization_version", 2);
  writer.SetString(kCardKey, std::string(kCardBytes, ' '));
  return {};
}

// Takes a file's tensors and remembers what it was given, piece by piece.
class RememberingStream {
 public:
  explicit RememberingStream(TensorStream stream) : stream_(std::move(stream)) {}

  Status Append(std::span<const std::byte> bytes) {
    pieces_.push_back({bytes.size(), HashOf(bytes)});
    return stream_.Append(bytes);
  }
  void EndTensor() { pieces_of_tensor_.push_back(std::exchange(pieces_, {})); }
  Result<OutputFile> Complete() { return stream_.Complete(); }

  // Whether bytes are those of a tensor that was written.
  bool Equals(size_t tensor, std::span<const std::byte> bytes) const {
    for (const Piece& piece : pieces_of_tensor_[tensor]) {
      if (bytes.size() < piece.bytes || HashOf(bytes.first(piece.bytes)) != piece.hash) {
        return false;
      }
      bytes = bytes.subspan(piece.bytes);
    }
    return bytes.empty();
  }

 private:
  struct Piece {
    size_t bytes;
    size_t hash;
  };
  static size_t HashOf(std::span<const std::byte> bytes) {
    return std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  TensorStream stream_;
  std::vector<Piece> pieces_;
  std::vector<std::vector<Piece>> pieces_of_tensor_;
};

// Copies in pieces of 4 MB.
Status CopyTensor(const SourceTensor& tensor, RememberingStream& out) {
  constexpr size_t kPiece = size_t{4} << 20;
  std::span<const std::byte> bytes = tensor.bytes;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    NIBBLE_RETURN_IF_ERROR(out.Append(piece));
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

// Gives the pages of a source tensor that has been read back to the system.
void DropPages(const ModelFile& model, const SourceTensor& tensor) {
  const MappedFile& file = model.files()[static_cast<size_t>(tensor.file)];
  file.Drop(static_cast<size_t>(tensor.bytes.data() - file.bytes().data()), tensor.bytes.size());
}

// Where the card's bytes lie. Error: what is on disk is not what was written.
Result<uint64_t> ReadBack(const OutputFile& file, const RememberingStream& written,
                          const std::vector<TensorReport>& tensors) {
  const auto damaged = [&](std::string_view what) {
    return IoError("{}: read back, {} is not what was written", file.temporary_path(), what);
  };
  auto read = GgufFile::Open(file.temporary_path());
  if (!read) return std::unexpected(read.error());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SourceTensor* tensor = read->tensors().Find(tensors[i].name);
    if (tensor == nullptr || !written.Equals(i, tensor->bytes)) return damaged(tensors[i].name);
    read->files()[0].Drop(
        static_cast<size_t>(tensor->bytes.data() - read->files()[0].bytes().data()),
        tensor->bytes.size());
  }
  const GgufEntry* card = read->Find(kCardKey);
  if (card == nullptr || card->bytes.size() < kCardBytes) return damaged("the card");
  const std::byte* text = card->bytes.data() + card->bytes.size() - kCardBytes;
  return static_cast<uint64_t>(text - read->files()[0].bytes().data());
}

// Writes every tensor as chosen.
Result<std::vector<TensorReport>> WriteTensors(const ModelFile& model,
                                               const std::vector<TensorChoice>& choices,
                                               const GgufOutputOptions& options, ThreadPool& pool,
                                               RememberingStream& out) {
  const auto total = static_cast<double>(model.source().total_bytes());
  double done = 0;
  std::vector<TensorReport> reports;
  for (const TensorChoice& choice : choices) {
    const SourceTensor& tensor = *choice.source;
    TensorReport report = {.name = std::string(tensor.name),
                           .from = *tensor.format,
                           .to = choice.to,
                           .note = choice.note,
                           .loss = {}};
    const auto told = [&](double bytes) {
      if (options.progress) options.progress((done + bytes) / total, tensor.name);
    };
    if (choice.copied) {
      NIBBLE_RETURN_IF_ERROR(CopyTensor(tensor, out));
    } else {
      uint64_t weights = 0;
      std::vector<float> importance;
      if (options.importance != nullptr) {
        NIBBLE_TRY(importance, options.importance->ImportanceOf(tensor.name, tensor.cols()));
      }
      NIBBLE_TRY(report.loss,
                 EncodeTensor(
                     tensor, {.format = choice.to, .importance = importance}, pool,
                     [&](std::span<const std::byte> bytes) { return out.Append(bytes); },
                     [&](uint64_t more) {
                       weights += more;
                       told(static_cast<double>(TraitsOf(report.from).RowBytes(weights)));
                     }));
    }
    out.EndTensor();
    DropPages(model, tensor);
    done += static_cast<double>(tensor.bytes.size());
    told(0);
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace

Result<QuantizedGguf> WriteQuantizedGguf(const ModelFile& model,
                                         const std::vector<TensorChoice>& choices,
                                         const std::filesystem::path& path,
                                         const GgufOutputOptions& options, ThreadPool& pool) {
  const GgufFile* source = model.gguf();
  if (source == nullptr) {
    return BadInput("{}: expected a GGUF file to make a GGUF file from", model.path().string());
  }
  GgufWriter writer;
  NIBBLE_RETURN_IF_ERROR(SetMetadata(*source, options.mix_name, writer));
  for (const TensorChoice& choice : choices) {
    const SourceTensor& tensor = *choice.source;
    if (!tensor.format) {
      return BadInput("'{}' is {}, which cannot be copied", tensor.name, tensor.type_name);
    }
    NIBBLE_RETURN_IF_ERROR(writer.AddTensor(
        tensor.name, choice.to, std::span(tensor.shape).first(static_cast<size_t>(tensor.rank))));
  }
  NIBBLE_TRY(TensorStream stream, writer.Begin(path));
  RememberingStream out(std::move(stream));
  NIBBLE_TRY(std::vector<TensorReport> reports, WriteTensors(model, choices, options, pool, out));
  NIBBLE_TRY(OutputFile file, out.Complete());
  NIBBLE_TRY(const uint64_t card_at, ReadBack(file, out, reports));
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
