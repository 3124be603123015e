#pragma once

#include <expected>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/calibration.h"
#include "cli/globals.h"
#include "cli/quantize_flags.h"
#include "model/config/model_file.h"
#include "platform/thread_pool.h"
#include "quantize/calibrated.h"
#include "quantize/gguf_output.h"
#include "quantize/recipe.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {

// What one call of `quantize` works on.
struct QuantizeJob {
  const GlobalFlags& flags;
  const QuantizeFlags& own;
  const std::filesystem::path& in;
  const ModelFile& model;
  const Tokenizer& tokenizer;
  Recipe recipe;
  ThreadPool& pool;
};

// An output that is complete and read back, but has not its name yet.
struct MadeModel {
  std::string path;  // where it can be opened until then
  std::string to;    // format, mix or layout
  std::string grid;  // bits and what shares a scale, where flags decide that
  uint64_t bytes = 0;
  uint64_t weight_bytes = 0;
  std::vector<TensorReport> tensors;
  std::optional<CardImportance> importance;
  std::optional<CardCalibration> calibration;
  std::vector<std::string> notes;
  std::function<Status(const std::string& card)> commit;
};

bool ToGguf(const QuantizeFlags& own);
// Either of the two below, with its notes on standard error.
Result<MadeModel> MakeModel(const QuantizeJob& job);
// What the file is to say of itself, but for the source, its quality and times.
Result<Card> MakeCard(const QuantizeJob& job, const MadeModel& made);
// Of the files that hold a model's weights, one after the other.
Result<std::string> HashModel(const ModelFile& model);
Result<MadeModel> QuantizeToGguf(const QuantizeJob& job);
Result<MadeModel> QuantizeToFolder(const QuantizeJob& job);

// The recipe that the flags describe. Errors: flags that do not go with the method.
Result<Recipe> RecipeOf(const QuantizeFlags& own, bool folder);

// Refuses a source below 8 bits a weight without --requantize; says of one of 8 bits what it is.
Status CheckSourceBits(const QuantizeFlags& own, const ModelFile& model);
// A note on standard error.
void PrintSourceIsQuantised();
// Whether --to names a layout of folders.
Status CheckLayoutName(const QuantizeFlags& own);

// All that decides the bytes of the tensors, for a run that takes up another's: `more` beside the
// source and the method.
std::string StoreKey(const QuantizeJob& job, std::string_view more);
// The calibration's part of that.
std::string CalibrationKey(const CardCalibration& calibration);
// Opens the store and says what is there already.
Result<TensorStore> OpenStore(const QuantizeJob& job, std::string_view key);
// Where the disk is full, what is finished stays for another try.
std::unexpected<Error> KeptFor(Error error, TensorStore& store);

// Runs a calibrated method, and says how far it is.
Result<CalibratedResult> RunCalibrated(const QuantizeJob& job, const Calibration& calibration,
                                       LinearTarget& target);

}  // namespace nibble::cli
