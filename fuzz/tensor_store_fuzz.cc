// deps: quantize
// A file of an unfinished output, as a run finds it that is to go on: whatever lies there, records
// that are taken lie within the file, and what is written behind them is read back.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quantize/matrix_bytes.h"
#include "quantize/tensor_store.h"

namespace {

constexpr std::string_view kHead = "nibble-part 1\nkey\n";

void Check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  (void)nibble::ReadGroupedMatrix(bytes);
  (void)nibble::ReadFp8Matrix(bytes);
  static const std::string kOut =
      (std::filesystem::temp_directory_path() / ("store_fuzz." + std::to_string(::getpid())))
          .string();
  {
    std::ofstream file(kOut + ".nibble-part", std::ios::binary | std::ios::trunc);
    if (size % 2 == 0) file << kHead;  // half of the inputs without: the header is theirs
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  auto store = nibble::TensorStore::Open(kOut, "key");
  Check(store.has_value());
  for (const std::string_view name : {"a", "b", ""}) {
    const nibble::TensorStore::Record* record = store->Find(name);
    if (record == nullptr) continue;
    Check(record->bytes <= size);
    std::vector<std::byte> read(record->bytes);
    Check(store->Read(*record, 0, read).has_value());
  }
  Check(store->Put("new", bytes, "note").has_value());
  std::vector<std::byte> read(size);
  Check(store->Read(*store->Find("new"), 0, read).has_value());
  Check(size == 0 || std::memcmp(read.data(), data, size) == 0);
  return 0;
}
