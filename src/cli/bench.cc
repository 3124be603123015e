#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/bench_output.h"
#include "cli/bench_serve.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "kernels/kernel_table.h"
#include "model/config/random_model.h"
#include "platform/thread_pool.h"

namespace nibble::cli {
namespace {

constexpr std::string_view kUsualMix = "q4_k_m";

struct BenchFlags {
  std::string model;
  std::string random;
  std::string to;  // empty: kUsualMix
  std::string output = "md";
  std::vector<int> prompts = {512};
  std::vector<int> gens = {128};
  std::vector<int> batches = {1};
  std::vector<int> depths = {0};
  std::vector<int> both;  // prompt and answer in one test: none, or two numbers
  int repetitions = 5;
  bool limits = false;
  bool attention_exactness = false;
  BenchServeFlags serve;
};

struct BenchSetup {
  ModelFile file;
  Act act;
  Isa isa;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Decoder> decoder;
  std::optional<size_t> kv_memory;  // most bytes of KV cache
};

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

Status CheckSource(const BenchFlags& own) {
  if (own.model.empty() && own.random.empty()) {
    return BadInput("give a MODEL, or --random NAME|config.json");
  }
  if (own.model.empty()) return {};
  if (!own.random.empty()) {
    return BadInput("expected a MODEL or --random, found both: '{}' and --random {}", own.model,
                    own.random);
  }
  if (own.to.empty()) return {};
  return BadInput(
      "--to {}: only the weights that --random makes have a choice of format; '{}' keeps its own",
      own.to, own.model);
}

Result<ModelFile> OpenModel(const GlobalFlags& flags, const BenchFlags& own) {
  NIBBLE_RETURN_IF_ERROR(CheckSource(own));
  if (!own.model.empty()) {
    NIBBLE_TRY(const std::filesystem::path path, FindModel(flags, own.model, false));
    return ModelFile::Open(path);
  }
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(own.to.empty() ? kUsualMix : own.to));
  std::string config;
  if (own.random.ends_with(".json")) {
    NIBBLE_TRY(config, ReadTextFile(own.random, size_t{4} << 20));
  } else {
    NIBBLE_TRY(config, ShapeByName(own.random));
  }
  const auto document = JsonDocument::Parse(std::move(config));
  if (!document) return Within(own.random, document.error());
  auto file = ModelFile::Random(document->root(), mix);
  if (!file) return Within(own.random, file.error());
  return file;
}

Result<std::unique_ptr<ThreadPool>> MakePool(const GlobalFlags& flags) {
  const int threads = flags.threads > 0 ? flags.threads : ReadTopology().threads;
  try {
    return std::make_unique<ThreadPool>(threads, NodesToUse(flags));
  } catch (const std::system_error& error) {
    return Fail(ErrorKind::kNoRoom, "{} threads cannot be started: {}", threads, error.what());
  }
}

Result<BenchSetup> SetUp(const GlobalFlags& flags, const BenchFlags& own,
                         const std::vector<BenchCase>& cases) {
  NIBBLE_TRY(const Act act, ParseAct(flags.act));
  NIBBLE_TRY(const std::optional<size_t> kv_memory, KvMemory(flags));
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  NIBBLE_TRY(ModelFile file, OpenModel(flags, own));
  NIBBLE_TRY(auto pool, MakePool(flags));
  BenchSetup setup{std::move(file), act, isa, std::move(pool), nullptr, kv_memory};
  LoadOptions options;
  options.act = act;
  options.max_context = flags.context;
  for (const BenchCase& test : cases) {
    options.max_rows = std::max(options.max_rows, test.batch);
  }
  NIBBLE_TRY(setup.decoder, Decoder::Load(setup.file, options, KernelsFor(isa), *setup.pool));
  return setup;
}

// The formats of --kv f16,f32,….
Result<std::vector<KvFormats>> KvList(const GlobalFlags& flags) {
  std::vector<KvFormats> list;
  for (size_t begin = 0; begin <= flags.kv.size();) {
    const size_t comma = std::min(flags.kv.find(',', begin), flags.kv.size());
    GlobalFlags one = flags;
    one.kv = flags.kv.substr(begin, comma - begin);
    NIBBLE_TRY(const KvFormats formats, ParseKvFormats(one));
    list.push_back(formats);
    begin = comma + 1;
  }
  return list;
}

// The KV cache is new for each case; what does not fit is refused before anything is measured.
Status CheckRoom(const BenchSetup& setup, const KvFormats& formats, const BenchCase& test) {
  const int context = setup.decoder->max_context();
  if (test.TokensPerSequence() > context) {
    const int of_model = setup.file.config().context_length;
    return BadInput("{} tokens per sequence asked for, but {} {}", test.TokensPerSequence(),
                    context < of_model ? "--ctx allows" : "the model has room for", context);
  }
  NIBBLE_TRY(const std::vector<KvGroup> groups, MakeKvGroups(setup.file.config(), formats));
  const double needed = ModelBench::KvBytes(groups, test);
  const auto text = [&] {
    return fmt::format("batch {} with {} tokens each needs {} of KV cache", test.batch,
                       test.TokensPerSequence(), FormatBytes(needed));
  };
  if (setup.kv_memory && needed > static_cast<double>(*setup.kv_memory)) {
    return Fail(ErrorKind::kNoRoom, "{}, and --kv-memory allows {}", text(),
                FormatBytes(static_cast<double>(*setup.kv_memory)));
  }
  const auto available = static_cast<double>(ReadTopology().memory_available);
  if (needed <= available) return {};
  return Fail(ErrorKind::kNoRoom, "{}, and {} are free", text(), FormatBytes(available));
}

std::string ModelName(const BenchFlags& own) {
  if (own.model.empty()) {
    return own.random + " " + (own.to.empty() ? std::string(kUsualMix) : own.to);
  }
  return std::filesystem::path(own.model).filename().string();
}

// Instead of speed. With a model: its heads; without: four on one K/V head.
Status RunExactness(const GlobalFlags& flags, const BenchFlags& own, const std::string& output) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  NIBBLE_TRY(const KvFormats formats, ParseKvFormats(flags));
  NIBBLE_TRY(const Act act, ParseAct(flags.act));
  AttentionExactnessOptions options{.k = formats.k, .v = formats.v, .act = act};
  if (!own.model.empty() || !own.random.empty() || !own.to.empty()) {
    NIBBLE_TRY(const ModelFile file, OpenModel(flags, own));
    options.heads = file.config().heads;
    options.kv_heads = file.config().kv_heads;
    options.head_dim = file.config().head_dim;
  }
  NIBBLE_TRY(const auto pool, MakePool(flags));
  NIBBLE_TRY(const auto entries,
             MeasureAttentionExactness(KernelsFor(isa), *pool, kExactnessPositions, options));
  PrintExactness(output, entries);
  return {};
}

Status RunBench(const GlobalFlags& flags, const BenchFlags& own) {
  const std::string output = flags.json ? "json" : own.output;
  if (own.attention_exactness && own.limits) {
    return BadInput("--attention-exactness measures no speed that --limits could be beside");
  }
  if (own.serve.any() && (own.attention_exactness || own.limits)) {
    return BadInput(
        "--{} belongs to the decoder's own speed, not to --serve-trace, "
        "--shared-prefix or --interference",
        own.limits ? "limits" : "attention-exactness");
  }
  if (own.attention_exactness) return RunExactness(flags, own, output);
  if (own.serve.any()) {
    NIBBLE_TRY(const ModelFile file, OpenModel(flags, own));
    return RunBenchServe(flags, own.serve, file, ModelName(own), output);
  }
  const std::vector<BenchCase> cases = Cases(own);
  if (cases.empty()) return BadInput("nothing to measure: every -p and -n is 0");
  NIBBLE_TRY(const auto kvs, KvList(flags));
  NIBBLE_TRY(BenchSetup setup, SetUp(flags, own, cases));
  for (const KvFormats& formats : kvs) {
    for (const BenchCase& test : cases) NIBBLE_RETURN_IF_ERROR(CheckRoom(setup, formats, test));
  }
  const ModelWork work = ComputeWork(setup.file, setup.act);
  const BenchHeader header{.model = ModelName(own),
                           .parameters = setup.file.config().parameters,
                           .weight_bytes_per_step = setup.decoder->WeightBytesPerStep(),
                           .act = work.act() == Act::kInt8 ? "int8" : "f32",
                           .threads = setup.pool->size(),
                           .isa = setup.isa};
  BenchPrinter printer(output, header);
  std::optional<LimitLoops> loops;
  if (own.limits) {
    NIBBLE_TRY(loops, LimitLoops::Create(*setup.pool, setup.isa));
    NIBBLE_TRY(const MachineLimits limits, MeasureLimits(*loops));
    printer.Limits(limits);
  }
  for (const KvFormats& formats : kvs) {
    for (const BenchCase& test : cases) {
      NIBBLE_TRY(ModelBench bench, ModelBench::Create(*setup.decoder, KernelsFor(setup.isa), work,
                                                      {.formats = formats,
                                                       .act = setup.act,
                                                       .batch = test.batch,
                                                       .tokens = test.TokensPerSequence(),
                                                       .nodes = setup.pool->nodes()}));
      const BenchRow row = bench.Run(test, own.repetitions);
      std::optional<LimitFractions> fractions;
      if (loops) fractions = MeasureFractions(bench, *loops);
      printer.Row(BenchRowJson(header, formats.Name(), row, fractions));
    }
  }
  printer.Finish();
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
      ->default_str(std::string(kUsualMix));
  const auto list = [&](const char* name, std::vector<int>& values, const char* help, int least,
                        int most = 1 << 20) {
    command->add_option(name, values, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(least, most))
        ->capture_default_str();
  };
  list("-p,--prompt", own->prompts, "Prompt lengths; 0: none", 0);
  list("-n,--gen", own->gens, "Answer lengths; 0: none", 0);
  list("-b,--batch", own->batches, "Sequences at the same time", 1, LoadOptions::kMaxRows);
  list("-d,--depth", own->depths, "Tokens that each sequence already holds", 0);
  command->add_option("--pg", own->both, "PROMPT,GEN: a prompt and its answer in one test")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("-r,--repetitions", own->repetitions, "Measured rounds after one warm-up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag(
      "--limits", own->limits,
      "Measure read bandwidth and multiply peaks first, and again beside each row; rows "
      "state their fraction");
  command->add_flag("--attention-exactness", own->attention_exactness,
                    "Instead: attention's error beside its rounding bound, and its workspace");
  command->add_option("-o,--output", own->output, "md, csv, json or jsonl")
      ->check(CLI::IsMember({"md", "csv", "json", "jsonl"}))
      ->capture_default_str();
  AddBenchServeFlags(*command, own->serve);
  command->footer(
      "Examples:\n"
      "  nibble bench smollm2-135m --limits\n"
      "  nibble bench model.gguf -p 512 -n 128 -b 1,4,16 -d 0,4096 --kv f16,f32\n"
      "  nibble bench --random tinyllama-1.1b --to q4_k_m -p 256 -n 48 -b 1,16 --limits --json\n"
      "  nibble bench --attention-exactness\n"
      "  nibble bench model.gguf --serve-trace trace.csv --rate 2 --max-seqs 32\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunBench(flags, *own); }; });
}

}  // namespace nibble::cli
