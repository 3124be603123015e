#include "eval/logits_file.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "container/output_file.h"
#include "engine/engine.h"
#include "engine/event_stream.h"

namespace nibble {
namespace {

// Appends rows to a file; the first failure is remembered.
class RowWriter : public PositionLogitsSink {
 public:
  explicit RowWriter(OutputFile& file) : file_(file) {}

  void Rows(Position /*first*/, MatrixView<float> logits) override {
    for (int r = 0; r < logits.rows && status_; ++r) {
      status_ = file_.Write(std::as_bytes(logits.row_span(r)));
    }
  }

  const Status& status() const { return status_; }

 private:
  OutputFile& file_;
  Status status_;
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
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  NIBBLE_RETURN_IF_ERROR(file.Write(NpyHeader(ids.size(), engine.config().vocabulary)));
  RowWriter writer(file);
  Request request;
  request.prompt.assign(ids.begin(), ids.end());
  request.max_tokens = 0;
  request.logits = &writer;
  const auto stream = std::make_shared<EventStream>();
  const auto submitted = engine.Submit(std::move(request), stream);
  if (!submitted) return std::unexpected(submitted.error());
  const std::vector<Answer> answers = Collect(*stream);
  const FinishEvent& finish = answers.front().finish;
  if (finish.error) return std::unexpected(*finish.error);
  if (finish.reason == FinishReason::kCancelled) {
    return Fail(ErrorKind::kCancelled, "evaluation cancelled");
  }
  NIBBLE_RETURN_IF_ERROR(writer.status());
  return file.Commit();
}

}  // namespace nibble
