#include "cost/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/commands.h"
#include "cli/here_device.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/plan_sources.h"
#include "cli/session.h"
#include "cost/plan_html.h"
#include "cost/plan_json.h"
#include "cost/plan_text.h"
#include "model/config/model_file.h"

namespace nibble::cli {
namespace {

struct PlanFlags {
  PlanArguments arguments{.model = "", .device = "here"};
  bool nominal = false;
  bool true_bytes = false;
  std::string output = "text";
};

constexpr size_t kMostSpecBytes = size_t{4} << 20;

Result<JsonDocument> ReadSpec(const std::string& path) {
  NIBBLE_TRY(std::string text, ReadTextFile(path, kMostSpecBytes));
  auto document = JsonDocument::Parse(std::move(text));
  if (!document) return Within(path, document.error());
  return document;
}

bool IsTableName(const std::string& name, const std::vector<std::string_view>& names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Result<ModelShape> FindShape(const GlobalFlags& flags, const std::string& name) {
  namespace fs = std::filesystem;
  const std::vector<std::string_view> names = ModelShapeNames();
  if (IsTableName(name, names)) return ModelShapeByName(name);
  if (name.ends_with(".json") && !name.ends_with(".index.json")) {
    NIBBLE_TRY(const JsonDocument document, ReadSpec(name));
    auto shape = ReadModelShape(document.root(), fs::path(name).stem().string());
    if (!shape) return Within(name, shape.error());
    return shape;
  }
  const auto path = FindModel(flags, name, false);
  if (!path) {
    const bool is_path = name.find('/') != name.npos || name.find('.') != name.npos;
    if (is_path && path.error().kind != ErrorKind::kBadInput) {
      return std::unexpected(path.error());
    }
    const auto unknown = ModelShapeByName(name);
    return BadInput("{}; and {}", path.error().message, unknown.error().message);
  }
  NIBBLE_TRY(const ModelFile file, ModelFile::Open(*path));
  return ShapeOfFile(file, path->stem().string());
}

Result<DeviceShape> FindDevice(const GlobalFlags& flags, const std::string& name) {
  if (name == "here") return HereDevice(flags);
  if (IsTableName(name, DeviceShapeNames())) return DeviceShapeByName(name);
  // A path, whatever it ends in.
  std::error_code error;
  const bool path = name.ends_with(".json") || name.find('/') != name.npos ||
                    std::filesystem::is_regular_file(name, error);
  if (!path) return DeviceShapeByName(name);
  NIBBLE_TRY(const JsonDocument document, ReadSpec(name));
  auto device = ReadDeviceShape(document.root());
  if (!device) return Within(name, device.error());
  device->origin = name;
  return device;
}

PlanSources FlagSources(const GlobalFlags& flags) {
  PlanSources sources;
  sources.model = [&flags](const std::string& name) { return FindShape(flags, name); };
  sources.device = [&flags](const std::string& name) { return FindDevice(flags, name); };
  sources.label = [](std::string_view argument) {
    std::string flag = "--" + std::string(argument);
    std::ranges::replace(flag, '_', '-');
    return flag;
  };
  return sources;
}

std::string PlanKvList(const GlobalFlags& flags) {
  if (flags.kv_k.empty() && flags.kv_v.empty()) return flags.kv;
  std::string list;
  for (size_t begin = 0; begin <= flags.kv.size();) {
    const size_t comma = std::min(flags.kv.find(',', begin), flags.kv.size());
    const std::string both = flags.kv.substr(begin, comma - begin);
    const size_t slash = both.find('/');
    const std::string keys = flags.kv_k.empty() ? both.substr(0, slash) : flags.kv_k;
    const std::string values =
        !flags.kv_v.empty() ? flags.kv_v : both.substr(slash == both.npos ? 0 : slash + 1);
    list += (list.empty() ? "" : ",") + keys + "/" + values;
    begin = comma + 1;
  }
  return list;
}

namespace {

Result<Plan> MakePlanOf(const GlobalFlags& flags, const PlanFlags& own) {
  if (own.nominal && own.true_bytes) {
    return BadInput("expected --nominal or --true, found both");
  }
  NIBBLE_TRY(const Act act, ParseAct(flags.act));
  PlanArguments arguments = own.arguments;
  arguments.kv = PlanKvList(flags);
  if (own.nominal) arguments.counting = "nominal";
  if (own.true_bytes) arguments.counting = "true";
  arguments.weight_only = act == Act::kF32;
  const PlanSources sources = FlagSources(flags);
  NIBBLE_TRY(PlanRequest request, ReadPlanRequest(arguments, sources));
  for (KvChoice& choice : request.kv) choice.formats.skip_layers = flags.kv_skip_layers;
  return MakePlan(std::move(request), sources);
}

Status RunPlan(const GlobalFlags& flags, const PlanFlags& own) {
  NIBBLE_TRY(const Plan plan, MakePlanOf(flags, own));
  const std::string output = flags.json ? "json" : own.output;
  if (output == "json") {
    PrintJsonLine(PlanJson(plan));
  } else if (output == "csv") {
    fmt::print("{}", PlanCsv(plan));
  } else if (output == "svg") {
    fmt::print("{}", PlanSvg(plan));
  } else if (output == "html") {
    fmt::print("{}", PlanHtml(plan));
  } else {
    fmt::print("{}", PlanText(plan));
  }
  return {};
}

}  // namespace

void AddPlanCommand(const CommandContext& context) {
  CLI::App* command = context.app.add_subcommand(
      "plan", "Bytes, step time and memory of a model on a device, before anything is run");
  auto own = std::make_shared<PlanFlags>();
  PlanArguments& arguments = own->arguments;
  const auto option = [&](const char* name, std::string& value, const char* type,
                          const std::string& help) {
    return command->add_option(name, value, help)->type_name(type);
  };
  option("--model", arguments.model, "NAME|MODEL|SPEC.json",
         "A shape by name (llama-3-8b, 70b, mixtral-8x7b, …), a model on disk, or a JSON file with "
         "config.json's keys")
      ->required();
  option("--device", arguments.device, "NAME|SPEC.json|here",
         "A device by name (h100, rtx-4090, …), a JSON file, or this machine, measured now")
      ->capture_default_str();
  option("--devices", arguments.devices, "N", "Devices that share the model by tensor parallelism")
      ->capture_default_str();
  option("--weights", arguments.weights, "L",
         "Formats of weights: bf16, fp8, int8, int4, any of quantize --to, own (the file's); "
         "default: bf16,int8,int4, or own");
  option("--batch", arguments.batch, "L", "Sequences that each get a token in a step")
      ->capture_default_str();
  option("--context", arguments.context, "L", "Tokens that each sequence holds")
      ->capture_default_str();
  command->add_flag("--nominal", own->nominal,
                    "Count a number of b bits as b/8 bytes; default for names of the tables");
  command->add_flag("--true", own->true_bytes,
                    "Count scales and pages too; default where a file, this machine or a real "
                    "format such as q4_k_m is named");
  option("--price-per-hour", arguments.price_per_hour, "X",
         "Price of one device; gives the cost per million tokens");
  command->add_option("-o,--output", own->output, "text, json, csv, svg or html")
      ->check(CLI::IsMember({"text", "json", "csv", "svg", "html"}))
      ->capture_default_str();
  command->footer(
      "--kv takes a list too, with bf16 and pairs such as int8/kivi2 (keys/values). docs/plan.md\n"
      "has the formulas.\n"
      "Examples:\n"
      "  nibble plan --model llama-3-8b --device h100 --weights bf16,int8,int4 --kv bf16,fp8\n"
      "  nibble plan --model llama-3-70b --device h100 --devices 8 --batch 1,16,64 --true\n"
      "  nibble plan --model 13b --device rtx-4060-ti-16gb --batch 1 --price-per-hour 0.2\n"
      "  nibble plan --model smollm2-135m --device here --weights q4_k_m,q8_0 --kv f16,int8\n"
      "  nibble plan --model llama-3-8b --device h100 -o html > plan.html\n");
  const GlobalFlags& flags = context.flags;
  std::function<Status()>& action = context.action;
  command->callback(
      [own, &flags, &action] { action = [own, &flags] { return RunPlan(flags, *own); }; });
}

}  // namespace nibble::cli
