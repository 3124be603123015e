#include "container/hf_folder_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "container/json_text.h"
#include "container/output_file.h"
#include "container/safetensors.h"
#include "container/safetensors_writer.h"
#include "container/shard_name.h"

namespace nibble {

namespace fs = std::filesystem;

namespace {

void SyncFolder(const fs::path& folder) {
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// What may be replaced: nothing there, an empty folder, or a model's files and no folders.
Status CheckTarget(const fs::path& folder, bool replace) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return {};
  if (!fs::is_directory(folder, error)) {
    return BadInput("{}: expected a folder or nothing, found a file", folder.string());
  }
  if (fs::is_empty(folder, error)) return {};
  if (!replace) return BadInput("{}: exists already", folder.string());
  if (!fs::exists(folder / "config.json", error)) {
    return BadInput("{}: is no model folder (no config.json), and stays as it is", folder.string());
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    return BadInput("{}: holds the folder '{}', and stays as it is", folder.string(),
                    entry.path().filename().string());
  }
  return {};
}

uint64_t SizeOf(const HfTensor& tensor) {
  const SafetensorsDtype* dtype = FindSafetensorsDtype(tensor.dtype);
  uint64_t bits = dtype == nullptr ? 0 : static_cast<uint64_t>(dtype->bits);
  for (const uint64_t dim : tensor.shape) bits *= dim;
  return bits / 8;
}

}  // namespace

struct HfFolderWriter::Impl {
  fs::path folder;
  fs::path temporary;
  HfFolderOptions options;

  struct Shard {
    SafetensorsWriter writer;
    uint64_t bytes = 0;
    std::vector<std::string> names;
  };
  std::vector<Shard> shards;
  std::set<std::string, std::less<>> names;
  bool begun = false;
  size_t open_shard = 0;               // the one that Append fills
  std::optional<TensorStream> stream;  // of open_shard
  uint64_t left = 0;                   // bytes that it still wants

  ~Impl() {
    stream.reset();
    std::error_code ignored;
    if (!temporary.empty()) fs::remove_all(temporary, ignored);
  }

  fs::path ShardPath(size_t shard) const {
    if (shards.size() == 1) return temporary / "model.safetensors";
    const ShardName name{"model", static_cast<int>(shard) + 1, static_cast<int>(shards.size())};
    return temporary / name.File(name.number, ".safetensors");
  }
  Status OpenShard(size_t shard) {
    open_shard = shard;
    left = shards[shard].bytes;
    NIBBLE_TRY(stream, shards[shard].writer.Begin(ShardPath(shard)));
    return {};
  }
  // Ends full shards and opens the next one.
  Status NextShard() {
    while (left == 0 && open_shard + 1 < shards.size()) {
      NIBBLE_RETURN_IF_ERROR(stream->Finish());
      NIBBLE_RETURN_IF_ERROR(OpenShard(open_shard + 1));
    }
    return {};
  }
  Status WriteIndex() const;
  Status Rename();
};

HfFolderWriter::HfFolderWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HfFolderWriter::HfFolderWriter(HfFolderWriter&&) noexcept = default;
HfFolderWriter& HfFolderWriter::operator=(HfFolderWriter&&) noexcept = default;
HfFolderWriter::~HfFolderWriter() = default;

Result<HfFolderWriter> HfFolderWriter::Create(const fs::path& folder,
                                              const HfFolderOptions& options) {
  // "out/" names the folder out.
  fs::path plain = folder.lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();
  if (plain.empty()) return BadInput("expected the name of a folder, found '{}'", folder.string());
  NIBBLE_RETURN_IF_ERROR(CheckTarget(plain, options.replace));
  auto impl = std::make_unique<Impl>();
  impl->folder = plain;
  impl->options = options;
  std::string name = plain.string() + ".XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    return IoError("{}: cannot create a folder beside it: {}", plain.string(),
                   std::generic_category().message(errno));
  }
  impl->temporary = name;
  // mkdtemp makes the folder private; give it the rights any new folder gets.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(name.c_str(), 0777 & ~mask);
  return HfFolderWriter(std::move(impl));
}

Status HfFolderWriter::AddTensor(const HfTensor& tensor) {
  NIBBLE_CHECK(!impl_->begun);
  if (!impl_->names.insert(tensor.name).second) {
    return BadInput("two tensors named '{}'", tensor.name);
  }
  const uint64_t bytes = SizeOf(tensor);
  if (impl_->shards.empty() || (impl_->shards.back().bytes > 0 &&
                                impl_->shards.back().bytes + bytes > impl_->options.shard_bytes)) {
    impl_->shards.emplace_back();
    impl_->shards.back().writer.SetMetadata("format", "pt");  // transformers insists
  }
  Impl::Shard& shard = impl_->shards.back();
  NIBBLE_RETURN_IF_ERROR(shard.writer.AddTensor(tensor.name, tensor.dtype, tensor.shape));
  shard.names.push_back(tensor.name);
  shard.bytes += bytes;
  return {};
}

Status HfFolderWriter::Begin() {
  NIBBLE_CHECK(!impl_->begun);
  impl_->begun = true;
  if (impl_->shards.empty()) return BadInput("a model without tensors");
  return impl_->OpenShard(0);
}

Status HfFolderWriter::Append(std::span<const std::byte> bytes) {
  NIBBLE_CHECK(impl_->begun && impl_->stream);
  while (!bytes.empty()) {
    NIBBLE_RETURN_IF_ERROR(impl_->NextShard());
    if (impl_->left == 0) return BadInput("{} bytes more than the tensors have", bytes.size());
    const uint64_t piece = std::min<uint64_t>(bytes.size(), impl_->left);
    NIBBLE_RETURN_IF_ERROR(impl_->stream->Append(bytes.first(piece)));
    impl_->left -= piece;
    bytes = bytes.subspan(piece);
  }
  return {};
}

Status HfFolderWriter::WriteText(std::string_view name, std::string_view text) {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(impl_->temporary / name));
  NIBBLE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

Status HfFolderWriter::CopyFile(const fs::path& from) {
  const int descriptor = ::open(from.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return IoError("{}: cannot open: {}", from.string(), std::generic_category().message(errno));
  }
  const auto copy = [&]() -> Status {
    NIBBLE_TRY(OutputFile file, OutputFile::Create(impl_->temporary / from.filename()));
    std::vector<std::byte> piece(size_t{1} << 16);
    while (true) {
      const ssize_t count = ::read(descriptor, piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        return IoError("{}: cannot read: {}", from.string(),
                       std::generic_category().message(errno));
      }
      if (count == 0) break;
      NIBBLE_RETURN_IF_ERROR(file.Write(std::span(piece).first(static_cast<size_t>(count))));
    }
    return file.Commit();
  };
  const Status status = copy();
  ::close(descriptor);
  return status;
}

Status HfFolderWriter::Impl::WriteIndex() const {
  uint64_t total = 0;
  std::string map;
  for (size_t i = 0; i < shards.size(); ++i) {
    total += shards[i].bytes;
    const std::string file = ShardPath(i).filename().string();
    for (const std::string& name : shards[i].names) {
      map += map.empty() ? "\n    " : ",\n    ";
      AppendJsonString(name, map);
      map += ": ";
      AppendJsonString(file, map);
    }
  }
  NIBBLE_TRY(OutputFile index, OutputFile::Create(temporary / "model.safetensors.index.json"));
  NIBBLE_RETURN_IF_ERROR(index.Write(
      fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {{{}\n  }}\n}}\n",
                  total, map)));
  return index.Commit();
}

Status HfFolderWriter::Finish() {
  NIBBLE_CHECK(impl_->begun && impl_->stream);
  NIBBLE_RETURN_IF_ERROR(impl_->NextShard());
  if (impl_->left > 0) return BadInput("the tensors want {} bytes more", impl_->left);
  NIBBLE_RETURN_IF_ERROR(impl_->stream->Finish());
  impl_->stream.reset();
  if (impl_->shards.size() > 1) NIBBLE_RETURN_IF_ERROR(impl_->WriteIndex());
  SyncFolder(impl_->temporary);
  return {};
}

const fs::path& HfFolderWriter::temporary_path() const { return impl_->temporary; }

Status HfFolderWriter::Impl::Rename() {
  if (::rename(temporary.c_str(), folder.c_str()) == 0) {  // nothing there, or an empty folder
    temporary.clear();
    return {};
  }
  // The old folder takes the temporary name in the same instant, and goes with it.
  if (options.replace &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    return {};
  }
  return IoError("{}: cannot rename: {}", folder.string(), std::generic_category().message(errno));
}

Status HfFolderWriter::Commit() {
  NIBBLE_CHECK(impl_->begun && !impl_->stream);
  NIBBLE_RETURN_IF_ERROR(CheckTarget(impl_->folder, impl_->options.replace));
  NIBBLE_RETURN_IF_ERROR(impl_->Rename());
  SyncFolder(impl_->folder.parent_path());
  return {};
}

}  // namespace nibble
