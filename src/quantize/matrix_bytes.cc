#include "quantize/matrix_bytes.h"

#include <cstdint>
#include <cstring>

namespace nibble {
namespace {

template <class T>
void Put(std::vector<std::byte>& out, const T* values, size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  out.insert(out.end(), bytes, bytes + count * sizeof(T));
}

template <class T>
void PutList(std::vector<std::byte>& out, const std::vector<T>& values) {
  const uint64_t count = values.size();
  Put(out, &count, 1);
  Put(out, values.data(), values.size());
}

class Taker {
 public:
  explicit Taker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void Take(T* values, size_t count) {
    if (!good_ || count > bytes_.size() / sizeof(T)) {
      good_ = false;
      return;
    }
    if (count > 0) std::memcpy(values, bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
  }
  template <class T>
  void TakeList(std::vector<T>& values) {
    uint64_t count = 0;
    Take(&count, 1);
    if (!good_ || count > bytes_.size() / sizeof(T)) {
      good_ = false;
      return;
    }
    values.resize(count);
    Take(values.data(), count);
  }
  bool Whole() const { return good_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

}  // namespace

std::vector<std::byte> MatrixBytes(const GroupedMatrix& matrix) {
  std::vector<std::byte> out;
  const int32_t head[] = {matrix.rows, matrix.cols, matrix.bits, matrix.group,
                          matrix.symmetric ? 1 : 0};
  Put(out, head, std::size(head));
  PutList(out, matrix.codes);
  PutList(out, matrix.scales);
  PutList(out, matrix.zeros);
  PutList(out, matrix.group_of);
  return out;
}

std::vector<std::byte> MatrixBytes(const Fp8Matrix& matrix) {
  std::vector<std::byte> out;
  const int32_t head[] = {matrix.rows, matrix.cols};
  Put(out, head, std::size(head));
  PutList(out, matrix.codes);
  PutList(out, matrix.scales);
  return out;
}

Result<GroupedMatrix> ReadGroupedMatrix(std::span<const std::byte> bytes) {
  Taker taker(bytes);
  int32_t head[5] = {};
  taker.Take(head, std::size(head));
  GroupedMatrix matrix;
  matrix.rows = head[0];
  matrix.cols = head[1];
  matrix.bits = head[2];
  matrix.group = head[3];
  matrix.symmetric = head[4] != 0;
  taker.TakeList(matrix.codes);
  taker.TakeList(matrix.scales);
  taker.TakeList(matrix.zeros);
  taker.TakeList(matrix.group_of);
  if (!taker.Whole()) return BadInput("a record of the unfinished output is damaged");
  return matrix;
}

Result<Fp8Matrix> ReadFp8Matrix(std::span<const std::byte> bytes) {
  Taker taker(bytes);
  int32_t head[2] = {};
  taker.Take(head, std::size(head));
  Fp8Matrix matrix;
  matrix.rows = head[0];
  matrix.cols = head[1];
  taker.TakeList(matrix.codes);
  taker.TakeList(matrix.scales);
  if (!taker.Whole()) return BadInput("a record of the unfinished output is damaged");
  return matrix;
}

}  // namespace nibble
