#include "eval/logits_base.h"

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>

namespace nibble {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is read as it lies");

constexpr std::string_view kMagic = "_logits_";
constexpr size_t kHeaderBytes = 20;
constexpr int kMaxContext = 1 << 24;
constexpr int kMaxVocabulary = 1 << 24;
constexpr size_t kRowHeaderBytes = 8;  // step, lowest
constexpr float kLeast = -16;          // llama-perplexity sums above this only

template <class T>
T Load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

size_t RowBytes(int vocabulary) {
  const auto padded = static_cast<size_t>(vocabulary + vocabulary % 2);
  return kRowHeaderBytes + sizeof(uint16_t) * padded;
}

size_t RowsOf(int context) { return static_cast<size_t>(context - 1 - context / 2); }

struct RowScale {
  float step = 0;
  float lowest = 0;
};

}  // namespace

bool LogitsBase::Recognise(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  std::array<char, kMagic.size()> begin = {};
  file.read(begin.data(), begin.size());
  return file && std::string_view(begin.data(), begin.size()) == kMagic;
}

Result<LogitsBase> LogitsBase::Open(const std::filesystem::path& path) {
  NIBBLE_TRY(MappedFile file, MappedFile::Open(path));
  file.AdviseSequential();
  auto base = Parse(file.bytes());
  if (!base) return Within(path.string(), base.error());
  base->file_ = std::move(file);  // the bytes stay where they are
  return base;
}

Result<LogitsBase> LogitsBase::Parse(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return BadInput("expected a file that begins with '{}' and has at least {} bytes", kMagic,
                    kHeaderBytes);
  }
  LogitsBase base;
  base.bytes_ = bytes;
  base.context_ = Load<int32_t>(bytes, 8);
  base.vocabulary_ = Load<int32_t>(bytes, 12);
  base.windows_ = Load<int32_t>(bytes, 16);
  if (base.context_ < 4 || base.context_ > kMaxContext) {
    return BadInput("context: expected 4 to {} tokens, found {}", kMaxContext, base.context_);
  }
  if (base.vocabulary_ < 2 || base.vocabulary_ > kMaxVocabulary) {
    return BadInput("vocabulary: expected 2 to {} tokens, found {}", kMaxVocabulary,
                    base.vocabulary_);
  }
  if (base.windows_ < 1) return BadInput("windows: expected at least 1, found {}", base.windows_);
  // At most 2^24 · (2^26) + …: a window fits 51 bits. Divided, since all of them may not fit 64.
  const size_t window = sizeof(int32_t) * static_cast<size_t>(base.context_) +
                        RowsOf(base.context_) * RowBytes(base.vocabulary_);
  const size_t there = (bytes.size() - kHeaderBytes) / window;
  if (there < static_cast<size_t>(base.windows_)) {
    return BadInput(
        "expected {} windows of {} tokens over a vocabulary of {}, {} bytes each, found {} bytes: "
        "the file was cut off",
        base.windows_, base.context_, base.vocabulary_, window, bytes.size());
  }
  const size_t ids = static_cast<size_t>(base.windows_) * static_cast<size_t>(base.context_);
  for (size_t i = 0; i < ids; ++i) {
    const auto id = Load<int32_t>(bytes, kHeaderBytes + sizeof(int32_t) * i);
    if (id < 0 || id >= base.vocabulary_) {
      return BadInput("token {}: expected an id from 0 to {}, found {}", i, base.vocabulary_ - 1,
                      id);
    }
  }
  return base;
}

std::vector<TokenId> LogitsBase::Ids() const {
  const size_t count = static_cast<size_t>(windows_) * static_cast<size_t>(context_);
  std::vector<TokenId> ids;
  ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ids.emplace_back(Load<int32_t>(bytes_, kHeaderBytes + sizeof(int32_t) * i));
  }
  return ids;
}

size_t LogitsBase::RowOffset(int window, Position position) const {
  const auto w = static_cast<size_t>(window);
  const size_t ids =
      sizeof(int32_t) * static_cast<size_t>(windows_) * static_cast<size_t>(context_);
  const auto row = static_cast<size_t>(position.value() - context_ / 2);
  return kHeaderBytes + ids + (w * RowsOf(context_) + row) * RowBytes(vocabulary_);
}

Status LogitsBase::Row(int window, Position position, std::span<float> logprobs) const {
  const size_t at = RowOffset(window, position);
  const RowScale scale = {Load<float>(bytes_, at), Load<float>(bytes_, at + 4)};
  const float highest = scale.step * 65535 + scale.lowest;
  // Rounding to 16 bits may lift a certain token above ln 1 by half a step.
  if (!(scale.step >= 0 && scale.lowest <= 0 && highest <= 0.01F && highest > kLeast)) {
    return BadInput(
        "base: window {}, position {}: expected log-probabilities, found a lowest one of {} and "
        "steps of {}",
        window, position.value(), scale.lowest, scale.step);
  }
  const std::byte* codes = bytes_.data() + at + kRowHeaderBytes;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, codes + sizeof code * i, sizeof code);
    const float logprob = scale.step * static_cast<float>(code) + scale.lowest;
    logprobs[i] = logprob > kLeast ? logprob : -std::numeric_limits<float>::infinity();
  }
  return {};
}

float LogitsBase::Logprob(int window, Position position, TokenId id) const {
  const size_t at = RowOffset(window, position);
  const auto code = Load<uint16_t>(
      bytes_, at + kRowHeaderBytes + sizeof(uint16_t) * static_cast<size_t>(id.value()));
  return Load<float>(bytes_, at) * static_cast<float>(code) + Load<float>(bytes_, at + 4);
}

}  // namespace nibble
