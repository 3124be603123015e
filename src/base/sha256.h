#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nibble {

// SHA-256 (FIPS 180-4), for checksums of downloads; no claim to speed or to resistance against
// side channels.
class Sha256 {
 public:
  void Update(std::span<const std::byte> data);
  void Update(std::string_view data) { Update(std::as_bytes(std::span(data.data(), data.size()))); }
  // 64 lower-case hexadecimal digits of all that was given so far. Nothing may follow.
  std::string HexDigest();

 private:
  void Block(const std::byte* data);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_bytes_ = 0;
};

inline std::string Sha256Hex(std::string_view data) {
  Sha256 hash;
  hash.Update(data);
  return hash.HexDigest();
}

}  // namespace nibble
