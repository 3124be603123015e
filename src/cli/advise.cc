#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <future>

#include "advise/adviser.h"
#include "base/sha256.h"
#include "cli/advise_output.h"
#include "cli/commands.h"
#include "cli/generate.h"
#include "cli/here_device.h"
#include "cli/number_range.h"
#include "cli/output.h"
#include "cli/output_paths.h"
#include "cli/plan_sources.h"
#include "cli/quantize_job.h"
#include "cli/session.h"
#include "container/output_file.h"
#include "cost/nearest.h"
#include "engine/model_tokenizer.h"
#include "eval/builtin_text.h"
#include "fetch/paths.h"
#include "fetch/store.h"
#include "kernels/kernel_table.h"
#include "model/decoder.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/machine.h"

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kUsableHere = 0.9;  // of the memory that is free
constexpr double kUsableThere = 0.9;

// A file or folder on disk, else a name, which is pulled; where there is none, the nearest are
// offered.
Result<fs::path> FindAdvised(const GlobalFlags& flags, const std::string& name) {
  auto path = FindModel(flags, name, true);
  if (path || path.error().kind != ErrorKind::kBadInput) return path;
  if (name.find_first_of("/.") != name.npos) return path;
  std::vector<std::string> known;
  for (const NamedModel& one : NamedModels()) known.emplace_back(one.name);
  for (const StoredModel& one : ListModels()) known.push_back(one.name);
  const std::vector<std::string_view> views(known.begin(), known.end());
  return BadInput("{}; the nearest names are {}", path.error().message, NearestNames(name, views));
}

Result<DeviceShape> CalibratedOrQuick(const GlobalFlags& flags) {
  NIBBLE_TRY(const Isa isa, ChooseIsa());
  const int threads = flags.threads > 0 ? flags.threads : ReadTopology().threads;
  std::error_code error;
  if (!fs::exists(HereDeviceFile(isa, threads), error)) {
    if (!flags.quiet) {
      fmt::print(stderr,
                 "this machine is not calibrated: nibble calibrate --quick, about 20 s beside the "
                 "budget\n");
    }
    NIBBLE_TRY([[maybe_unused]] const CalibratedFile file, RunCalibration(flags, {.quick = true}));
  }
  return CalibratedHere(flags);
}

Result<AdviceLimits> LimitsOf(const AdviseFlags& own, const DeviceShape* device) {
  AdviceLimits limits;
  limits.objective = own.objective == "memory"    ? AdviceObjective::kMemory
                     : own.objective == "quality" ? AdviceObjective::kQuality
                                                  : AdviceObjective::kSpeed;
  limits.quality_loss = own.max_quality_loss;
  limits.concurrency = own.concurrency;
  limits.memory = device != nullptr
                      ? kUsableThere * device->memory.value * own.devices
                      : kUsableHere * static_cast<double>(ReadTopology().memory_available);
  if (own.memory.empty()) return limits;
  const auto size = ParseSize(own.memory);
  if (!size) return Within("--memory", size.error());
  if (*size == 0) return BadInput("--memory: expected a size above 0, found '{}'", own.memory);
  limits.memory = static_cast<double>(*size);
  return limits;
}

Result<AdviseEmit> EmitOf(const AdviseFlags& own) {
  if (own.emit == "vllm" && own.device == "here") {
    return BadInput("--emit vllm: name the --device that vLLM will run on");
  }
  if (own.emit == "nibble" && own.device != "here") {
    return BadInput("--emit nibble: nibble computes on processors; leave --device {} out",
                    own.device);
  }
  return own.device == "here" ? AdviseEmit::kNibble : AdviseEmit::kVllm;
}

Result<int> ContextOf(const AdviseFlags& own, const ModelConfig& config) {
  constexpr int kUsualContext = 2048;
  if (own.context == 0) return std::min(kUsualContext, config.context_length);
  if (own.context <= config.context_length) return own.context;
  return BadInput("--context: {} tokens were asked for and the model has {}", own.context,
                  config.context_length);
}

Result<std::string> TextOf(const AdviseFlags& own) {
  if (own.text.empty()) return std::string(kBuiltinText);
  NIBBLE_TRY(std::string text, ReadTextFile(own.text));
  NIBBLE_RETURN_IF_ERROR(CheckUtf8(own.text, text));
  return text;
}

// Nothing in --write's folder is replaced.
Status CheckWriteFolder(const AdviseFlags& own, const fs::path& model,
                        const std::vector<WeightsCandidate>& weights, AdviseEmit emit) {
  if (own.write.empty()) return {};
  std::error_code error;
  if (fs::exists(own.write, error) && !fs::is_directory(own.write, error)) {
    return BadInput("--write: expected a folder, found the file '{}'", own.write);
  }
  for (const WeightsCandidate& one : weights) {
    const fs::path out = fs::path(own.write) / CandidateName(model, one.to, emit);
    if (one.mix && fs::exists(out, error)) {
      return BadInput("--write: '{}' exists; remove it or name another folder", out.string());
    }
  }
  return MakeFolder(own.write);
}

// Hash of what measurements depend on beside what the journal's lines say.
std::string JournalKey(const GlobalFlags& flags, const std::string& model_hash,
                       const std::string& text, const DeviceShape& here) {
  const nibble::Calibration& calibration = *here.calibration;
  return Sha256Hex(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", NIBBLE_VERSION, model_hash,
                               Sha256Hex(text), calibration.machine.Describe(),
                               IsaName(calibration.isa), calibration.threads, flags.act,
                               flags.kv_rotate));
}

Result<AdviseJournal> OpenJournal(const std::string& key) {
  const fs::path folder = CacheFolder() / "nibble" / "advise";
  NIBBLE_RETURN_IF_ERROR(MakeFolder(folder));
  return AdviseJournal::Open(folder / (key.substr(0, 16) + ".jsonl"), key);
}

std::optional<CardQuality> QualityOf(const Adviser& adviser, const AdviceRow& row,
                                     const std::string& text, const std::string& act) {
  const QualitySums* sums = adviser.grid().QualityOf(row.place);
  if (sums == nullptr) return std::nullopt;
  const MeanError ppl = sums->Perplexity();
  const MeanError kld = sums->Divergence();
  const MeanError top = sums->SameTop();
  return CardQuality{.text = text,
                     .text_sha256 = Sha256Hex(adviser.setup().text),
                     .context = adviser.window_tokens(),
                     .tokens = sums->tokens,
                     .act = act,
                     .ppl = ppl.mean,
                     .ppl_se = ppl.se,
                     .ppl_source = sums->BasePerplexity(),
                     .kld = kld.mean,
                     .kld_se = kld.se,
                     .top1 = top.mean,
                     .top1_se = top.se,
                     .verdict = fmt::format("measured by advise with a {} cache", row.kv)};
}

// One call of the command.
class AdviseRun {
 public:
  AdviseRun(const GlobalFlags& flags, const AdviseFlags& own)
      : flags_(flags), own_(own), screen_(flags.json || flags.quiet, started_) {}

  Status Run() {
    NIBBLE_RETURN_IF_ERROR(Prepare());
    NIBBLE_TRY(const ScratchFolder scratch, ScratchFolder::Create(fs::temp_directory_path()));
    NIBBLE_TRY(auto setup, SetUp(scratch.path()));
    NIBBLE_TRY(const auto adviser, Adviser::Create(std::move(setup)));
    const Status done = adviser->Run();
    // Whatever ended it, the table so far is there.
    NIBBLE_RETURN_IF_ERROR(Finish(*adviser, done.has_value()));
    if (done || done.error().kind != ErrorKind::kCancelled) return done;
    return Fail(ErrorKind::kCancelled,
                "stopped; what was measured is kept: the same command goes on");
  }

 private:
  Status Prepare() {
    NIBBLE_TRY(emit_, EmitOf(own_));
    const NamedPath outputs[] = {{"--report", own_.report}};
    const NamedPath inputs[] = {{"MODEL", own_.model}, {"--text", own_.text}};
    NIBBLE_RETURN_IF_ERROR(CheckOutputPaths(outputs, inputs));
    NIBBLE_TRY(text_, TextOf(own_));
    if (own_.device != "here") {
      NIBBLE_TRY(device_, FindDevice(flags_, own_.device));
    }
    NIBBLE_TRY(limits_, LimitsOf(own_, device_ ? &*device_ : nullptr));
    NIBBLE_TRY(act_, ParseAct(flags_.act));
    NIBBLE_TRY(path_, FindAdvised(flags_, own_.model));
    NIBBLE_TRY(model_, ModelFile::Open(path_));
    NIBBLE_TRY(tokenizer_, LoadModelTokenizer(*model_));
    if (tokenizer_->vocab_size() == 0) {
      return BadInput("{}: has no tokenizer, so that no text can be measured", own_.model);
    }
    shape_ = ShapeOfFile(*model_, path_.stem().string());
    NIBBLE_TRY(context_, ContextOf(own_, model_->config()));
    NIBBLE_TRY(weights_, WeightsCandidates(own_, emit_, *model_, *shape_));
    NIBBLE_TRY(kvs_, KvCandidates(flags_, own_, emit_, model_->config()));
    NIBBLE_RETURN_IF_ERROR(CheckWriteFolder(own_, path_, weights_, emit_));
    hash_ = std::async(std::launch::async, [this] { return HashModel(*model_); });
    NIBBLE_TRY(DeviceShape here, CalibratedOrQuick(flags_));
    here_ = std::make_shared<const DeviceShape>(std::move(here));
    NIBBLE_TRY(pool_, MakeThreads(flags_));
    NIBBLE_TRY(source_hash_, hash_.get());
    NIBBLE_TRY(journal_, OpenJournal(JournalKey(flags_, source_hash_, text_, *here_)));
    if (!journal_->complaint().empty() && !flags_.quiet) {
      fmt::print(stderr, "note: {}: begun again\n", journal_->complaint());
    }
    return {};
  }

  CandidateMaker Maker() const {
    return {.flags = flags_,
            .own = own_,
            .in = path_,
            .model = *model_,
            .tokenizer = *tokenizer_,
            .pool = *pool_,
            .source_hash = source_hash_};
  }

  Result<AdviserSetup> SetUp(const fs::path& scratch) {
    NIBBLE_TRY(const Isa isa, ChooseIsa());
    AdviserSetup setup{
        .model = *model_,
        .tokenizer = *tokenizer_,
        .text = text_,
        .shape = *shape_,
        .here = here_,
        .device = {.shape = device_ ? *device_ : *here_, .here = !device_, .devices = own_.devices},
        .load = {.concurrency = own_.concurrency,
                 .context = context_,
                 .memory = limits_.memory,
                 .options = {}},
        .limits = limits_,
        .weights = weights_,
        .kvs = kvs_,
        .act = act_,
        .pool = *pool_,
        .kernels = KernelsFor(isa),
        .folder = scratch,
        .deadline = MonotonicSeconds() + own_.budget_s,  // behind the calibration
        .kv_target = own_.kv_target,
        .make = {},
        .keep_going = {},
        .announce = {},
        .changed = {},
        .journal = &*journal_};
    GlobalFlags plain = flags_;
    plain.kv = "f16";  // each row brings its own
    plain.kv_k.clear();
    plain.kv_v.clear();
    NIBBLE_TRY(setup.load.options, MakeEngineOptions(plain));
    setup.make = [this, scratch](const WeightsCandidate& one) {
      return Maker().Make(one, scratch / CandidateName(path_, one.to, emit_), std::nullopt);
    };
    setup.keep_going = [this] {
      stopped_ = stopped_ || InterruptGuard::Take();
      return !stopped_;
    };
    setup.announce = [this](const std::string& what, double seconds) {
      if (!flags_.quiet) screen_.Announce(what, seconds);
    };
    setup.changed = [this](const std::vector<AdviceRow>& rows) {
      AdviceReport report;
      report.limits = limits_;
      report.rows = rows;
      report.choice = ChooseRow(rows, limits_);
      screen_.Changed(report);
    };
    return setup;
  }

  Status Finish(const Adviser& adviser, bool complete) {
    screen_.Close();
    AdviceReport report = ReportOf(adviser, own_);
    AddNotes(report);
    AdviseCommands commands;
    std::optional<fs::path> written;
    if (report.choice) {
      const AdviceRow& row = report.rows[*report.choice];
      const fs::path folder = own_.write.empty() ? fs::path() : fs::path(own_.write);
      const WeightsCandidate made =
          MadeAs(*model_, weights_[static_cast<size_t>(row.place.weights)], emit_);
      const fs::path out = folder / CandidateName(path_, made.to, emit_);
      if (complete && !own_.write.empty() && made.to != "own") {
        NIBBLE_TRY(written,
                   Maker().Make(made, out, QualityOf(adviser, row, report.text, flags_.act)));
      }
      NIBBLE_TRY(commands, CommandsOf(adviser, row, flags_, own_, emit_, out, written.has_value()));
      for (const std::string* one : {&commands.quantize, &commands.serve}) {
        if (!one->empty()) report.commands.push_back(*one);
      }
    }
    if (!own_.report.empty()) {
      NIBBLE_TRY(OutputFile file, OutputFile::Create(own_.report));
      NIBBLE_RETURN_IF_ERROR(file.Write(AdviceHtml(report)));
      NIBBLE_RETURN_IF_ERROR(file.Commit());
    }
    if (flags_.json) {
      PrintJsonLine(AdviceJson(report, commands, written));
    } else {
      Print(report, commands, written);
    }
    return {};
  }

  void AddNotes(AdviceReport& report) const {
    if (weights_.size() == 1 && own_.weights.empty()) {
      report.notes.push_back(
          "the weights stay as they are: below 8 bits, quantising again would lose more than it "
          "says");
    }
    if (own_.text.empty()) report.notes.push_back("quality is of a built-in text, not your text");
    if (device_) {
      report.notes.push_back(fmt::format(
          "speed on {} is a bound from its data sheet (docs/plan.md), not a measurement; quality "
          "is that of nibble's own arithmetic, with a scale per page where vLLM's fp8 cache has "
          "one per tensor",
          device_->name));
    }
  }

  void Print(const AdviceReport& report, const AdviseCommands& commands,
             const std::optional<fs::path>& written) const {
    fmt::print("{}, {}\n", AdviceTitle(report), LimitsText(report.limits));
    fmt::print("quality on {}, windows of {} tokens; ~ predicted, else measured\n\n", report.text,
               report.window);
    fmt::print("{}\n{}\n", AdviceTable(report), report.explanation);
    if (const std::string kv = KvText(report); !kv.empty()) fmt::print("\n{}", kv);
    for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
    if (written) fmt::print("\nwrote {}\n", written->string());
    if (!commands.serve.empty()) fmt::print("\n");
    if (!commands.quantize.empty()) fmt::print("{}\n", commands.quantize);
    if (!commands.serve.empty()) fmt::print("{}\n", commands.serve);
    if (!commands.check.empty()) fmt::print("\nto check the divergence:\n{}\n", commands.check);
  }

  const GlobalFlags& flags_;
  const AdviseFlags& own_;
  double started_ = MonotonicSeconds();
  InterruptGuard guard_;
  AdviceScreen screen_;
  bool stopped_ = false;
  AdviseEmit emit_ = AdviseEmit::kNibble;
  std::string text_;
  std::optional<DeviceShape> device_;
  AdviceLimits limits_;
  Act act_ = Act::kInt8;
  fs::path path_;
  std::optional<ModelFile> model_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ModelShape> shape_;
  int context_ = 0;
  std::vector<WeightsCandidate> weights_;
  std::vector<KvChoice> kvs_;
  std::future<Result<std::string>> hash_;
  std::string source_hash_;
  std::shared_ptr<const DeviceShape> here_;
  std::unique_ptr<ThreadPool> pool_;
  std::optional<AdviseJournal> journal_;
};

}  // namespace

void AddAdviseCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "advise", "Which weights, which cache, which batch: measured on your text and this machine");
  auto own = std::make_shared<AdviseFlags>();
  command->add_option("MODEL", own->model, "Float or 8-bit model: file, folder or name")
      ->required();
  command
      ->add_option("--text", own->text,
                   "Your text, for the quality; default: a built-in one, which is not yours")
      ->type_name("FILE");
  command->add_option("--concurrency", own->concurrency, "Sequences at the same time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--context", own->context,
                   "Tokens of each, prompt and answer; default: 2048, or the model's own")
      ->check(CLI::Range(2, 1 << 24));
  command
      ->add_option("--memory", own->memory,
                   "Most memory, such as 400MB; default: 90% of what is free (or of the device)")
      ->type_name("SIZE");
  command
      ->add_option("--max-quality-loss", own->max_quality_loss,
                   "Most divergence from the model, mean nats a token")
      ->check(NumberFrom(1e-9, 1e6))
      ->type_name("NATS")
      ->capture_default_str();
  command->add_option("--objective", own->objective, "What is wanted within these limits")
      ->check(CLI::IsMember({"speed", "memory", "quality"}))
      ->capture_default_str();
  command->add_option("--report", own->report, "Write a page with every row and plots")
      ->type_name("OUT.html");
  command->add_option("--write", own->write, "Write the chosen model into this folder")
      ->type_name("FOLDER");
  command->add_option("--budget-s", own->budget_s, "Seconds that measuring may take")
      ->check(NumberFrom(1.0, 1e6))
      ->capture_default_str();
  command
      ->add_option("--weights", own->weights,
                   "Formats of the weights to look at; default: the usual ones that are smaller")
      ->type_name("L");
  command
      ->add_option("--kv-target", own->kv_target,
                   "Most divergence that a cache may cost beside f16: those that cost more are "
                   "measured layer by layer, and come again with --kv-skip-layers")
      ->check(NumberFrom(1e-9, 1e6))
      ->type_name("NATS");
  command
      ->add_option("--device", own->device,
                   "Where it is to run: here, or a device of plan, whose speed is predicted")
      ->type_name("here|NAME|SPEC.json")
      ->capture_default_str();
  command->add_option("--devices", own->devices, "Devices that share the model")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option(
          "--emit", own->emit,
          "What is written and served: nibble, or vllm (compressed-tensors) for a --device")
      ->check(CLI::IsMember({"nibble", "vllm"}));
  command->footer(
      "--kv takes a list of caches to look at; default: all. Measurements are kept: the same\n"
      "command again goes on where the last one ended. docs/advise.md says how it decides.\n"
      "Examples:\n"
      "  nibble advise smollm2-135m-f16 --text my.txt --concurrency 8 --context 2048 --memory "
      "400MB\n"
      "  nibble advise model/ --text my.txt --objective memory --max-quality-loss 0.02 --write "
      "out/\n"
      "  nibble advise model/ --text my.txt --device h100 --emit vllm --concurrency 64\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  CLI::App& app = context.app;
  command->callback([own, &flags, &action, &app] {
    own->kv_given = app.get_option("--kv")->count() > 0;
    action = [own, &flags] { return AdviseRun(flags, *own).Run(); };
  });
}

}  // namespace nibble::cli
