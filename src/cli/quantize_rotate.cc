#include "cli/quantize_rotate.h"

#include <string>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "cli/quantize_job.h"
#include "quantize/rotated_copy.h"

namespace nibble::cli {
namespace {

Status CheckRotateFlags(const QuantizeFlags& own, const ModelFile& model) {
  if (!ToGguf(own)) return BadInput("--rotate: only for an OUT that ends in .gguf");
  if (!own.importance.imatrix.empty() || !own.importance.save.empty()) {
    return BadInput(
        "--rotate: --imatrix and --save-imatrix are about channels as they were; use "
        "--calib");
  }
  const Status can = CheckRotation(model);
  if (!can) return Within("--rotate", can.error());
  return CheckSourceBits(own, model);
}

}  // namespace

RotatedSource::RotatedSource(RotatedSource&& other) noexcept
    : path_(std::exchange(other.path_, {})), model_(std::exchange(other.model_, std::nullopt)) {}

RotatedSource::~RotatedSource() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

Result<RotatedSource> RotatedSource::Make(const GlobalFlags& flags, const QuantizeFlags& own,
                                          const ModelFile& model, ThreadPool& pool) {
  RotatedSource source;
  if (!own.rotate) return source;
  NIBBLE_RETURN_IF_ERROR(CheckRotateFlags(own, model));
  const std::filesystem::path path = own.out + ".nibble-rotated";
  Progress progress("rotate", !flags.quiet);
  RotatedCopyOptions options;
  options.seed = flags.seed.value_or(1);
  options.progress = [&](double done, std::string_view name) {
    progress.Update(done, std::string(name));
  };
  NIBBLE_RETURN_IF_ERROR(WriteRotatedCopy(model, path, options, pool));
  source.path_ = path;
  // A run that is taken up makes the same copy again, and must know it.
  std::error_code ignored;
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(model.files().front().path(), ignored), ignored);
  NIBBLE_TRY(source.model_, ModelFile::Open(path));
  return source;
}

}  // namespace nibble::cli
