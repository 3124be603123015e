#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "container/grouped_matrix.h"
#include "container/hf_scheme.h"

namespace nibble {

// Matrices of codes as one run of bytes, for the store of an unfinished output.
std::vector<std::byte> MatrixBytes(const GroupedMatrix& matrix);
std::vector<std::byte> MatrixBytes(const Fp8Matrix& matrix);
// Error: bytes of something else.
Result<GroupedMatrix> ReadGroupedMatrix(std::span<const std::byte> bytes);
Result<Fp8Matrix> ReadFp8Matrix(std::span<const std::byte> bytes);

}  // namespace nibble
