#include "advise/quality_meter.h"

#include "advise/window_compare.h"
#include "base/check.h"
#include "kernels/kernel_table.h"
#include "model/config/model_file.h"
#include "model/decoder.h"
#include "platform/thread_pool.h"
#include "tokenizer/tokenizer.h"

namespace nibble {
namespace {

const KvFormats& ExactKv() {
  static const KvFormats formats{.k = KvFormat::kF32, .v = KvFormat::kF32};
  return formats;
}

}  // namespace

Result<QualityMeter> QualityMeter::Create(Setup setup) {
  const WindowOptions options = {.protocol = PerplexityProtocol::kLlama, .context = setup.context};
  NIBBLE_TRY(TextWindows windows, TextWindows::Cut(setup.ids, options, setup.tokenizer,
                                                   setup.base.config().context_length));
  // Moving a vector leaves its numbers where they are, so the windows stay valid.
  return QualityMeter(std::move(setup), std::move(windows));
}

Status QualityMeter::ComputeBase(int window) {
  if (HasBase(window)) return {};
  const int score_from = windows_.score_from();
  const int rows = setup_.context - 1 - score_from;
  const int vocabulary = setup_.base.config().vocabulary;
  const double bytes = 4.0 * rows * vocabulary;
  while (!bases_.empty() &&
         bytes * static_cast<double>(bases_.size() + 1) > setup_.most_kept_bytes) {
    bases_.erase(bases_.begin());
  }
  NIBBLE_TRY(BaseRows kept, BaseRows::Create(setup_.folder, rows, vocabulary));
  const LoadOptions options{.act = Act::kF32, .max_context = setup_.context};
  NIBBLE_TRY(const auto decoder, Decoder::Load(setup_.base, options, setup_.kernels, setup_.pool));
  const std::vector<TokenId> ids = windows_.Ids(window);
  KeepingSink sink(kept);
  NIBBLE_RETURN_IF_ERROR(RunWindow(
      *decoder,
      {.ids = ids, .score_from = score_from, .kv = ExactKv(), .keep_going = setup_.keep_going},
      sink));
  NIBBLE_RETURN_IF_ERROR(sink.status());
  bases_.emplace(window, std::move(kept));
  return {};
}

Result<QualitySums> QualityMeter::Measure(Decoder& candidate, const KvFormats& kv, int window) {
  const auto base = bases_.find(window);
  NIBBLE_CHECK(base != bases_.end());
  if (candidate.config().vocabulary != base->second.vocabulary()) {
    return BadInput("expected a vocabulary of {} tokens as the base has, found {}",
                    base->second.vocabulary(), candidate.config().vocabulary);
  }
  const std::vector<TokenId> ids = windows_.Ids(window);
  const int score_from = windows_.score_from();
  ComparingSink sink(setup_.kernels, base->second, ids, score_from);
  NIBBLE_RETURN_IF_ERROR(RunWindow(
      candidate, {.ids = ids, .score_from = score_from, .kv = kv, .keep_going = setup_.keep_going},
      sink));
  NIBBLE_RETURN_IF_ERROR(sink.status());
  QualitySums sums = SumsOf(sink.samples(), score_from, setup_.context - 1);
  sums.windows = 1;
  return sums;
}

}  // namespace nibble
