#pragma once

#include <filesystem>
#include <span>

#include "base/result.h"
#include "quantize/imatrix.h"

namespace nibble {

// The two forms of an importance matrix on disk.
//
// GGUF: general.type "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size, and for
// every matrix the tensors "<name>.in_sum2" [columns] and "<name>.counts" [1], both f32.
//
// .dat, little-endian: i32 entries; of each {i32 bytes, name, i32 calls, i32 columns,
// f32[columns]}, the values being means · calls; then, in newer ones, i32 chunks and {i32 bytes,
// name of the text}.
Result<Imatrix> ParseGgufImatrix(std::span<const std::byte> bytes);
Result<Imatrix> ParseDatImatrix(std::span<const std::byte> bytes);
Status WriteGgufImatrix(const Imatrix& imatrix, const std::filesystem::path& path);
Status WriteDatImatrix(const Imatrix& imatrix, const std::filesystem::path& path);

}  // namespace nibble
