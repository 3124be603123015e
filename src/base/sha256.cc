#include "base/sha256.h"

#include <algorithm>
#include <cstring>

#include "base/sha256_block.h"

namespace nibble {

void Sha256::Block(const std::byte* data) {
  static const bool kInstructions = HasShaInstructions();
  if (kInstructions) {
    Sha256BlockByInstructions(state_.data(), data);
  } else {
    Sha256BlockPortable(state_.data(), data);
  }
}

void Sha256::Update(std::span<const std::byte> data) {
  total_bytes_ += data.size();
  if (pending_size_ > 0) {
    const size_t taken = std::min(data.size(), pending_.size() - pending_size_);
    std::memcpy(pending_.data() + pending_size_, data.data(), taken);
    pending_size_ += taken;
    data = data.subspan(taken);
    if (pending_size_ < pending_.size()) return;
    Block(pending_.data());
    pending_size_ = 0;
  }
  for (; data.size() >= 64; data = data.subspan(64)) Block(data.data());
  if (!data.empty()) std::memcpy(pending_.data(), data.data(), data.size());
  pending_size_ = data.size();
}

std::string Sha256::HexDigest() {
  const uint64_t bits = total_bytes_ * 8;
  std::byte padding[72] = {std::byte{0x80}};
  const size_t zeros = (pending_size_ < 56 ? 56 : 120) - pending_size_;
  for (size_t i = 0; i < 8; ++i) padding[zeros + i] = std::byte(bits >> (56 - 8 * i));
  Update(std::span(padding, zeros + 8));
  std::string out;
  for (const uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[word >> shift & 15];
  }
  return out;
}

}  // namespace nibble
