// The demonstration GPT in fewer bits: integer weights with one scale a tensor or one a channel,
// simulated (rounded weights, float arithmetic) and with integer kernels, and 2 to 8 bits.
//
//   shakespeare MODEL TEXT [--windows N] [--json] [FOLDER]
//
// MODEL: models/shakespeare. TEXT: examples/shakespeare/input.txt, whose last tenth the model has
// not seen. Losses over N windows of 256 characters (default 64). FOLDER gets loss.svg and
// errors.svg. shakespeare.py gives the same numbers with NumPy alone.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "container/gguf_writer.h"
#include "engine/engine.h"
#include "engine/event_stream.h"
#include "engine/model_tokenizer.h"
#include "eval/perplexity.h"
#include "examples/plot/bars.h"
#include "format/legacy_quants.h"
#include "format/small_float.h"
#include "model/config/gguf_config.h"
#include "model/config/model_file.h"
#include "platform/clock.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/gguf_tokenizer.h"
#include "quantize/rtn.h"
#include "quantize/tensor_view.h"
#include "tokenizer/tokenizer.h"

namespace nibble::examples {
namespace {

namespace fs = std::filesystem;

struct Recipe {
  int bits = 0;  // 0: the model's own floats
  Granularity granularity = Granularity::kChannel;
  bool integer = false;  // integer arithmetic, 8 bits only

  std::string Name() const {
    if (bits == 0) return "float";
    return fmt::format("{}/{}/{}", bits, granularity == Granularity::kTensor ? "tensor" : "channel",
                       integer ? "integer" : "simulated");
  }
};

struct Outcome {
  std::map<std::string, double> errors;  // of each matrix: mean |ŵ − w| / mean |w|
  double loss = 0;                       // nats a character
  double tokens_per_second = 0;
  std::string text;  // behind "ROMEO:"
};

// A matrix of integers as Q8_0 blocks, each with the scale of its row: what the kernels for 8-bit
// weights and 8-bit activations read.
std::vector<std::byte> AsBlocks(const GroupedMatrix& matrix) {
  const size_t blocks = matrix.codes.size() / 32;
  std::vector<std::byte> out(blocks * sizeof(BlockQ8_0));
  for (size_t i = 0; i < blocks; ++i) {
    BlockQ8_0 block;
    block.d = F32ToF16(matrix.scales[i * 32 / static_cast<size_t>(matrix.cols)]);
    for (size_t j = 0; j < 32; ++j) {
      block.qs[j] = static_cast<int8_t>(int{matrix.codes[i * 32 + j]} - 128);
    }
    std::memcpy(out.data() + i * sizeof block, &block, sizeof block);
  }
  return out;
}

class Experiment {
 public:
  Experiment(const ModelFile& model, const Tokenizer& tokenizer, std::span<const TokenId> ids,
             fs::path scratch)
      : model_(model), tokenizer_(tokenizer), ids_(ids), scratch_(std::move(scratch)) {}

  Result<Outcome> Run(const Recipe& recipe, int windows);

 private:
  Status Write(const Recipe& recipe, std::map<std::string, double>& errors);
  Status Measure(const Recipe& recipe, int windows, Outcome& outcome);
  // The layers' linears; embeddings (the output matrix too) and vectors stay floats.
  static bool IsLinear(const TensorView& view) {
    return view.Shape().size() == 2 && view.name.starts_with("blk.");
  }

  const ModelFile& model_;
  const Tokenizer& tokenizer_;
  std::span<const TokenId> ids_;
  fs::path scratch_;
  ThreadPool pool_{1};
};

Status Experiment::Write(const Recipe& recipe, std::map<std::string, double>& errors) {
  NIBBLE_TRY(const std::vector<TensorView> views, GgufTensors(model_));
  GgufWriter writer;
  WriteGgufConfig(model_.config(), writer);
  NIBBLE_RETURN_IF_ERROR(WriteGgufTokenizer(model_.path(), tokenizer_, model_.config().vocabulary,
                                            "ROMEO: what", scratch_ / "tokenizer.gguf", writer));
  for (const TensorView& view : views) {
    const bool blocks = recipe.integer && IsLinear(view);
    NIBBLE_RETURN_IF_ERROR(
        writer.AddTensor(view.name, blocks ? Format::kQ8_0 : Format::kF32, view.Shape()));
  }
  NIBBLE_TRY(TensorStream out, writer.Begin(scratch_ / "model.gguf"));
  for (const TensorView& view : views) {
    const size_t cols = view.cols();
    std::vector<float> w(view.elements());
    for (uint64_t row = 0; row < view.rows(); ++row) view.ReadRow(row, w.data() + row * cols);
    if (recipe.bits > 0 && IsLinear(view)) {
      const GridSpec spec = {.bits = recipe.bits,
                             .granularity = recipe.granularity,
                             .group = static_cast<int>(cols),
                             .symmetric = true,
                             .convention = GridConvention::kSmoothQuant,
                             .scale_type = ScaleType::kF16};
      const int rows = static_cast<int>(view.rows());
      NIBBLE_TRY(const GroupedMatrix matrix,
                 QuantizeRtn(DenseView<const float>(w.data(), rows, int(cols)), spec, pool_));
      std::vector<float> back(w.size());
      Dequantize(matrix, DenseView(back.data(), rows, int(cols)), pool_);
      double error = 0, magnitude = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        error += std::fabs(double{back[i]} - w[i]);
        magnitude += std::fabs(double{w[i]});
      }
      errors[view.name] = error / magnitude;
      if (recipe.integer) {
        NIBBLE_RETURN_IF_ERROR(out.Append(AsBlocks(matrix)));
        continue;
      }
      w = std::move(back);
    }
    NIBBLE_RETURN_IF_ERROR(out.Append(std::as_bytes(std::span(w))));
  }
  NIBBLE_TRY(OutputFile file, out.Complete());
  return file.Commit();
}

Status Experiment::Measure(const Recipe& recipe, int windows, Outcome& outcome) {
  EngineOptions options;
  options.act = recipe.integer ? Act::kInt8 : Act::kF32;
  options.kv = {.k = KvFormat::kF32, .v = KvFormat::kF32};
  options.max_context = model_.config().context_length;
  options.step_budget = false;
  options.threads = 1;  // at this size others would wait more than work
  NIBBLE_TRY(const auto engine, Engine::Create(scratch_ / "model.gguf", options));
  PerplexityOptions perplexity;
  perplexity.windows = {
      .protocol = PerplexityProtocol::kGptq, .context = options.max_context, .chunks = windows};
  NIBBLE_TRY(const PerplexityResult result, MeasurePerplexity(*engine, ids_, perplexity));
  outcome.loss = std::log(result.perplexity);

  NIBBLE_TRY(std::vector<TokenId> prompt, tokenizer_.Encode("ROMEO:"));
  Request request{.prompt = std::move(prompt), .max_tokens = 160};
  request.sampling = {.temperature = 0.8F, .seed = 2};
  auto stream = std::make_shared<EventStream>();
  const double start = MonotonicSeconds();
  NIBBLE_RETURN_IF_ERROR(engine->Submit(std::move(request), stream));
  const std::vector<Answer> answers = Collect(*stream);
  if (answers[0].finish.error) return std::unexpected(*answers[0].finish.error);
  outcome.tokens_per_second =
      answers[0].finish.usage.generated_tokens / (MonotonicSeconds() - start);
  outcome.text = answers[0].text;
  return {};
}

Result<Outcome> Experiment::Run(const Recipe& recipe, int windows) {
  Outcome outcome;
  NIBBLE_RETURN_IF_ERROR(Write(recipe, outcome.errors));
  NIBBLE_RETURN_IF_ERROR(Measure(recipe, windows, outcome));
  return outcome;
}

// --- output

double Mean(const std::map<std::string, double>& errors) {
  double sum = 0;
  for (const auto& [name, error] : errors) sum += error;
  return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
}

using Outcomes = std::map<std::string, Outcome>;  // by Recipe::Name

void PrintJson(const Outcomes& outcomes) {
  fmt::print("{{\n\"loss/float\": {}", outcomes.at("float").loss);
  for (const auto& [name, outcome] : outcomes) {
    if (name == "float") continue;
    fmt::print(",\n\"loss/{}\": {}", name, outcome.loss);
    for (const auto& [tensor, error] : outcome.errors) {
      fmt::print(",\n\"error/{}/{}\": {}", name, tensor, error);
    }
  }
  fmt::print("\n}}\n");
}

void PrintTables(const Outcomes& outcomes) {
  const double base = outcomes.at("float").loss;
  fmt::print("8 bits: mean |ŵ − w| / mean |w| of each matrix\n\n{:<24} {:>10} {:>10}\n", "matrix",
             "tensor", "channel");
  for (const auto& [name, error] : outcomes.at("8/tensor/simulated").errors) {
    fmt::print("{:<24} {:9.3f}% {:9.3f}%\n", name, 100 * error,
               100 * outcomes.at("8/channel/simulated").errors.at(name));
  }
  fmt::print("\n{:<22} {:>10} {:>10} {:>10} {:>10}\n", "", "error", "loss", "change", "tokens/s");
  for (const char* name : {"float", "8/tensor/simulated", "8/channel/simulated", "8/tensor/integer",
                           "8/channel/integer"}) {
    const Outcome& outcome = outcomes.at(name);
    fmt::print("{:<22} {:9.3f}% {:10.4f} {:+10.4f} {:10.0f}\n", name, 100 * Mean(outcome.errors),
               outcome.loss, outcome.loss - base, outcome.tokens_per_second);
  }
  fmt::print("\nchange of the loss by bits (simulated)\n{:<6} {:>10} {:>10}\n", "bits", "tensor",
             "channel");
  for (int bits = 8; bits >= 2; --bits) {
    fmt::print("{:<6} {:+10.4f} {:+10.4f}\n", bits,
               outcomes.at(fmt::format("{}/tensor/simulated", bits)).loss - base,
               outcomes.at(fmt::format("{}/channel/simulated", bits)).loss - base);
  }
  for (const char* name : {"float", "8/tensor/integer", "8/channel/integer"}) {
    fmt::print("\n--- {}\nROMEO:{}\n", name, outcomes.at(name).text);
  }
}

Status WritePlots(const Outcomes& outcomes, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return IoError("{}: cannot be made: {}", folder.string(), error.message());
  BarChart loss = {.title = "Demonstration GPT by bits of its weights",
                   .y_label = "change of the validation loss (magnitude)",
                   .categories = {},
                   .series = {{"one scale a tensor", {}}, {"one a channel", {}}}};
  BarChart errors = {.title = "Demonstration GPT, 8 bits",
                     .y_label = "mean error over mean weight",
                     .categories = {},
                     .series = loss.series};
  for (int bits = 2; bits <= 8; ++bits) {
    loss.categories.push_back(fmt::format("{} bits", bits));
    for (const size_t i : {0, 1}) {
      const auto name = fmt::format("{}/{}/simulated", bits, i == 0 ? "tensor" : "channel");
      loss.series[i].values.push_back(
          std::fabs(outcomes.at(name).loss - outcomes.at("float").loss));
    }
  }
  for (const auto& [name, value] : outcomes.at("8/tensor/simulated").errors) {
    errors.categories.push_back(name.substr(4, name.find(".weight") - 4).replace(1, 1, " "));
    errors.series[0].values.push_back(value);
    errors.series[1].values.push_back(outcomes.at("8/channel/simulated").errors.at(name));
  }
  for (const auto& [name, chart] :
       {std::pair("loss.svg", &loss), std::pair("errors.svg", &errors)}) {
    NIBBLE_TRY(OutputFile out, OutputFile::Create(folder / name));
    NIBBLE_RETURN_IF_ERROR(out.Write(BarsSvg(*chart)));
    NIBBLE_RETURN_IF_ERROR(out.Commit());
  }
  return {};
}

struct Arguments {
  std::vector<std::string> paths;  // model, text, folder
  int windows = 64;
  bool json = false;
};

Result<Arguments> Parse(std::span<char*> given) {
  Arguments out;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string argument = given[i];
    if (argument == "--json") {
      out.json = true;
    } else if (argument == "--windows" && i + 1 < given.size()) {
      const std::string_view text = given[++i];
      const auto read = std::from_chars(text.data(), text.data() + text.size(), out.windows);
      if (read.ptr != text.data() + text.size() || out.windows < 1) {
        return BadInput("--windows: expected a number of at least 1, found '{}'", text);
      }
    } else if (argument.starts_with("-")) {
      return BadInput("use: shakespeare MODEL TEXT [--windows N] [--json] [FOLDER], found '{}'",
                      argument);
    } else {
      out.paths.push_back(argument);
    }
  }
  if (out.paths.size() < 2 || out.paths.size() > 3) {
    return BadInput("use: shakespeare MODEL TEXT [--windows N] [--json] [FOLDER]");
  }
  return out;
}

Status Run(const Arguments& arguments, const fs::path& scratch) {
  NIBBLE_TRY(const ModelFile model, ModelFile::Open(arguments.paths[0]));
  NIBBLE_TRY(const Tokenizer tokenizer, LoadModelTokenizer(model));
  std::ifstream in(arguments.paths[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return BadInput("{}: cannot be read", arguments.paths[1]);
  NIBBLE_TRY(const std::vector<TokenId> ids, tokenizer.Encode(text.substr(text.size() * 9 / 10)));
  Experiment experiment(model, tokenizer, ids, scratch);
  std::vector<Recipe> recipes = {{}};
  for (const auto granularity : {Granularity::kTensor, Granularity::kChannel}) {
    recipes.push_back({.bits = 8, .granularity = granularity, .integer = true});
    for (int bits = 2; bits <= 8; ++bits) recipes.push_back({bits, granularity, false});
  }
  Outcomes outcomes;
  for (const Recipe& recipe : recipes) {
    NIBBLE_TRY(outcomes[recipe.Name()], experiment.Run(recipe, arguments.windows));
  }
  if (arguments.json) {
    PrintJson(outcomes);
  } else {
    PrintTables(outcomes);
  }
  return arguments.paths.size() > 2 ? WritePlots(outcomes, arguments.paths[2]) : Status();
}

}  // namespace
}  // namespace nibble::examples

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const auto arguments =
      nibble::examples::Parse(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  nibble::Status status;
  if (arguments) {
    const fs::path scratch =
        fs::temp_directory_path() / fmt::format("nibble-shakespeare-{}", getpid());
    std::error_code ignored;
    fs::create_directories(scratch, ignored);
    status = nibble::examples::Run(*arguments, scratch);
    fs::remove_all(scratch, ignored);
  } else {
    status = std::unexpected(arguments.error());
  }
  if (!status) fmt::print(stderr, "shakespeare: {}\n", status.error().message);
  return status ? 0 : 2;
}
