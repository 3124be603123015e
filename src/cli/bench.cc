#include "advise/bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "advise/limits.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/session.h"
#include "kernels/kernel_table.h"
#include "model/config/random_model.h"
#include "platform/thread_pool.h"

namespace nibble::cli {
namespace {

struct BenchFlags {
  std::string model;
  std::string random;
  std::string to = "q4_k_m";
  std::string output = "md";
  std::vector<int> prompts = {512};
  std::vector<int> gens = {128};
  std::vector<int> batches = {1};
  std::vector<int> depths = {0};
  std::vector<int> both;  // prompt and answer in one test: none, or two numbers
  int repetitions = 5;
  bool limits = false;
};

struct BenchSetup {
  ModelFile file;
  Act act;
  Isa isa;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Decoder> decoder;
};

std::string_view TestName(BenchTest test) {
  switch (test) {
    case BenchTest::kPrompt:
      return "pp";
    case BenchTest::kGenerate:
      return "tg";
    default:
      return "pg";
  }
}

// As llama-bench: every prompt length, every answer length; each at every batch and depth.
std::vector<BenchCase> Cases(const BenchFlags& own) {
  std::vector<BenchCase> cases;
  for (const int depth : own.depths) {
    for (const int batch : own.batches) {
      for (const int prompt : own.prompts) {
        if (prompt > 0) cases.push_back({BenchTest::kPrompt, prompt, 0, batch, depth});
      }
      for (const int gen : own.gens) {
        if (gen > 0) cases.push_back({BenchTest::kGenerate, 0, gen, batch, depth});
      }
      if (!own.both.empty()) {
        cases.push_back({BenchTest::kBoth, own.both[0], own.both[1], batch, depth});
      }
    }
  }
  return cases;
}

Result<ModelFile> OpenModel(const GlobalFlags& flags, const BenchFlags& own) {
  if (own.model.empty() == own.random.empty()) {
    return BadInput("give a MODEL, or --random NAME|config.json");
  }
  if (!own.model.empty()) {
    NIBBLE_TRY(const std::filesystem::path path, FindModel(flags, own.model, false));
    return ModelFile::Open(path);
  }
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(own.to));
  std::string config;
  if (own.random.ends_with(".json")) {
    NIBBLE_TRY(config, ReadTextFile(own.random, size_t{4} << 20));
  } else {
    NIBBLE_TRY(config, ShapeByName(own.random));
  }
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::move(config)));
  auto file = ModelFile::Random(document.root(), mix);
  if (!file) return Within(own.random, file.error());
  return file;
}

Result<BenchSetup> SetUp(const GlobalFlags& flags, const BenchFlags& own,
                         const std::vector<BenchCase>& cases) {
  NIBBLE_TRY(const Act act, ParseAct(flags.act));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  NIBBLE_TRY(ModelFile file, OpenModel(flags, own));
  const int threads = flags.threads > 0 ? flags.threads : ReadTopology().threads;
  BenchSetup setup{std::move(file), act, isa, std::make_unique<ThreadPool>(threads), nullptr};
  LoadOptions options;
  options.act = act;
  for (const BenchCase& test : cases) {
    options.max_rows = std::max(options.max_rows, test.batch);
  }
  NIBBLE_TRY(setup.decoder, Decoder::Load(setup.file, options, KernelsFor(isa), *setup.pool));
  return setup;
}

Json LimitsJson(const MachineLimits& limits) {
  Json caches = Json::array();
  for (const CacheBandwidth& cache : limits.cache_bandwidth) {
    caches.push_back({{"bytes", cache.bytes}, {"bandwidth", cache.bandwidth}});
  }
  return {{"read_bandwidth", limits.read_bandwidth},
          {"cache_bandwidth", caches},
          {"int4_macs", limits.int4_macs},
          {"int8_macs", limits.int8_macs},
          {"f32_macs", limits.f32_macs},
          {"barrier_s", limits.barrier_s},
          {"isa", IsaName(limits.isa)}};
}

// What a row came to; fractions only when the limits were measured in the same run.
Json RowJson(const GlobalFlags& flags, const BenchSetup& setup, const std::string& kv,
             const BenchRow& row, const std::optional<MachineLimits>& limits) {
  const double median = row.MedianSeconds();
  const auto [fastest, slowest] = std::ranges::minmax(row.seconds);
  const auto tokens = static_cast<double>(row.tokens);
  Json json = {
      {"test", TestName(row.test.test)},
      {"prompt", row.test.prompt},
      {"gen", row.test.gen},
      {"batch", row.test.batch},
      {"depth", row.test.depth},
      {"act", flags.act},
      {"kv", kv},
      {"threads", setup.pool->size()},
      {"tok_s", tokens / median},
      {"tok_s_min", tokens / slowest},
      {"tok_s_max", tokens / fastest},
      // Of a prompt the time to its end, of an answer the time of one step.
      {"latency_s",
       row.test.test == BenchTest::kPrompt ? median : median / static_cast<double>(row.steps)}};
  json["bandwidth_fraction"] = nullptr;
  json["compute_fraction"] = nullptr;
  if (limits) {
    const double compute_s = row.macs.int4 / limits->int4_macs + row.macs.int8 / limits->int8_macs +
                             row.macs.f32 / limits->f32_macs;
    json["bandwidth_fraction"] = row.bytes / median / limits->read_bandwidth;
    json["compute_fraction"] = compute_s / median;
  }
  return json;
}

std::string Fraction(const Json& value) {
  return value.is_null() ? "-" : fmt::format("{:.0f}%", 100 * value.get<double>());
}

void PrintLimits(const MachineLimits& limits) {
  fmt::print(
      "limits: read {}/s; {:.0f} G int4, {:.0f} G int8, {:.0f} G f32 multiply-adds/s; region "
      "{:.2f} µs; {}\n",
      FormatBytes(limits.read_bandwidth), limits.int4_macs / 1e9, limits.int8_macs / 1e9,
      limits.f32_macs / 1e9, limits.barrier_s * 1e6, IsaName(limits.isa));
}

void PrintMarkdownHeader() {
  fmt::print(
      "| test | batch | depth | act | kv | threads | tokens/s (min … max) | latency | "
      "bandwidth | compute |\n|---|---|---|---|---|---|---|---|---|---|\n");
}

void PrintMarkdownRow(const Json& row) {
  const bool prompt = row["test"] == "pp";
  const int length = row["prompt"].get<int>() + row["gen"].get<int>();
  fmt::print("| {}{} | {} | {} | {} | {} | {} | {} ({} … {}) | {:.2f} ms{} | {} | {} |\n",
             row["test"].get<std::string>(), length, row["batch"].get<int>(),
             row["depth"].get<int>(), row["act"].get<std::string>(), row["kv"].get<std::string>(),
             row["threads"].get<int>(), FormatRate(row["tok_s"].get<double>()),
             FormatRate(row["tok_s_min"].get<double>()), FormatRate(row["tok_s_max"].get<double>()),
             row["latency_s"].get<double>() * 1e3, prompt ? "" : " a step",
             Fraction(row["bandwidth_fraction"]), Fraction(row["compute_fraction"]));
  std::fflush(stdout);
}

void PrintCsvRow(const Json& row, bool header) {
  std::string line;
  for (const auto& [key, value] : row.items()) {
    const std::string cell = value.is_string() ? value.get<std::string>() : value.dump();
    line += (line.empty() ? "" : ",") + (header ? key : cell);
  }
  fmt::print("{}\n", line);
}

Result<std::vector<std::pair<std::string, KvFormats>>> KvList(const GlobalFlags& flags) {
  std::vector<std::pair<std::string, KvFormats>> list;
  std::string rest = flags.kv;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    GlobalFlags one = flags;
    one.kv = rest.substr(0, comma);
    NIBBLE_TRY(const KvFormats formats, ParseKvFormats(one));
    list.emplace_back(one.kv, formats);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return list;
}

// The KV cache is new for each case; what does not fit is refused before anything is measured.
Status CheckRoom(const BenchSetup& setup, KvFormats formats, const BenchCase& test) {
  const int context = setup.decoder->max_context();
  if (test.TokensPerSequence() > context) {
    return BadInput("{} tokens per sequence asked for, but the model has room for {}",
                    test.TokensPerSequence(), context);
  }
  const double needed = ModelBench::KvBytes(setup.file.config(), formats, test);
  const auto available = static_cast<double>(ReadTopology().memory_available);
  if (needed <= available) return {};
  return Fail(ErrorKind::kNoRoom,
              "batch {} with {} tokens each needs {} of KV cache, and {} are free", test.batch,
              test.TokensPerSequence(), FormatBytes(needed), FormatBytes(available));
}

Status RunBench(const GlobalFlags& flags, const BenchFlags& own) {
  const std::string output = flags.json ? "json" : own.output;
  const std::vector<BenchCase> cases = Cases(own);
  if (cases.empty()) return BadInput("nothing to measure: every -p and -n is 0");
  NIBBLE_TRY(const auto kvs, KvList(flags));
  NIBBLE_TRY(BenchSetup setup, SetUp(flags, own, cases));
  for (const auto& [name, formats] : kvs) {
    for (const BenchCase& test : cases) NIBBLE_RETURN_IF_ERROR(CheckRoom(setup, formats, test));
  }
  std::optional<MachineLimits> limits;
  if (own.limits) {
    NIBBLE_TRY(limits, MeasureLimits(*setup.pool, setup.isa));
  }
  if (output == "md") {
    if (limits) PrintLimits(*limits);
    PrintMarkdownHeader();
  }
  const ModelWork work = ComputeWork(setup.file, setup.act);
  Json rows = Json::array();
  for (const auto& [name, formats] : kvs) {
    for (const BenchCase& test : cases) {
      NIBBLE_TRY(ModelBench bench,
                 ModelBench::Create(*setup.decoder, KernelsFor(setup.isa), work, formats,
                                    test.batch, test.TokensPerSequence()));
      const BenchRow row = bench.Run(test, own.repetitions);
      const Json json = RowJson(flags, setup, name, row, limits);
      if (output == "md") PrintMarkdownRow(json);
      if (output == "csv") {
        if (rows.empty()) PrintCsvRow(json, true);
        PrintCsvRow(json, false);
      }
      if (output == "jsonl") PrintJsonLine(json);
      rows.push_back(json);
    }
  }
  if (output == "json") {
    Json out;
    if (limits) out["limits"] = LimitsJson(*limits);
    out["model"] = own.model.empty() ? own.random + " " + own.to : own.model;
    out["rows"] = rows;
    PrintJsonLine(out);
  }
  return {};
}

}  // namespace

void AddBenchCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "bench", "Prompt and generation speed, batched and at depth: throughput and latency");
  auto own = std::make_shared<BenchFlags>();
  command->add_option("MODEL", own->model, "Model file, folder or name");
  command->add_option("--random", own->random,
                      "A shape by name, or a config.json, with random weights in place of a file");
  command->add_option("--to", own->to, "Format or mix of the random weights")
      ->capture_default_str();
  const auto list = [&](const char* name, std::vector<int>& values, const char* help, int least) {
    command->add_option(name, values, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(least, 1 << 20))
        ->capture_default_str();
  };
  list("-p,--prompt", own->prompts, "Prompt lengths; 0: none", 0);
  list("-n,--gen", own->gens, "Answer lengths; 0: none", 0);
  list("-b,--batch", own->batches, "Sequences at the same time", 1);
  list("-d,--depth", own->depths, "Tokens that each sequence already holds", 0);
  command->add_option("--pg", own->both, "PROMPT,GEN: a prompt and its answer in one test")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("-r,--repetitions", own->repetitions, "Measured rounds after one warm-up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--limits", own->limits,
                    "Measure read bandwidth and multiply peaks first; rows state their fraction");
  command->add_option("-o,--output", own->output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  nibble bench smollm2-135m --limits\n"
      "  nibble bench model.gguf -p 512 -n 128 -b 1,4,16 -d 0,4096 --kv f16,f32\n"
      "  nibble bench --random tinyllama-1.1b --to q4_k_m -p 256 -n 48 -b 1,16 --limits --json\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunBench(flags, *own); }; });
}

}  // namespace nibble::cli
