#include "eval/logits_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/event_stream.h"

namespace nibble {
namespace {

// Appends rows to an open file; the first failure is remembered.
class RowWriter : public PositionLogitsSink {
 public:
  explicit RowWriter(FILE* file) : file_(file) {}

  void Rows(Position /*first*/, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows && error_ == 0; ++r) {
      const auto count = static_cast<size_t>(logits.cols);
      if (std::fwrite(logits.row(r), sizeof(float), count, file_) != count) error_ = errno;
    }
  }

  int error() const { return error_; }

 private:
  FILE* file_;
  int error_ = 0;
};

// NPY format 1.0: the header is padded so that the data begins at a multiple of 64.
std::string NpyHeader(size_t rows, int cols) {
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  constexpr size_t kPrefix = 10;
  dict.append(64 - (kPrefix + dict.size() + 1) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace

Status WriteLogits(Engine& engine, std::span<const TokenId> ids,
                   const std::filesystem::path& path) {
  const std::filesystem::path temporary = path.string() + ".tmp" + std::to_string(getpid());
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(temporary.c_str(), "wb"),
                                                   &std::fclose);
  if (!file) return IoError("{}: cannot write: {}", path.string(), std::strerror(errno));
  const auto give_up = [&](const Error& error) -> Status {
    std::remove(temporary.c_str());
    return std::unexpected(error);
  };

  const std::string header = NpyHeader(ids.size(), engine.config().vocabulary);
  std::fwrite(header.data(), 1, header.size(), file.get());
  RowWriter writer(file.get());
  Request request;
  request.prompt.assign(ids.begin(), ids.end());
  request.max_tokens = 0;
  request.logits = &writer;
  const auto stream = std::make_shared<EventStream>();
  const auto submitted = engine.Submit(std::move(request), stream);
  if (!submitted) return give_up(submitted.error());
  const std::vector<Answer> answers = Collect(*stream);
  if (answers.front().finish.error) return give_up(*answers.front().finish.error);

  int error = writer.error();
  if (error == 0 && (std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0 ||
                     std::rename(temporary.c_str(), path.c_str()) != 0)) {
    error = errno;
  }
  if (error != 0) {
    return give_up(
        {ErrorKind::kIo, fmt::format("{}: cannot write: {}", path.string(), std::strerror(error))});
  }
  return {};
}

}  // namespace nibble
