#include "quantize/gguf_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "format/block_parts.h"
#include "platform/thread_pool.h"
#include "quantize/encode_tensor.h"
#include "quantize/gguf_output.h"
#include "quantize/gptq_blocks.h"
#include "quantize/hqq.h"

namespace nibble {
namespace {

// What an error of each column costs: their mean squares, a column that was always zero like the
// least of the others.
std::vector<float> ImportanceOf(const InputStats& stats) {
  std::vector<float> importance = stats.Importance();
  float least = 0;
  for (const float value : importance) {
    if (value > 0 && (least == 0 || value < least)) least = value;
  }
  if (least == 0) return {};
  for (float& value : importance) {
    if (value == 0) value = least;
  }
  return importance;
}

struct Encoded {
  std::vector<std::byte> rows;
  std::string note;
};

// Every row by the format's own encoder.
Encoded EncodeRows(MatrixView<const float> w, Format format, const LinearInput& input,
                   ThreadPool& pool) {
  const FormatTraits& traits = TraitsOf(format);
  const auto cols = static_cast<size_t>(w.cols);
  const size_t row_bytes = traits.RowBytes(cols);
  std::vector<float> importance;
  if (input.stats != nullptr && traits.encode_weighted != nullptr) {
    importance = ImportanceOf(*input.stats);
  }
  Encoded encoded = {.rows = std::vector<std::byte>(static_cast<size_t>(w.rows) * row_bytes),
                     .note = {}};
  pool.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < end; ++r) {
      std::byte* to = encoded.rows.data() + static_cast<size_t>(r) * row_bytes;
      if (importance.empty()) {
        traits.encode(w.row(r), to, cols);
      } else {
        traits.encode_weighted(w.row(r), importance.data(), to, cols);
      }
    }
  });
  return encoded;
}

Result<Encoded> EncodeGptq(MatrixView<const float> w, Format format, const Recipe& recipe,
                           const LinearInput& input, ThreadPool& pool) {
  if (BlockShapeOf(format) == nullptr) {
    Encoded plain = EncodeRows(w, format, input, pool);
    plain.note = fmt::format("rounded: GPTQ does not make {}", TraitsOf(format).name);
    return plain;
  }
  const BlockGptqOptions options = {.format = format, .static_scales = recipe.static_groups};
  NIBBLE_TRY(BlockGptqResult made,
             QuantizeGptqBlocks(w, *input.stats->hessian(), *input.factor, options, pool));
  return Encoded{.rows = std::move(made.bytes), .note = fmt::format("loss {:.4g}", made.loss)};
}

// 0: a type without zeros that are no integers.
int HqqBits(Format format) {
  if (format == Format::kQ4_1) return 4;
  return format == Format::kQ5_1 ? 5 : 0;
}

Result<Encoded> EncodeHqq(MatrixView<const float> w, Format format, ThreadPool& pool) {
  const HqqOptions options = {.bits = HqqBits(format), .group = 32};
  NIBBLE_TRY(const HqqMatrix matrix, QuantizeHqq(w, options, pool));
  NIBBLE_TRY(std::vector<std::byte> rows, HqqBlocks(w, matrix));
  return Encoded{.rows = std::move(rows), .note = fmt::format("{} rounds", matrix.rounds)};
}

}  // namespace

Status GgufTarget::Check(const std::vector<TensorChoice>& choices, const Recipe& recipe) {
  if (recipe.rounding == Rounding::kLlmInt8) {
    return BadInput(
        "--method llm-int8: a GGUF file has no place for outlier columns; give a folder as OUT and "
        "--to llm-int8");
  }
  for (const TensorChoice& choice : choices) {
    if (recipe.rounding != Rounding::kHqq || choice.copied || !choice.matrix) continue;
    if (HqqBits(choice.to) == 0 && choice.name().starts_with("blk.")) {
      return BadInput(
          "--method hqq: '{}' is to be {}; of GGUF's types q4_1 and q5_1 have zeros "
          "that are no integers",
          choice.name(), TraitsOf(choice.to).name);
    }
  }
  return {};
}

GgufTarget::GgufTarget(const std::vector<TensorChoice>& choices, const Recipe& recipe,
                       ThreadPool& pool, TensorStore& store)
    : recipe_(recipe), pool_(pool), store_(store) {
  for (const TensorChoice& choice : choices) {
    if (choice.view.tensor != nullptr) choices_[choice.view.tensor] = &choice;
  }
}

bool GgufTarget::Keeps(const StoredLinear& linear) const {
  // Scales change even weights that keep their type.
  return ChoiceOf(linear.tensor).copied && recipe_.scaling == Scaling::kNone;
}

// Blocks of the types as plain grids: bits of a code, inputs of a scale, with a minimum or without.
GridSpec GgufTarget::GridFor(const StoredLinear& linear) const {
  const BlockShape* shape = BlockShapeOf(ChoiceOf(linear.tensor).to);
  GridSpec spec = {.bits = 4, .group = 32, .symmetric = true, .convention = GridConvention::kAwq};
  if (shape == nullptr) return spec;
  spec.group = shape->group;
  spec.symmetric = !shape->IsAffine();
  spec.bits = 2;
  while (spec.bits < 8 && (1 << spec.bits) <= shape->largest_code) ++spec.bits;
  return spec;
}

bool GgufTarget::Done(const StoredLinear& linear) const {
  return store_.Find(ChoiceOf(linear.tensor).name()) != nullptr;
}

Status GgufTarget::Restore(const StoredLinear& linear, MatrixView<float> values) {
  const TensorChoice& choice = ChoiceOf(linear.tensor);
  const TensorStore::Record& record = *store_.Find(choice.name());
  const FormatTraits& traits = TraitsOf(choice.to);
  const auto cols = static_cast<size_t>(linear.cols);
  const size_t row_bytes = traits.RowBytes(cols);
  if (record.bytes != row_bytes * static_cast<size_t>(linear.rows)) {
    return BadInput("'{}': a record of the unfinished output is damaged", choice.name());
  }
  std::vector<std::byte> row(row_bytes);
  for (int r = 0; r < linear.rows; ++r) {
    NIBBLE_RETURN_IF_ERROR(store_.Read(record, static_cast<uint64_t>(r) * row_bytes, row));
    const auto stored = static_cast<int>(choice.view.StoredRow(static_cast<uint64_t>(r)));
    traits.decode(row.data(), values.row(stored), cols);
  }
  return {};
}

// rows: in the source's order.
Status GgufTarget::Put(const TensorChoice& choice, std::span<const std::byte> rows,
                       std::string_view note) {
  const uint64_t count = choice.view.rows();
  const size_t row_bytes = rows.size() / count;
  NIBBLE_RETURN_IF_ERROR(store_.Begin(choice.name(), rows.size()));
  if (choice.view.paired_head == 0) {
    NIBBLE_RETURN_IF_ERROR(store_.Append(rows));
    return store_.End(note);
  }
  for (uint64_t r = 0; r < count; ++r) {
    NIBBLE_RETURN_IF_ERROR(
        store_.Append(rows.subspan(choice.view.StoredRow(r) * row_bytes, row_bytes)));
  }
  return store_.End(note);
}

Status GgufTarget::Quantize(const StoredLinear& linear, MatrixView<const float> w,
                            const LinearInput& input, MatrixView<float> values) {
  const TensorChoice& choice = ChoiceOf(linear.tensor);
  Encoded encoded;
  if (recipe_.rounding == Rounding::kGptq && input.factor != nullptr) {
    NIBBLE_TRY(encoded, EncodeGptq(w, choice.to, recipe_, input, pool_));
  } else if (recipe_.rounding == Rounding::kHqq && HqqBits(choice.to) > 0) {
    NIBBLE_TRY(encoded, EncodeHqq(w, choice.to, pool_));
  } else {
    encoded = EncodeRows(w, choice.to, input, pool_);
  }
  const FormatTraits& traits = TraitsOf(choice.to);
  const auto cols = static_cast<size_t>(w.cols);
  pool_.ParallelFor(w.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int r = static_cast<int>(begin); r < end; ++r) {
      traits.decode(encoded.rows.data() + static_cast<size_t>(r) * traits.RowBytes(cols),
                    values.row(r), cols);
    }
  });
  const EncodeLoss loss = MeasureLoss(w, values, pool_);
  NIBBLE_RETURN_IF_ERROR(CheckFiniteLoss(loss, choice.name(), traits.name));
  return Put(choice, encoded.rows, LossNote(loss, encoded.note));
}

Status GgufTarget::PutVector(const SourceTensor& tensor, std::span<const float> values,
                             bool /*norm*/) {
  const TensorChoice& choice = ChoiceOf(&tensor);
  if (store_.Find(choice.name()) != nullptr) return {};
  NIBBLE_CHECK(values.size() == choice.view.elements());
  const FormatTraits& traits = TraitsOf(choice.to);
  std::vector<std::byte> bytes(traits.RowBytes(values.size()));
  traits.encode(values.data(), bytes.data(), values.size());
  return Put(choice, bytes, LossNote({}, ""));
}

}  // namespace nibble
