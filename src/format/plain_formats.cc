#include "format/plain_formats.h"

#include <cstring>

#include "format/small_float.h"

namespace nibble {
namespace {

template <class Code, class Convert>
void DecodeEach(const std::byte* src, float* dst, size_t count, Convert convert) {
  for (size_t i = 0; i < count; ++i) {
    Code code;
    std::memcpy(&code, src + i * sizeof(Code), sizeof(Code));
    dst[i] = convert(code);
  }
}

template <class Code, class Convert>
void EncodeEach(const float* src, std::byte* dst, size_t count, Convert convert) {
  for (size_t i = 0; i < count; ++i) {
    const Code code = convert(src[i]);
    std::memcpy(dst + i * sizeof(Code), &code, sizeof(Code));
  }
}

}  // namespace

void DecodeF32(const std::byte* src, float* dst, size_t count) {
  if (count > 0) std::memcpy(dst, src, count * sizeof(float));
}
void EncodeF32(const float* src, std::byte* dst, size_t count) {
  if (count > 0) std::memcpy(dst, src, count * sizeof(float));
}

void DecodeF16(const std::byte* src, float* dst, size_t count) {
  DecodeEach<uint16_t>(src, dst, count, F16ToF32);
}
void EncodeF16(const float* src, std::byte* dst, size_t count) {
  EncodeEach<uint16_t>(src, dst, count, F32ToF16);
}

void DecodeBF16(const std::byte* src, float* dst, size_t count) {
  DecodeEach<uint16_t>(src, dst, count, BF16ToF32);
}
void EncodeBF16(const float* src, std::byte* dst, size_t count) {
  EncodeEach<uint16_t>(src, dst, count, F32ToBF16);
}

void DecodeF8E4M3(const std::byte* src, float* dst, size_t count) {
  DecodeEach<uint8_t>(src, dst, count, F8E4M3ToF32);
}
void EncodeF8E4M3(const float* src, std::byte* dst, size_t count) {
  EncodeEach<uint8_t>(src, dst, count, F32ToF8E4M3Saturating);
}

void DecodeF8E5M2(const std::byte* src, float* dst, size_t count) {
  DecodeEach<uint8_t>(src, dst, count, F8E5M2ToF32);
}
void EncodeF8E5M2(const float* src, std::byte* dst, size_t count) {
  EncodeEach<uint8_t>(src, dst, count, F32ToF8E5M2Saturating);
}

}  // namespace nibble
