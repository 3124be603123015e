#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace nibble {

// A number format of stored weights. GGUF types are named instances; the fp8 ones come from
// safetensors, the grouped ones (w4g128) from quantised Hugging Face checkpoints. Every property of
// a format has its one home in its FormatTraits row.
enum class Format : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
  kNvfp4,
  kW4G32,
  kW4G64,
  kW4G128,
  kW8G32,
  kW8G64,
  kW8G128,
};
inline constexpr int kFormatCount = 25;

struct FormatTraits {
  Format format;
  std::string_view name;              // "q4_k", as printed and as accepted by --to
  std::optional<uint32_t> gguf_type;  // ggml type id; none for formats GGUF has not
  int block_elements;                 // consecutive weights of a row that share scales
  int block_bytes;                    // bytes of one block in the file
  int activation_group;               // 32 or 256 under act=int8; 0: act=f32 only
  double relative_error;  // bound on the root mean square error of encode+decode of N(0,1)
                          // data over the data's root mean square

  // Decodes count elements (a multiple of block_elements) from blocks at src. Exact: the float the
  // format's definition gives, the same as the gguf package's.
  void (*decode)(const std::byte* src, float* dst, size_t count);
  // Encodes count elements; reference rounding of ggml where it has an encoder.
  void (*encode)(const float* src, std::byte* dst, size_t count);
  // Encodes one row whose columns have an importance: what an error in each costs, finite and not
  // negative. As ggml's quantize_chunk with an importance matrix. None: the importance would change
  // nothing.
  void (*encode_weighted)(const float* src, const float* importance, std::byte* dst,
                          size_t count) = nullptr;

  constexpr double BitsPerWeight() const { return 8.0 * block_bytes / block_elements; }
  constexpr size_t RowBytes(size_t elements) const {
    return elements / static_cast<size_t>(block_elements) * static_cast<size_t>(block_bytes);
  }
};

const FormatTraits& TraitsOf(Format format);
std::span<const FormatTraits> AllFormats();

// By ggml type id or by name ("q4_k", "Q4_K"); nothing when unknown.
std::optional<Format> FormatFromGguf(uint32_t type);
std::optional<Format> FormatFromName(std::string_view name);

// Name of a ggml type id that exists but that nibble does not read ("IQ2_XXS"), else empty.
std::string_view UnsupportedGgufTypeName(uint32_t type);

}  // namespace nibble
