#include "cli/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/sha256.h"
#include "base/split_mix.h"
#include "cli/output.h"
#include "eval/builtin_text.h"
#include "eval/windows.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

// `wanted` of `count` windows in rising order: the first, or drawn by the seed.
std::vector<int> ChooseWindows(int count, int wanted, std::optional<uint64_t> seed) {
  std::vector<int> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (wanted == 0 || wanted >= count) return all;
  if (seed) {
    for (int i = 0; i < wanted; ++i) {  // Fisher and Yates
      const uint64_t draw = SplitMixAt(*seed, static_cast<uint64_t>(i));
      std::swap(all[static_cast<size_t>(i)],
                all[static_cast<size_t>(i) + draw % static_cast<uint64_t>(count - i)]);
    }
  }
  all.resize(static_cast<size_t>(wanted));
  std::ranges::sort(all);
  return all;
}

}  // namespace

Result<CalibrationText> ReadCalibrationText(const std::string& calib) {
  if (calib.empty() || calib == "built-in") {
    return CalibrationText{.name = "built-in", .text = std::string(kBuiltinText)};
  }
  NIBBLE_TRY(std::string text, ReadTextFile(calib));
  NIBBLE_RETURN_IF_ERROR(CheckUtf8(calib, text));
  return CalibrationText{.name = std::filesystem::path(calib).filename().string(),
                         .text = std::move(text)};
}

Result<Calibration> ReadCalibration(const GlobalFlags& flags, const ImportanceFlags& own,
                                    const Tokenizer& tokenizer, int model_context) {
  if (tokenizer.vocab_size() == 0) {
    return BadInput("--calib: IN has no tokenizer, so that no text can be computed");
  }
  NIBBLE_TRY(const CalibrationText text, ReadCalibrationText(own.calib));
  NIBBLE_TRY(const std::vector<TokenId> ids, tokenizer.Encode(text.text));
  const WindowOptions windows = {.protocol = PerplexityProtocol::kLlama,
                                 .context = std::min(own.length, model_context)};
  auto cut = TextWindows::Cut(ids, windows, tokenizer, model_context);
  if (!cut) return Within("--calib", cut.error());
  Calibration result;
  for (const int window : ChooseWindows(cut->count(), own.sequences, flags.seed)) {
    result.sequences.push_back(cut->Ids(window));
  }
  const auto count = static_cast<int>(result.sequences.size());
  if (count < own.sequences && !flags.quiet) {
    fmt::print(stderr, "note: the calibration text gives {} sequences of {} tokens, not {}\n",
               count, windows.context, own.sequences);
  }
  result.card = {.name = text.name,
                 .sha256 = Sha256Hex(text.text),
                 .sequences = count,
                 .length = windows.context,
                 .seed = flags.seed};
  return result;
}

}  // namespace nibble::cli
