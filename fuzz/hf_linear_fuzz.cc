// deps: model_config container
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "container/hf_linear.h"
#include "container/safetensors.h"
#include "format/format.h"
#include "model/config/hf_quantization.h"

namespace {

using nibble::HfInput;
using nibble::HfQuantization;

// What a configuration may say, from two bytes.
HfQuantization QuantizationOf(uint8_t method, uint8_t hints) {
  HfQuantization out;
  out.method = static_cast<HfQuantization::Method>(method % 5);
  out.gptq_v2 = (method & 8) != 0;
  HfQuantization::Rule rule;
  rule.all = true;
  rule.hints.bits = hints & 15;
  rule.hints.group = (hints >> 4) * 16;
  rule.hints.block_rows = 1 + (hints & 7);
  rule.input.kind = static_cast<HfInput::Kind>((method >> 4) % 6);
  out.rules.push_back(std::move(rule));
  return out;
}

}  // namespace

// Byte 0 and 1: the configuration; then a safetensors file. What is let through must decode, and
// the packed form must stand for the floats of the definition.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto model = nibble::SafetensorsModel::Parse(std::as_bytes(std::span(data + 2, size - 2)));
  if (!model) return 0;
  const auto joined = nibble::JoinHfLinears(model->tensors(), QuantizationOf(data[0], data[1]));
  if (!joined) return 0;
  for (const nibble::HfLinear& linear : joined->linears) {
    const auto cols = static_cast<size_t>(linear.cols);
    const nibble::FormatTraits& traits = nibble::TraitsOf(linear.format);
    std::vector<std::byte> row(traits.RowBytes(cols));
    std::vector<float> packed(cols);
    std::vector<float> expected(cols);
    for (int r = 0; r < linear.rows; ++r) {
      float scale = 0;
      nibble::DecodeHfRows(linear, r, 1, row.data());
      nibble::HfRowScales(linear, r, 1, &scale);
      nibble::DequantiseHfRows(linear, r, 1, expected.data());
      traits.decode(row.data(), packed.data(), cols);
      for (size_t c = 0; c < cols; ++c) {
        const size_t to = linear.order.empty() ? c : static_cast<size_t>(linear.order[c]);
        const float value = packed[c] * scale;
        const bool nan = value != value && expected[to] != expected[to];
        if (!nan && value != expected[to]) std::abort();
      }
    }
  }
  return 0;
}
