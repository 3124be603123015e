#include "tests/model/npz.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "tests/support/test_data.h"

namespace nibble::testing {
namespace {

// RFC 1951, bit by bit: canonical Huffman codes by counting, as in Mark Adler's puff.
class Inflater {
 public:
  explicit Inflater(std::string_view data) : data_(data) {}

  std::optional<std::string> Run() {
    bool last = false;
    while (!last) {
      last = Bits(1) == 1;
      const uint32_t type = Bits(2);
      bool ok = false;
      if (type == 0) ok = Stored();
      if (type == 1) ok = Fixed();
      if (type == 2) ok = Dynamic();
      if (!ok || overrun_) return std::nullopt;
    }
    return out_;
  }

 private:
  struct Codes {
    std::array<int, 16> count{};
    std::vector<int> symbols;
  };

  uint32_t Bits(int n) {
    uint32_t value = 0;
    for (int i = 0; i < n; ++i) {
      const size_t byte = bit_ / 8;
      if (byte >= data_.size()) {
        overrun_ = true;
        return 0;
      }
      value |= (static_cast<uint32_t>(static_cast<uint8_t>(data_[byte]) >> (bit_ % 8)) & 1U) << i;
      ++bit_;
    }
    return value;
  }

  static Codes MakeCodes(const std::vector<int>& lengths) {
    Codes codes;
    for (const int length : lengths) ++codes.count[static_cast<size_t>(length)];
    codes.count[0] = 0;
    for (int length = 1; length < 16; ++length) {
      for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
        if (lengths[symbol] == length) codes.symbols.push_back(static_cast<int>(symbol));
      }
    }
    return codes;
  }

  int Decode(const Codes& codes) {
    int code = 0;
    int first = 0;
    int index = 0;
    for (size_t length = 1; length < 16 && !overrun_; ++length) {
      code |= static_cast<int>(Bits(1));
      const int count = codes.count[length];
      if (code - count < first) return codes.symbols[static_cast<size_t>(index + code - first)];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    return -1;
  }

  bool Stored() {
    bit_ = (bit_ + 7) / 8 * 8;
    const uint32_t length = Bits(16);
    Bits(16);
    const size_t begin = bit_ / 8;
    if (begin + length > data_.size()) return false;
    out_.append(data_.substr(begin, length));
    bit_ += size_t{8} * length;
    return true;
  }

  bool Block(const Codes& literals, const Codes& distances) {
    static constexpr std::array<int, 29> kLength = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                    15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                    67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::array<int, 29> kLengthBits = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                        2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::array<int, 30> kDistance = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (!overrun_) {
      const int symbol = Decode(literals);
      if (symbol < 0 || symbol > 285) return false;
      if (symbol == 256) return true;
      if (symbol < 256) {
        out_.push_back(static_cast<char>(symbol));
        continue;
      }
      const auto l = static_cast<size_t>(symbol - 257);
      const int length = kLength[l] + static_cast<int>(Bits(kLengthBits[l]));
      const int d = Decode(distances);
      if (d < 0 || d > 29) return false;
      const auto distance =
          static_cast<size_t>(kDistance[static_cast<size_t>(d)]) + Bits(d < 2 ? 0 : d / 2 - 1);
      if (distance > out_.size()) return false;
      for (int i = 0; i < length; ++i) out_.push_back(out_[out_.size() - distance]);
    }
    return false;
  }

  bool Fixed() {
    std::vector<int> literals(288, 8);
    for (size_t i = 144; i < 256; ++i) literals[i] = 9;
    for (size_t i = 256; i < 280; ++i) literals[i] = 7;
    return Block(MakeCodes(literals), MakeCodes(std::vector<int>(30, 5)));
  }

  bool Dynamic() {
    static constexpr std::array<size_t, 19> kOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    const size_t literal_count = Bits(5) + 257;
    const size_t distance_count = Bits(5) + 1;
    const size_t code_count = Bits(4) + 4;
    std::vector<int> lengths(19, 0);
    for (size_t i = 0; i < code_count; ++i) lengths[kOrder[i]] = static_cast<int>(Bits(3));
    const Codes codes = MakeCodes(lengths);
    lengths.clear();
    while (lengths.size() < literal_count + distance_count) {
      const int symbol = Decode(codes);
      if (symbol < 0) return false;
      if (symbol < 16) {
        lengths.push_back(symbol);
        continue;
      }
      if (symbol == 16 && lengths.empty()) return false;
      const int value = symbol == 16 ? lengths.back() : 0;
      const uint32_t repeat = symbol == 16   ? 3 + Bits(2)
                              : symbol == 17 ? 3 + Bits(3)
                                             : 11 + Bits(7);
      lengths.insert(lengths.end(), repeat, value);
    }
    const auto split = lengths.begin() + static_cast<ptrdiff_t>(literal_count);
    return Block(MakeCodes({lengths.begin(), split}), MakeCodes({split, lengths.end()}));
  }

  std::string_view data_;
  size_t bit_ = 0;
  bool overrun_ = false;
  std::string out_;
};

uint64_t Read(std::string_view data, size_t offset, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes && offset + i < data.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(data[offset + i])) << (8 * i);
  }
  return value;
}

NpyArray ParseNpy(const std::string& file) {
  NpyArray array;
  const bool version1 = file.size() > 8 && file[6] == 1;
  const size_t header_at = version1 ? 10 : 12;
  const size_t header_bytes = Read(file, 8, version1 ? 2 : 4);
  const std::string header = file.substr(header_at, header_bytes);
  const size_t open = header.find("'shape': (") + 10;
  for (size_t i = open; i < header.size() && header[i] != ')';) {
    if (header[i] >= '0' && header[i] <= '9') {
      size_t used = 0;
      array.shape.push_back(std::stoi(header.substr(i), &used));
      i += used;
    } else {
      ++i;
    }
  }
  const char* data = file.data() + header_at + header_bytes;
  const size_t bytes = file.size() - header_at - header_bytes;
  const bool f32 = header.find("'<f4'") != std::string::npos;
  EXPECT_TRUE(f32 || header.find("'<i8'") != std::string::npos) << header;
  for (size_t at = 0; at < bytes; at += f32 ? 4 : 8) {
    float real = 0;
    int64_t whole = 0;
    std::memcpy(f32 ? static_cast<void*>(&real) : &whole, data + at, f32 ? 4 : 8);
    array.values.push_back(f32 ? static_cast<double>(real) : static_cast<double>(whole));
  }
  return array;
}

}  // namespace

std::map<std::string, NpyArray> ReadNpz(const std::filesystem::path& path) {
  std::map<std::string, NpyArray> arrays;
  const std::string file = ReadFile(path);
  const size_t end = file.rfind("PK\x05\x06");
  if (end == std::string::npos) {
    ADD_FAILURE() << path << " is no zip file";
    return arrays;
  }
  size_t at = Read(file, end + 16, 4);
  for (uint64_t left = Read(file, end + 10, 2); left > 0; --left) {
    const uint64_t method = Read(file, at + 10, 2);
    const uint64_t packed = Read(file, at + 20, 4);
    const uint64_t name_bytes = Read(file, at + 28, 2);
    const uint64_t local = Read(file, at + 42, 4);
    std::string name = file.substr(at + 46, name_bytes);
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    const size_t data = local + 30 + Read(file, local + 26, 2) + Read(file, local + 28, 2);
    const std::string_view bytes = std::string_view(file).substr(data, packed);
    if (method == 0) {
      arrays[name] = ParseNpy(std::string(bytes));
    } else if (std::optional<std::string> plain = Inflater(bytes).Run()) {
      arrays[name] = ParseNpy(*plain);
    } else {
      ADD_FAILURE() << path << ": cannot inflate " << name;
    }
    at += 46 + name_bytes + Read(file, at + 30, 2) + Read(file, at + 32, 2);
  }
  return arrays;
}

}  // namespace nibble::testing
