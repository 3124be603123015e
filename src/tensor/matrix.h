#pragma once

#include <cstddef>
#include <span>

namespace nibble {

// A view of rows of floats (or other T) in someone else's memory: element (r, c) is data[r * stride
// + c]. stride counts elements and is at least cols.
template <class T>
struct MatrixView {
  T* data = nullptr;
  int rows = 0;
  int cols = 0;
  ptrdiff_t stride = 0;

  T* row(int r) const { return data + r * stride; }
  std::span<T> row_span(int r) const { return {row(r), static_cast<size_t>(cols)}; }
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }
};

template <class T>
MatrixView<T> DenseView(T* data, int rows, int cols) {
  return {data, rows, cols, cols};
}

}  // namespace nibble
