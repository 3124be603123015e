#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/outliers.h"
#include "cli/output.h"
#include "cli/session.h"
#include "container/hf_linear.h"
#include "engine/model_tokenizer.h"
#include "kv/storage/kv_storage.h"
#include "model/config/model_file.h"
#include "quantize/card.h"
#include "tokenizer/tokenizer.h"

namespace nibble::cli {
namespace {

struct InspectFlags {
  std::string model;
  bool tensors = false;
  bool check = false;
  bool card = false;
  bool outliers = false;
  ImportanceFlags calibration;
};

struct Inspection {
  std::filesystem::path path;
  ModelFile file;
  std::optional<Tokenizer> tokenizer;
  std::vector<std::string> problems;
};

// What --check finds in one tensor: values that no forward pass survives.
void CheckValues(const SourceTensor& tensor, std::vector<std::string>& problems) {
  if (!tensor.format) return;
  const uint64_t cols = tensor.cols();
  if (cols == 0) return;
  const uint64_t chunk = std::max<uint64_t>(1, 4096 / cols);
  std::vector<float> values(chunk * cols);
  size_t nans = 0;
  size_t infinities = 0;
  const uint64_t rows = tensor.rows();
  for (uint64_t row = 0; row < rows; row += chunk) {
    const uint64_t count = std::min(chunk, rows - row);
    ReadRows(tensor, row, count, values.data());
    for (size_t i = 0; i < count * cols; ++i) {
      nans += std::isnan(values[i]) ? 1 : 0;
      infinities += std::isinf(values[i]) ? 1 : 0;
    }
  }
  if (nans > 0)
    problems.push_back(fmt::format("tensor '{}': {} values are NaN", tensor.name, nans));
  if (infinities > 0) {
    problems.push_back(fmt::format("tensor '{}': {} values are infinite", tensor.name, infinities));
  }
}

void LoadTokenizerOf(Inspection& inspection) {
  auto tokenizer = LoadModelTokenizer(inspection.path);
  if (!tokenizer) {
    inspection.problems.push_back("tokenizer: " + tokenizer.error().message);
    return;
  }
  if (tokenizer->vocab_size() == 0) return;  // the model carries none
  inspection.tokenizer = *std::move(tokenizer);
  const int words = inspection.tokenizer->vocab_size();
  const int rows = inspection.file.config().vocabulary;
  if (words > rows) {
    inspection.problems.push_back(
        fmt::format("tokenizer: {} tokens, but the embedding has {} rows", words, rows));
  }
}

// What a model that nibble quantised says about itself; null for others.
Json CardOf(const ModelFile& file) {
  const auto text = StoredCard(file);
  if (!text) return nullptr;
  Json card = Json::parse(*text, nullptr, false);
  return card.is_object() ? card : Json(nullptr);
}

Json ToJson(const Inspection& inspection, const InspectFlags& own, std::span<const KvGroup> kv) {
  const ModelConfig& config = inspection.file.config();
  const TensorSource& source = inspection.file.source();
  Json out;
  out["architecture"] = config.architecture;
  out["name"] = config.name;
  out["parameters"] = config.parameters;
  out["file_bytes"] = inspection.file.file_bytes();
  out["weight_bytes"] = source.total_bytes();
  out["bits_per_weight"] =
      8.0 * static_cast<double>(source.total_bytes()) / static_cast<double>(config.parameters);
  out["context_length"] = config.context_length;
  out["layers"] = config.layers.size();
  out["width"] = config.width;
  out["heads"] = config.heads;
  out["kv_heads"] = config.kv_heads;
  out["head_dim"] = config.head_dim;
  out["ffn_width"] = config.ffn_width;
  out["vocabulary"] = config.vocabulary;
  const auto& tokenizer = inspection.tokenizer;
  out["tokenizer"] = tokenizer ? Json(tokenizer->description()) : Json(nullptr);
  out["chat_template"] = tokenizer && !tokenizer->chat_template().empty()
                             ? Json(tokenizer->chat_template())
                             : Json(nullptr);
  Json stored = Json::object();
  for (const SourceTensor& tensor : source.tensors()) {
    if (tensor.linear == nullptr) continue;
    const std::string key = DescribeHfLinear(*tensor.linear);
    stored[key] = stored.value(key, 0) + 1;
  }
  out["quantised_linears"] = std::move(stored);
  if (own.tensors) {
    out["tensors"] = Json::array();
    for (const SourceTensor& tensor : source.tensors()) {
      Json shape = Json::array();
      for (int i = 0; i < tensor.rank; ++i) shape.push_back(tensor.shape[static_cast<size_t>(i)]);
      Json entry = {{"name", tensor.name},
                    {"type", tensor.type_name},
                    {"shape", shape},
                    {"bytes", tensor.StoredBytes()}};
      if (tensor.linear != nullptr) entry["stored_as"] = DescribeHfLinear(*tensor.linear);
      out["tensors"].push_back(std::move(entry));
    }
  }
  out["kv_bytes_per_token"] = KvBytesPerToken(kv);
  out["card"] = CardOf(inspection.file);
  out["problems"] = inspection.problems;
  return out;
}

void PrintText(const Json& json, const InspectFlags& own) {
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<16}{}\n", name, value);
  };
  const auto text = [&](const char* key) {
    return json[key].is_string() ? json[key].get<std::string>() : "none";
  };
  line("architecture", text("architecture"));
  if (!text("name").empty()) line("name", text("name"));
  line("parameters", fmt::format("{:.4g} million", json["parameters"].get<double>() / 1e6));
  line("file", FormatBytes(json["file_bytes"].get<double>()));
  line("weights",
       fmt::format("{}, {:.3f} bits per weight", FormatBytes(json["weight_bytes"].get<double>()),
                   json["bits_per_weight"].get<double>()));
  line("shape",
       fmt::format("{} layers, width {}, {} heads over {} KV heads of {}, FFN {}, vocabulary {}",
                   json["layers"].get<int>(), json["width"].get<int>(), json["heads"].get<int>(),
                   json["kv_heads"].get<int>(), json["head_dim"].get<int>(),
                   json["ffn_width"].get<int>(), json["vocabulary"].get<int>()));
  line("context", fmt::format("{} tokens", json["context_length"].get<int>()));
  line("KV cache",
       fmt::format("{} per token", FormatBytes(json["kv_bytes_per_token"].get<double>())));
  for (const auto& [how, count] : json["quantised_linears"].items()) {
    line("quantised", fmt::format("{} linears: {}", count.get<int>(), how));
  }
  line("tokenizer", text("tokenizer"));
  line("chat template",
       json["chat_template"].is_string()
           ? fmt::format("{} characters (--json prints it)", text("chat_template").size())
           : "none");
  for (const Json& problem : json["problems"]) line("PROBLEM", problem.get<std::string>());
  if (!own.tensors) return;
  fmt::print("\n{:<48} {:<8} {:>20} {:>14}\n", "tensor", "type", "shape", "bytes");
  for (const Json& tensor : json["tensors"]) {
    std::string shape;
    for (const Json& size : tensor["shape"]) {
      shape += (shape.empty() ? "" : " x ") + std::to_string(size.get<uint64_t>());
    }
    fmt::print("{:<48} {:<8} {:>20} {:>14}{}\n", tensor["name"].get<std::string>(),
               tensor["type"].get<std::string>(), shape, tensor["bytes"].get<uint64_t>(),
               tensor.contains("stored_as") ? "  " + tensor["stored_as"].get<std::string>() : "");
  }
}

Status RunInspect(const GlobalFlags& flags, const InspectFlags& own) {
  NIBBLE_TRY(const KvFormats kv, ParseKvFormats(flags));
  NIBBLE_TRY(const std::filesystem::path path, FindModel(flags, own.model, false));
  NIBBLE_TRY(ModelFile file, ModelFile::Open(path));
  NIBBLE_TRY(const std::vector<KvGroup> groups, MakeKvGroups(file.config(), kv));
  Inspection inspection{path, std::move(file), std::nullopt, {}};
  LoadTokenizerOf(inspection);
  if (own.check) {
    Progress progress("check", !flags.quiet);
    const auto tensors = inspection.file.source().tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      CheckValues(tensors[i], inspection.problems);
      progress.Update(static_cast<double>(i + 1) / static_cast<double>(tensors.size()),
                      tensors[i].name);
    }
  }
  Json json = ToJson(inspection, own, groups);
  if (own.outliers) {
    NIBBLE_TRY(const Outliers found, MeasureOutliers(flags, inspection.file, own.calibration));
    json["outliers"] = OutliersJson(found);
    if (!flags.json) return PrintOutliers(found), Status();
  }
  if (own.card && json["card"].is_null()) {
    return BadInput("{}: has no card (only models that nibble quantised carry one)", path.string());
  }
  if (own.card && !flags.json) {
    fmt::print("{}\n", json["card"].dump(2));
  } else if (flags.json) {
    PrintJsonLine(json);
  } else {
    PrintText(json, own);
  }
  if (own.check && !inspection.problems.empty()) {
    return IoError("{}: {} problem{} found", path.string(), inspection.problems.size(),
                   inspection.problems.size() == 1 ? "" : "s");
  }
  if (own.check && !flags.json && !flags.quiet) fmt::print("no problems found\n");
  return {};
}

}  // namespace

void AddInspectCommand(const CommandContext& context) {
  CLI::App* command =
      context.app.add_subcommand("inspect", "What a model file holds; validates it");
  auto own = std::make_shared<InspectFlags>();
  own->calibration.sequences = 8;
  command->add_option("MODEL", own->model, "Model file, folder or name")->required();
  command->add_flag("--tensors", own->tensors, "Every tensor with type, shape and bytes");
  command->add_flag("--card", own->card,
                    "The card of a quantised file: recipe, source, measured quality");
  CLI::Option* outliers =
      command->add_flag("--outliers", own->outliers,
                        "Largest over mean magnitude of every matrix and its channels, and what "
                        "scales per tensor, channel and group would lose");
  command
      ->add_option("--calib", own->calibration.calib,
                   "With --outliers: the same of the inputs of every layer on this text, or "
                   "\"built-in\"")
      ->needs(outliers);
  command
      ->add_option("--calib-sequences", own->calibration.sequences,
                   "Sequences of 512 tokens from the start of that text; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->needs(outliers)
      ->capture_default_str();
  command->add_flag("--check", own->check,
                    "Read every value; NaN and infinity are problems (exit code 1)");
  command->footer(
      "Examples:\n"
      "  nibble inspect smollm2-135m\n"
      "  nibble inspect model.gguf --tensors --check --json\n"
      "  nibble inspect smollm2-135m-f16 --outliers --calib built-in\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunInspect(flags, *own); }; });
}

}  // namespace nibble::cli
