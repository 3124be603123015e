#include "cli/advise_output.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/output.h"
#include "platform/clock.h"

namespace nibble::cli {
namespace {

constexpr double kFirstTable = 25;  // seconds, after which the table is shown as it is

Json FigureOrNull(const Figure& figure) { return figure.known() ? Json(figure.value) : Json(); }
Json ErrorOrNull(const Figure& figure) { return figure.known() ? Json(figure.error) : Json(); }

Json RowOut(const AdviceRow& row) {
  Json out = {{"weights", row.weights},
              {"kv", row.kv},
              {"kv_skip_layers", row.skip_layers},
              {"batch", row.batch}};
  out["tok_s"] = row.tok_s();
  out["tok_s_error"] = row.tok_s_error();
  out["ttft_s"] = FigureOrNull(row.ttft_s);
  out["ttft_s_error"] = ErrorOrNull(row.ttft_s);
  out["tpot_s"] = FigureOrNull(row.tpot_s);
  out["tpot_s_error"] = ErrorOrNull(row.tpot_s);
  out["memory_bytes"] = FigureOrNull(row.memory);
  out["kld"] = FigureOrNull(row.kld);
  out["kld_se"] = ErrorOrNull(row.kld);
  out["ppl"] = FigureOrNull(row.ppl);
  out["ppl_se"] = ErrorOrNull(row.ppl);
  out["source"] = {{"speed", FigureSourceName(row.tpot_s.source)},
                   {"memory", FigureSourceName(row.memory.source)},
                   {"quality", FigureSourceName(row.kld.source)}};
  out["pareto"] = row.pareto;
  return out;
}

Json DepthsOut(const KvDepthReport& report) {
  Json out = {{"kv", report.kv}, {"weights", report.weights}, {"depths", Json::array()}};
  for (const KvDepthReport::Depth& depth : report.depths) {
    out["depths"].push_back({{"from", depth.from},
                             {"to", depth.to},
                             {"kld", depth.divergence.mean},
                             {"kld_se", depth.divergence.se},
                             {"kld_f16", depth.plain.mean},
                             {"kld_f16_se", depth.plain.se}});
  }
  return out;
}

Json LayersOut(const KvLayerReport& report) {
  Json out = {{"kv", report.kv},
              {"kld", report.costs.all.mean},
              {"target", report.target},
              {"skip_layers", report.skip.layers},
              {"expected_kld", report.skip.expected},
              {"left_kld", report.skip.measured.mean},
              {"left_kld_se", report.skip.measured.se},
              {"layers", Json::array()}};
  for (const KvLayerCost& cost : report.costs.layers) {
    out["layers"].push_back({{"layer", cost.layer},
                             {"keys_kld", cost.keys.mean},
                             {"keys_kld_se", cost.keys.se},
                             {"values_kld", cost.values.mean},
                             {"values_kld_se", cost.values.se}});
  }
  return out;
}

// Of each cache, with the weights that show it over most text.
std::vector<KvDepthReport> DepthsOf(const Adviser& adviser) {
  const AdviceGrid& grid = adviser.grid();
  const int from = adviser.window_tokens() / 2;
  const int span = adviser.window_tokens() - 1 - from;
  std::vector<KvDepthReport> out;
  for (int kv = 0; kv < static_cast<int>(grid.kvs.size()); ++kv) {
    std::pair<QualitySums, QualitySums> best;
    int weights = 0;
    for (int w = 0; w < static_cast<int>(grid.weights.size()); ++w) {
      auto common = grid.Common({w, kv}, {w, 0});
      if (common.first.tokens <= best.first.tokens) continue;
      best = std::move(common);
      weights = w;
    }
    if (best.first.tokens == 0) continue;
    KvDepthReport report{.kv = grid.kvs[static_cast<size_t>(kv)].name,
                         .weights = grid.weights[static_cast<size_t>(weights)].name,
                         .depths = {}};
    for (int i = 0; i < QualitySums::kDepths; ++i) {
      report.depths.push_back({.from = from + span * i / QualitySums::kDepths,
                               .to = from + span * (i + 1) / QualitySums::kDepths,
                               .divergence = best.first.DivergenceAt(i),
                               .plain = best.second.DivergenceAt(i)});
    }
    out.push_back(std::move(report));
  }
  return out;
}

std::string QuoteShell(const std::string& text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("/._-+:=@,%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// --act, --kv and its layers, as every command of ours takes them.
std::string ArithmeticFlags(const GlobalFlags& flags, const AdviceRow& row,
                            const KvFormats& formats) {
  std::string text;
  if (flags.act != "int8") text += " --act " + flags.act;
  if (formats.k == formats.v) {
    text += fmt::format(" --kv {}", row.kv);
  } else {
    text += fmt::format(" --kv-k {} --kv-v {}", TraitsOf(formats.k).name, TraitsOf(formats.v).name);
  }
  std::string layers;
  for (const int layer : row.skip_layers)
    layers += fmt::format("{}{}", layers.empty() ? "" : ",", layer);
  if (!layers.empty()) text += " --kv-skip-layers " + layers;
  if (!flags.kv_rotate.empty()) text += " --kv-rotate " + flags.kv_rotate;
  return text;
}

std::string VllmServe(const AdviceRow& row, const Adviser& adviser, const std::string& out) {
  const ServedLoad& load = adviser.setup().load;
  std::string text = fmt::format("vllm serve {} --max-model-len {} --max-num-seqs {}", out,
                                 load.context, row.batch);
  if (row.kv == "fp8") text += " --kv-cache-dtype fp8";
  if (adviser.setup().device.devices > 1) {
    text += fmt::format(" --tensor-parallel-size {}", adviser.setup().device.devices);
  }
  return text;
}

}  // namespace

Result<AdviseCommands> CommandsOf(const Adviser& adviser, const AdviceRow& row,
                                  const GlobalFlags& flags, const AdviseFlags& own, AdviseEmit emit,
                                  const std::filesystem::path& out, bool written) {
  AdviseCommands commands;
  const bool vllm = emit == AdviseEmit::kVllm;
  const std::string to =
      MadeAs(adviser.setup().model, adviser.setup().weights[static_cast<size_t>(row.place.weights)],
             emit)
          .to;
  const bool as_it_is = to == "own";
  const std::string model = QuoteShell(own.model);
  const std::string made = as_it_is ? model : QuoteShell(out.string());
  NIBBLE_TRY(const EngineOptions options, adviser.OptionsOf(row));
  const std::string arithmetic = ArithmeticFlags(flags, row, options.kv);
  const QualitySums* sums = adviser.grid().QualityOf(row.place);
  const int chunks = sums == nullptr ? 1 : sums->windows;
  const std::string threads = flags.threads > 0 ? fmt::format(" -t {}", flags.threads) : "";
  const std::string windows = fmt::format(" -c {} --chunks {}", adviser.window_tokens(), chunks);
  const std::string text = own.text.empty() ? "" : " --text " + QuoteShell(own.text);
  if (!as_it_is && !written) {
    commands.quantize = fmt::format("nibble quantize {} {} --to {}{}{}{}{}", model, made, to, text,
                                    windows, arithmetic, threads);
  }
  if (vllm) {
    commands.serve = VllmServe(row, adviser, made);
  } else {
    commands.serve =
        fmt::format("nibble serve {}{} -c {} --max-seqs {} --kv-memory {}{}", made, arithmetic,
                    options.max_context, row.batch, options.kv_memory, threads);
  }
  if (!text.empty() && row.kld.measured()) {
    commands.check = fmt::format("nibble eval {} --base {}{}{}{}{}", made, model, text, windows,
                                 arithmetic, threads);
  }
  return commands;
}

AdviceReport ReportOf(const Adviser& adviser, const AdviseFlags& own) {
  const AdviserSetup& setup = adviser.setup();
  AdviceReport report;
  report.model = std::filesystem::path(own.model).filename().string();
  report.device = setup.device.here ? "this machine" : setup.device.shape.name;
  if (setup.device.devices > 1) {
    report.device = fmt::format("{} × {}", setup.device.devices, report.device);
  }
  report.text = own.text.empty() ? "built-in text (not your text)"
                                 : std::filesystem::path(own.text).filename().string();
  report.context = setup.load.context;
  report.window = adviser.window_tokens();
  report.windows = adviser.windows();
  report.limits = setup.limits;
  report.rows = adviser.rows();
  report.choice = ChooseRow(report.rows, report.limits);
  report.explanation = ExplainChoice(report.rows, report.choice, report.limits);
  report.kv_depths = DepthsOf(adviser);
  for (const KvLayerAdvice& one : adviser.kv_layers()) {
    report.kv_layers.push_back(
        {.kv = one.kv, .costs = one.costs, .skip = one.skip, .target = setup.kv_target});
  }
  report.notes = adviser.refused();
  return report;
}

Json AdviceJson(const AdviceReport& report, const AdviseCommands& commands,
                const std::optional<std::filesystem::path>& written) {
  Json out = {{"model", report.model}, {"device", report.device}, {"text", report.text}};
  out["context"] = report.context;
  out["concurrency"] = report.limits.concurrency;
  out["window_tokens"] = report.window;
  out["rows"] = Json::array();
  for (const AdviceRow& row : report.rows) out["rows"].push_back(RowOut(row));
  out["choice"] = Json();
  if (report.choice) {
    out["choice"] = RowOut(report.rows[*report.choice]);
    out["choice"]["row"] = *report.choice;
  }
  out["explanation"] = report.explanation;
  const auto text = [](const std::string& command) {
    return command.empty() ? Json() : Json(command);
  };
  out["quantize_command"] = text(commands.quantize);
  out["serve_command"] = text(commands.serve);
  out["check_command"] = text(commands.check);
  out["written"] = written ? Json(written->string()) : Json();
  out["kv_depths"] = Json::array();
  for (const KvDepthReport& one : report.kv_depths) out["kv_depths"].push_back(DepthsOut(one));
  out["kv_layers"] = Json::array();
  for (const KvLayerReport& one : report.kv_layers) out["kv_layers"].push_back(LayersOut(one));
  out["notes"] = report.notes;
  return out;
}

AdviceScreen::AdviceScreen(bool silent, double started)
    : silent_(silent), terminal_(IsTerminal(stdout)), started_(started) {}

void AdviceScreen::Draw(const std::string& text) {
  if (lines_ > 0) fmt::print("\033[{}A\033[J", lines_);
  lines_ = static_cast<int>(std::ranges::count(text, '\n'));
  fmt::print("{}", text);
  FlushOutput();
}

void AdviceScreen::Changed(const AdviceReport& report) {
  table_ = AdviceTable(report);
  if (silent_) return;
  if (terminal_) {
    Draw(table_);
    return;
  }
  const bool whole =
      std::ranges::all_of(report.rows, [](const AdviceRow& row) { return row.kld.known(); });
  const double seconds = MonotonicSeconds() - started_;
  if (!predicted_shown_) {
    fmt::print("predicted, after {:.0f} s (~ predicted, else measured):\n{}\n", seconds, table_);
    predicted_shown_ = true;
  } else if (!usable_shown_ && (whole || seconds > kFirstTable)) {
    fmt::print("after {:.0f} s:\n{}\n", seconds, table_);
    usable_shown_ = true;
  }
  FlushOutput();
}

void AdviceScreen::Announce(const std::string& what, double seconds) {
  const std::string line = fmt::format("{}: about {:.1f} s", what, seconds);
  if (silent_) {
    fmt::print(stderr, "{}\n", line);
  } else if (terminal_) {
    Draw(table_ + line + "\n");
  } else {
    fmt::print("{}\n", line);
    FlushOutput();
  }
}

void AdviceScreen::Close() {
  if (!silent_ && terminal_) Draw("");
}

}  // namespace nibble::cli
