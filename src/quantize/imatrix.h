#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble {

// How much each input column of each matrix matters: the mean square of what multiplies it over a
// text. llama.cpp's importance matrix; both of its file forms are read and written.
class Imatrix {
 public:
  // Of one matrix. The mean square of column j is sums[j] / count.
  struct Entry {
    std::string name;         // the matrix's: "blk.0.attn_q.weight"
    std::vector<float> sums;  // [columns], finite, not negative
    float count = 0;          // > 0; tokens, in .dat files calls
  };
  // What it was collected on, as the files say it.
  struct Origin {
    std::vector<std::string> texts = {};
    uint32_t chunks = 0;
    uint32_t chunk_tokens = 0;
  };

  // A GGUF file with general.type "imatrix", or the .dat form. Errors name the file and the entry.
  static Result<Imatrix> Read(const std::filesystem::path& path);
  static Result<Imatrix> Parse(std::span<const std::byte> bytes);

  // The .dat form under a name that ends so, else GGUF; renamed into place when complete. The .dat
  // form keeps means, not counts of tokens.
  Status Write(const std::filesystem::path& path) const;

  // Errors: a name used before or longer than 512 bytes, no columns, a sum or count as above.
  Status Add(Entry entry);
  void SetOrigin(Origin origin) { origin_ = std::move(origin); }

  std::span<const Entry> entries() const { return entries_; }  // sorted by name
  const Origin& origin() const { return origin_; }
  const Entry* Find(std::string_view name) const;  // null when absent

  // What an error in each column costs; a column that was always zero counts as the least of the
  // others, so that another text may use it. Empty: no entry, or nothing but zeros. Error: an entry
  // of another width (both numbers).
  Result<std::vector<float>> ImportanceOf(std::string_view name, size_t columns) const;

 private:
  std::vector<Entry> entries_;
  Origin origin_;
};

}  // namespace nibble
