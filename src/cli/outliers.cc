#include "cli/outliers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/sha256.h"
#include "cli/calibration.h"
#include "cli/output.h"
#include "cli/session.h"
#include "eval/windows.h"
#include "model/config/model_file.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/tensor_view.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

std::string NameOf(const ActivationOutliers& one) {
  return one.layer < 0 ? one.linear : fmt::format("layer {} {}", one.layer, one.linear);
}

// What one scale would destroy, for people.
std::vector<std::string> Warnings(const Outliers& outliers) {
  std::vector<std::string> out;
  for (const TensorOutliers& tensor : outliers.weights) {
    if (!tensor.DestroyedByOneScale()) continue;
    out.push_back(fmt::format(
        "{}: one scale for the whole tensor would destroy it (int8 loses {:.0f}%, per channel "
        "{:.1f}%); largest weight {:.0f} times the mean magnitude, row {} column {}",
        tensor.name, 100 * tensor.errors.int8[0], 100 * tensor.errors.int8[1], tensor.ratio,
        tensor.outputs.worst[0].channel, tensor.inputs.worst[0].channel));
  }
  for (const ActivationOutliers& one : outliers.activations) {
    if (!one.DestroyedByOneScale()) continue;
    out.push_back(
        fmt::format("inputs of {}: one scale for all tokens would destroy them (int8 loses "
                    "{:.0f}%, per token {:.1f}%); channel {} reaches {:.0f} times the mean",
                    NameOf(one), 100 * one.errors.int8[0], 100 * one.errors.int8[1],
                    one.channels.worst[0].channel, one.ratio));
  }
  return out;
}

Json ErrorsJson(const SharingErrors& errors, std::string_view channel) {
  Json out;
  for (size_t i = 0; i < kScaleSharings; ++i) {
    const auto sharing = static_cast<ScaleSharing>(i);
    const std::string name(sharing == ScaleSharing::kChannel ? channel : nibble::NameOf(sharing));
    out["int8"][name] = errors.int8[i];
    out["int4"][name] = errors.int4[i];
  }
  return out;
}

Json RatiosJson(const ChannelRatios& ratios) {
  Json out = {{"median", ratios.median}, {"worst", Json::array()}};
  for (const ChannelRatio& one : ratios.worst) {
    out["worst"].push_back({{"channel", one.channel}, {"ratio", one.ratio}});
  }
  return out;
}

std::string Percents(const std::array<double, kScaleSharings>& errors) {
  std::string out;
  for (const double error : errors) out += fmt::format(" {:6.2f}", 100 * error);
  return out;
}

class NoLogits : public PositionLogitsSink {
 public:
  void Rows(Position /*first*/, MatrixView<float> /*logits*/) override {}
};

// Computes the text's first windows one after another. Returns their number.
Result<int> ComputeWindows(const GlobalFlags& flags, const ImportanceFlags& own, Engine& engine,
                           std::span<const TokenId> ids, int length) {
  const WindowOptions windows = {
      .protocol = PerplexityProtocol::kLlama, .context = length, .chunks = own.sequences};
  auto cut = TextWindows::Cut(ids, windows, engine.tokenizer(), engine.plan().max_context);
  if (!cut) return Within("--calib", cut.error());
  Progress progress("calibrate", !flags.quiet);
  NoLogits sink;
  for (int window = 0; window < cut->count(); ++window) {
    NIBBLE_TRY(const auto running,
               RunningWindow::Start(engine, cut->Ids(window), length - 1, sink));
    NIBBLE_RETURN_IF_ERROR(running->Finish());
    progress.Update((window + 1.0) / cut->count(),
                    fmt::format("sequence {} of {}", window + 1, cut->count()));
  }
  return cut->count();
}

// Computes own.calib ("built-in" or a file) with the model under --act f32 --kv f32; tap sees it.
// Errors: those of the file and the model, a text that is too short (both numbers).
Result<CalibrationRun> ComputeText(const GlobalFlags& flags, const ImportanceFlags& own,
                                   const std::filesystem::path& model, LinearTap& tap) {
  NIBBLE_TRY(const CalibrationText text, ReadCalibrationText(own.calib));
  CalibrationRun run;
  run.card = {.kind = "text", .name = text.name, .sha256 = Sha256Hex(text.text)};
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(model));
  run.length = std::min(own.length, file.config().context_length);
  SessionOptions options;
  options.max_context = run.length;
  options.tap = &tap;
  GlobalFlags exact = InFloats(flags);
  exact.quiet = true;
  exact.verbose = false;
  exact.context = 0;
  NIBBLE_TRY(const Session session, OpenSession(exact, model.string(), options));
  NIBBLE_TRY(const std::vector<TokenId> ids, session.engine->tokenizer().Encode(text.text));
  NIBBLE_TRY(run.sequences, ComputeWindows(flags, own, *session.engine, ids, run.length));
  run.card.tokens = int64_t{run.sequences} * run.length;
  return run;
}

}  // namespace

Result<Outliers> MeasureOutliers(const GlobalFlags& flags, const ModelFile& model,
                                 const ImportanceFlags& calibration) {
  Outliers out;
  NIBBLE_TRY(const std::vector<TensorView> tensors, GgufTensors(model));
  {
    ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
    Progress progress("outliers", !flags.quiet);
    double done = 0;
    for (const TensorView& tensor : tensors) {
      ++done;
      if (tensor.Shape().size() < 2) continue;
      progress.Update(done / static_cast<double>(tensors.size()), tensor.name);
      NIBBLE_TRY(TensorOutliers found, FindOutliers(tensor, pool));
      out.weights.push_back(std::move(found));
    }
  }
  if (calibration.calib.empty()) return out;
  ActivationTap tap;
  NIBBLE_TRY(out.calibration, ComputeText(flags, calibration, model.path(), tap));
  out.activations = tap.Finish();
  return out;
}

Json OutliersJson(const Outliers& outliers) {
  Json out = {{"typical", "mean magnitude"},
              {"error", "mean magnitude of the error over the mean magnitude"},
              {"weights", Json::array()},
              {"activations", nullptr},
              {"warnings", Warnings(outliers)}};
  for (const TensorOutliers& tensor : outliers.weights) {
    out["weights"].push_back({{"name", tensor.name},
                              {"typical", tensor.typical},
                              {"ratio", tensor.ratio},
                              {"outputs", RatiosJson(tensor.outputs)},
                              {"inputs", RatiosJson(tensor.inputs)},
                              {"errors", ErrorsJson(tensor.errors, "channel")},
                              {"destroyed_by_one_scale", tensor.DestroyedByOneScale()}});
  }
  if (!outliers.calibration) return out;
  out["calibration"] = {{"text", outliers.calibration->card.name},
                        {"sha256", outliers.calibration->card.sha256},
                        {"tokens", outliers.calibration->card.tokens}};
  out["activations"] = Json::array();
  for (const ActivationOutliers& one : outliers.activations) {
    out["activations"].push_back({{"layer", one.layer},
                                  {"linear", one.linear},
                                  {"tokens", one.tokens},
                                  {"typical", one.typical},
                                  {"ratio", one.ratio},
                                  {"channels", RatiosJson(one.channels)},
                                  {"channels_above_6", one.above_six},
                                  {"errors", ErrorsJson(one.errors, "token")},
                                  {"destroyed_by_one_scale", one.DestroyedByOneScale()}});
  }
  return out;
}

void PrintOutliers(const Outliers& outliers) {
  fmt::print(
      "ratio: largest magnitude over the mean one (5.4 among 65,536 normal values); rows, "
      "columns:\n"
      "the median channel's, and which channel has the largest. Errors: mean magnitude of the "
      "error\n"
      "over that of the weights in percent, by who shares a scale.\n\n");
  const auto head = [](const char* what, const char* channel, const char* worst) {
    const std::string sharings =
        fmt::format(" {:>6} {:>6} {:>6} {:>6} {:>6}", "tensor", channel, "128", "64", "32");
    fmt::print("{:<28} {:>7} {:<27} | int8{} | int4{}\n", what, "ratio", worst, sharings, sharings);
  };
  head("weights", "row", "rows         columns");
  for (const TensorOutliers& tensor : outliers.weights) {
    const auto channels = [](const ChannelRatios& ratios) {
      return ratios.worst.empty()
                 ? std::string()
                 : fmt::format("{:.1f} ({})", ratios.median, ratios.worst[0].channel);
    };
    fmt::print("{:<28} {:7.1f} {:<13}{:<14} |     {} |     {}{}\n", tensor.name, tensor.ratio,
               channels(tensor.outputs), channels(tensor.inputs), Percents(tensor.errors.int8),
               Percents(tensor.errors.int4), tensor.DestroyedByOneScale() ? " !" : "");
  }
  if (outliers.calibration) {
    fmt::print("\n");
    head("inputs", "token", "channels       6 or more");
    for (const ActivationOutliers& one : outliers.activations) {
      fmt::print("{:<28} {:7.1f} {:<15}{:<12} |     {} |     {}{}\n", NameOf(one), one.ratio,
                 one.channels.worst.empty() ? std::string()
                                            : fmt::format("{:.1f} ({})", one.channels.median,
                                                          one.channels.worst[0].channel),
                 one.above_six, Percents(one.errors.int8), Percents(one.errors.int4),
                 one.DestroyedByOneScale() ? " !" : "");
    }
    fmt::print("\n{} tokens of {}\n", outliers.calibration->card.tokens,
               outliers.calibration->card.name);
  }
  const std::vector<std::string> warnings = Warnings(outliers);
  if (!warnings.empty()) fmt::print("\n");
  for (const std::string& warning : warnings) fmt::print("WARNING {}\n", warning);
}

}  // namespace nibble::cli
