#include "tests/model/llama_reference.h"

#include <cmath>
#include <string>

#include "container/gguf.h"

namespace nibble::testing {
namespace {

using Vec = std::vector<double>;

struct Matrix {
  size_t rows = 0;
  size_t cols = 0;
  Vec values;

  Vec operator*(const Vec& x) const {
    Vec y(rows, 0);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < cols; ++c) y[r] += values[r * cols + c] * x[c];
    }
    return y;
  }
  Vec row(size_t r) const {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(r * cols);
    return {begin, begin + static_cast<ptrdiff_t>(cols)};
  }
};

class Reference {
 public:
  explicit Reference(const std::filesystem::path& path) : file_(GgufFile::Open(path).value()) {}
  Vec Logits(const std::vector<int>& ids);

 private:
  Matrix Tensor(const std::string& name) const {
    const SourceTensor& tensor = *file_.tensors().Find(name);
    std::vector<float> decoded(tensor.elements());
    TraitsOf(tensor.format.value()).decode(tensor.bytes.data(), decoded.data(), decoded.size());
    return {
        .rows = tensor.rows(), .cols = tensor.cols(), .values = {decoded.begin(), decoded.end()}};
  }
  size_t Key(const std::string& key) const {
    return static_cast<size_t>(file_.GetInt("llama." + key).value());
  }
  Vec Norm(const Vec& x, const std::string& weight) const {
    const double eps = file_.GetDouble("llama.attention.layer_norm_rms_epsilon").value();
    double square = 0;
    for (const double value : x) square += value * value;
    const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + eps);
    Vec y = Tensor(weight).values;
    for (size_t i = 0; i < x.size(); ++i) y[i] *= x[i] * scale;
    return y;
  }
  // Pairs (2i, 2i + 1), as llama.cpp stores them.
  void Rotate(Vec& x, size_t head_dim, size_t position) const {
    const double base = file_.GetDoubleOr("llama.rope.freq_base", 10000).value();
    for (size_t i = 0; i < x.size(); i += 2) {
      const double power = static_cast<double>(i % head_dim) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(position) * std::pow(base, -power);
      const double a = x[i];
      const double b = x[i + 1];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  Vec Attend(const Vec& query, const std::vector<Vec>& keys, const std::vector<Vec>& values,
             size_t heads, size_t head_dim) const;

  GgufFile file_;
};

Vec Reference::Attend(const Vec& query, const std::vector<Vec>& keys,
                      const std::vector<Vec>& values, size_t heads, size_t head_dim) const {
  const size_t kv_heads = keys.front().size() / head_dim;
  Vec out(query.size(), 0);
  for (size_t h = 0; h < heads; ++h) {
    const size_t kv = h / (heads / kv_heads) * head_dim;
    Vec weights;
    double total = 0;
    for (const Vec& key : keys) {
      double dot = 0;
      for (size_t i = 0; i < head_dim; ++i) dot += query[h * head_dim + i] * key[kv + i];
      weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(head_dim))));
      total += weights.back();
    }
    for (size_t t = 0; t < keys.size(); ++t) {
      for (size_t i = 0; i < head_dim; ++i) {
        out[h * head_dim + i] += weights[t] / total * values[t][kv + i];
      }
    }
  }
  return out;
}

Vec Reference::Logits(const std::vector<int>& ids) {
  const size_t layers = Key("block_count");
  const size_t heads = Key("attention.head_count");
  const size_t head_dim = Key("embedding_length") / heads;
  const Matrix embedding = Tensor("token_embd.weight");
  const Matrix head =
      file_.tensors().Find("output.weight") != nullptr ? Tensor("output.weight") : embedding;
  std::vector<std::vector<Vec>> keys(layers);
  std::vector<std::vector<Vec>> values(layers);
  Vec logits;
  for (size_t t = 0; t < ids.size(); ++t) {
    Vec x = embedding.row(static_cast<size_t>(ids[t]));
    const auto add = [&x](const Vec& y) {
      for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
    };
    for (size_t l = 0; l < layers; ++l) {
      const std::string blk = "blk." + std::to_string(l) + ".";
      const Vec h = Norm(x, blk + "attn_norm.weight");
      Vec query = Tensor(blk + "attn_q.weight") * h;
      Vec key = Tensor(blk + "attn_k.weight") * h;
      Rotate(query, head_dim, t);
      Rotate(key, head_dim, t);
      keys[l].push_back(key);
      values[l].push_back(Tensor(blk + "attn_v.weight") * h);
      add(Tensor(blk + "attn_output.weight") * Attend(query, keys[l], values[l], heads, head_dim));
      const Vec f = Norm(x, blk + "ffn_norm.weight");
      Vec gate = Tensor(blk + "ffn_gate.weight") * f;
      const Vec up = Tensor(blk + "ffn_up.weight") * f;
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(Tensor(blk + "ffn_down.weight") * gate);
    }
    const Vec row = head * Norm(x, "output_norm.weight");
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

}  // namespace

std::vector<double> LlamaReferenceLogits(const std::filesystem::path& gguf,
                                         const std::vector<int>& ids) {
  return Reference(gguf).Logits(ids);
}

}  // namespace nibble::testing
