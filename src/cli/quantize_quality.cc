#include "cli/quantize_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/sha256.h"
#include "cli/generate.h"
#include "cli/output.h"
#include "cli/session.h"
#include "eval/builtin_text.h"
#include "eval/divergence.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

WindowOptions WindowsOf(const QuantizeFlags& own, const QualityText& text) {
  WindowOptions windows;
  windows.context = text.context;
  windows.chunks = own.chunks;
  return windows;
}

// One answer of 32 tokens to the text's beginning, but for its first token: the engine has a window
// that begins with it in its prefix cache.
Result<CardSpeed> MeasureSpeed(Engine& engine, std::span<const TokenId> ids) {
  constexpr int kAnswer = 32;
  if (ids.size() > 1) ids = ids.subspan(1);
  const int most = std::max(1, engine.plan().max_context - kAnswer);
  Request request;
  request.prompt.assign(ids.begin(), ids.begin() + std::min<ptrdiff_t>(most, std::ssize(ids)));
  request.max_tokens = kAnswer;
  request.ignore_end = true;
  NIBBLE_TRY(const Answer answer, Generate(engine, std::move(request), [](std::string_view) {}));
  const RunStats stats = MakeRunStats(engine, answer.finish.usage);
  return CardSpeed{.prefill = stats.prefill_tok_s, .decode = stats.decode_tok_s};
}

}  // namespace

Result<std::optional<QualityText>> ReadQualityText(const GlobalFlags& flags,
                                                   const QuantizeFlags& own,
                                                   const Tokenizer& tokenizer, int model_context) {
  if (own.no_quality) return std::nullopt;
  if (tokenizer.vocab_size() == 0) {
    return BadInput("IN has no tokenizer, so that no text can be measured: add --no-quality");
  }
  QualityText text = {.name = "built-in", .text = std::string(kBuiltinText)};
  text.context = flags.context > 0 ? flags.context : std::min(512, model_context);
  if (!own.text.empty()) {
    NIBBLE_TRY(text.text, ReadTextFile(own.text));
    NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.text, text.text));
    text.name = std::filesystem::path(own.text).filename().string();
  }
  NIBBLE_TRY(const std::vector<TokenId> ids, tokenizer.Encode(text.text));
  const auto cut = TextWindows::Cut(ids, WindowsOf(own, text), tokenizer, model_context);
  if (!cut) return Within(own.text.empty() ? "built-in text" : "--text", cut.error());
  return text;
}

Result<MeasuredQuality> MeasureQuality(const GlobalFlags& flags, const QuantizeFlags& own,
                                       const QualityText& text, const std::filesystem::path& source,
                                       const std::string& made) {
  SessionOptions options;
  DivergenceOptions divergence;
  divergence.windows = WindowsOf(own, text);
  options.max_context = divergence.windows.context;
  GlobalFlags quiet = flags;
  quiet.quiet = true;
  quiet.verbose = false;
  NIBBLE_TRY(const Session candidate, OpenSession(quiet, made, options));
  NIBBLE_TRY(const Session base, OpenSession(InFloats(quiet), source.string(), options));
  NIBBLE_TRY(const std::vector<TokenId> ids, candidate.engine->tokenizer().Encode(text.text));
  Progress progress("quality", !flags.quiet);
  divergence.progress = [&](int done, int total, double mean) {
    progress.Update(static_cast<double>(done) / total, fmt::format("divergence {:.5f}", mean));
  };
  NIBBLE_TRY(const DivergenceSamples samples,
             MeasureDivergence(*candidate.engine, *base.engine, ids, divergence));
  const DivergenceResult result = Summarise(samples);
  MeasuredQuality measured;
  measured.quality = CardQuality{.text = text.name,
                                 .text_sha256 = Sha256Hex(text.text),
                                 .context = divergence.windows.context,
                                 .tokens = result.tokens,
                                 .act = flags.act,
                                 .ppl = result.ppl.mean,
                                 .ppl_se = result.ppl.se,
                                 .ppl_source = result.ppl_base.mean,
                                 .kld = result.divergence.mean,
                                 .kld_se = result.divergence.se,
                                 .top1 = result.same_top.mean,
                                 .top1_se = result.same_top.se,
                                 .verdict = Verdict(result)};
  NIBBLE_TRY(measured.speed, MeasureSpeed(*candidate.engine, ids));
  return measured;
}

}  // namespace nibble::cli
