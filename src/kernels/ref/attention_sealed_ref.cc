// The scalar truth of attention over sealed pages. c_jd is a code or level, f_j the factor of its
// token (format/kv_codec.h), both exact; for fp8 c is the code times 2^-8, f the page float times
// 2^8. Order, the same on every instruction set:
//   float products    score s_j = (fma over channels of c_jd q_d, from 0) · f_j
//                     o: weight w_j = p_j · f_j, fma over positions of c_jc w_j
//   integer products  score s_j = float(Σ_d c_jd q8_d) · (f_j · q_scale), the sum exact
//                     o_c = fma(float(Σ_j P_j c_jc), beta · (F / 127), o_c), the sum exact, where
//                     P_j = round(p_j · f_j / F · 127) and F is the page float: the largest f_j, or
//                     the factor of all. f_j / F · 127 is computed as f_j · (127 / F), or is 127.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "format/kv_codec.h"
#include "format/small_float.h"
#include "kernels/math_constants.h"
#include "kernels/ref/attention_ref.h"

namespace nibble::ref {
namespace {

float KeyFloat(const AttentionTask& task, const PageForm& form, int page) {
  return FloatAt(task.pages[page] + form.k_float_offset);
}
float ValueFloat(const AttentionTask& task, const PageForm& form, int page) {
  return FloatAt(task.pages[page] + form.v_float_offset);
}

// One factor for all tokens of a page: then its keys have it as their page float. Else each token
// has its own, and only the values have a page float, the largest of theirs.
bool HasOneFactor(KvFormat format) {
  return TraitsOf(format).page_float[static_cast<size_t>(KvSide::kKeys)];
}

// Codes as floats, [kPageTokens][head_dim].
struct FloatBlock {
  std::vector<float> code;
  float factor[kPageTokens];
};

template <KvFormat kFormat>
FloatBlock ReadFloats(KvSide side, const std::byte* block, float page_float, int dim) {
  FloatBlock out;
  out.code.resize(static_cast<size_t>(kPageTokens * dim));
  if constexpr (kFormat == KvFormat::kFp8) {
    DecodeKv(kFormat, side, block, 0x1p-8F, dim, out.code.data());
    for (float& factor : out.factor) factor = page_float * 256;
  } else {
    std::vector<int> codes(out.code.size());
    DecodeKvCodes(kFormat, side, block, page_float, dim, codes.data(), out.factor);
    for (size_t i = 0; i < codes.size(); ++i) out.code[i] = static_cast<float>(codes[i]);
  }
  return out;
}

template <KvFormat kFormat>
void Scores(const AttentionTask& task, const PageForm& form, int page, int count, float* s) {
  const int dim = task.head_dim;
  for (int i = 0; i < count; ++i) {
    const float page_float = HasOneFactor(kFormat) ? KeyFloat(task, form, page + i) : 0;
    const FloatBlock k = ReadFloats<kFormat>(KvSide::kKeys, task.pages[page + i], page_float, dim);
    for (int row = 0; row < task.rows; ++row) {
      for (int j = 0; j < kPageTokens; ++j) {
        float dot = 0;
        for (int d = 0; d < dim; ++d) {
          dot =
              std::fma(k.code[static_cast<size_t>(j * dim + d)], task.q[d * kRowBlock + row], dot);
        }
        s[(i * kRowBlock + row) * kPageTokens + j] = dot * k.factor[j];
      }
    }
  }
}

template <KvFormat kFormat>
void Values(const AttentionTask& task, const PageForm& form, int page, const PageWeights& weights) {
  const int dim = task.head_dim;
  const FloatBlock v = ReadFloats<kFormat>(KvSide::kValues, task.pages[page] + form.v_offset,
                                           ValueFloat(task, form, page), dim);
  for (int row = 0; row < task.rows; ++row) {
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    for (int c = 0; c < dim; ++c) o[c] = o[c] * weights.shrink[row];
    for (int j = 0; j < kPageTokens; ++j) {
      const float weight = weights.p[row * kPageTokens + j] * v.factor[j];
      for (int c = 0; c < dim; ++c) {
        o[c] = std::fma(v.code[static_cast<size_t>(j * dim + c)], weight, o[c]);
      }
    }
  }
}

// Code of the query's channel d.
int QueryCode(const IntQuery& query, int d, int row) {
  const auto quad = static_cast<uint32_t>(query.q[d / 4 * kRowBlock + row]);
  return static_cast<int8_t>(quad >> (8 * (d % 4)));
}

template <KvFormat kFormat>
void IntScores(const AttentionTask& task, const PageForm& form, int page, int count, float* s) {
  const int dim = task.head_dim;
  std::vector<int> codes(static_cast<size_t>(kPageTokens * dim));
  float factors[kPageTokens];
  for (int i = 0; i < count; ++i) {
    const float page_float = HasOneFactor(kFormat) ? KeyFloat(task, form, page + i) : 0;
    DecodeKvCodes(kFormat, KvSide::kKeys, task.pages[page + i], page_float, dim, codes.data(),
                  factors);
    for (int row = 0; row < task.rows; ++row) {
      for (int j = 0; j < kPageTokens; ++j) {
        int dot = 0;
        for (int d = 0; d < dim; ++d) {
          dot += codes[static_cast<size_t>(j * dim + d)] * QueryCode(task.int_query, d, row);
        }
        s[(i * kRowBlock + row) * kPageTokens + j] =
            static_cast<float>(dot) * (factors[j] * task.int_query.scale[row]);
      }
    }
  }
}

template <KvFormat kFormat>
void IntValues(const AttentionTask& task, const PageForm& form, int page,
               const PageWeights& weights) {
  const int dim = task.head_dim;
  const float most = ValueFloat(task, form, page);
  std::vector<int> codes(static_cast<size_t>(kPageTokens * dim));
  float factors[kPageTokens];
  DecodeKvCodes(kFormat, KvSide::kValues, task.pages[page] + form.v_offset, most, dim, codes.data(),
                factors);
  for (float& factor : factors) {
    factor = HasOneFactor(kFormat) ? kMostWeight : factor * (kMostWeight / most);
  }
  for (int row = 0; row < task.rows; ++row) {
    float* o = task.o + static_cast<ptrdiff_t>(row) * task.o_stride;
    int p[kPageTokens];
    for (int j = 0; j < kPageTokens; ++j) {
      const float rounded =
          std::fma(weights.p[row * kPageTokens + j], factors[j], math_constants::kRound);
      p[j] = static_cast<int>(std::bit_cast<uint32_t>(rounded) & 0x7f);
    }
    const float unit = weights.beta[row] * (most / kMostWeight);
    for (int c = 0; c < dim; ++c) {
      int sum = 0;
      for (int j = 0; j < kPageTokens; ++j) sum += p[j] * codes[static_cast<size_t>(j * dim + c)];
      o[c] = std::fma(static_cast<float>(sum), unit, o[c] * weights.shrink[row]);
    }
  }
}

template <KvFormat kFormat>
void Add(AttentionKernels& kernels) {
  constexpr auto kIndex = static_cast<size_t>(kFormat);
  kernels.score[kIndex] = Scores<kFormat>;
  kernels.value[kIndex] = Values<kFormat>;
  if constexpr (kFormat != KvFormat::kFp8) {
    kernels.int_score[kIndex] = IntScores<kFormat>;
    kernels.int_value[kIndex] = IntValues<kFormat>;
  }
}

}  // namespace

void AddSealedKernels(AttentionKernels& kernels) {
  Add<KvFormat::kFp8>(kernels);
  Add<KvFormat::kInt8>(kernels);
  Add<KvFormat::kInt4>(kernels);
  Add<KvFormat::kKivi4>(kernels);
  Add<KvFormat::kKivi2>(kernels);
}

}  // namespace nibble::ref
