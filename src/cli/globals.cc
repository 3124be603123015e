#include "cli/globals.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <cmath>

namespace nibble::cli {

namespace {

// "f32, f16, …, between the names".
std::string KvFormatNames(const char* between, const char* last) {
  std::string names;
  const std::span<const KvFormatTraits> all = AllKvFormats();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) names += i + 1 == all.size() ? last : between;
    names += all[i].name;
  }
  return names;
}

void AddKvFlags(CLI::App& app, GlobalFlags& flags, const std::string& group) {
  app.add_option("--kv", flags.kv, "Number format of the KV cache; default: f16")
      ->type_name(KvFormatNames("|", "|"))
      ->group(group);
  app.add_option("--kv-k", flags.kv_k, "The same for keys alone; default: that of --kv")
      ->type_name("FORMAT")
      ->group(group);
  app.add_option("--kv-v", flags.kv_v, "The same for values alone; default: that of --kv")
      ->type_name("FORMAT")
      ->group(group);
  app.add_option("--kv-skip-layers", flags.kv_skip_layers,
                 "Layers whose keys and values stay f16, such as 0,1,-1 (the last); default: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("L,...")
      ->group(group);
  app.add_option("--kv-rotate", flags.kv_rotate,
                 "Spread the channels of queries and keys by a Hadamard matrix before keys are "
                 "rounded; default: on for int4 keys, off for others")
      ->check(CLI::IsMember({"on", "off"}))
      ->type_name("on|off")
      ->group(group);
}

}  // namespace

void AddGlobalFlags(CLI::App& app, GlobalFlags& flags) {
  const std::string group = "Common flags";
  app.add_option("-t,--threads", flags.threads, "Threads; default: all this process may use")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group(group);
  app.add_option("--act", flags.act,
                 "Arithmetic of activations: int8 (fast) or f32 (weights alone are quantised)")
      ->type_name("int8|f32")
      ->group(group);
  AddKvFlags(app, flags, group);
  app.add_option("--kv-memory", flags.kv_memory,
                 "Memory for the KV cache, such as 512MiB; auto: half of what is left")
      ->type_name("auto|SIZE")
      ->group(group);
  app.add_option("-c,--ctx", flags.context, "Most tokens of one sequence; default: the model's")
      ->check(CLI::Range(0, 1 << 24))
      ->type_name("N")
      ->group(group);
  app.add_flag("--numa", flags.numa,
               "Keep threads on the nodes of memory, and spread weights and KV pages over them")
      ->group(group);
  app.add_option("--seed", flags.seed, "Seed of sampling; default: random and printed")
      ->check(CLI::Validator(
          [](const std::string& text) -> std::string {
            uint64_t seed = 0;
            const char* end = text.data() + text.size();
            const auto [last, error] = std::from_chars(text.data(), end, seed);
            if (error == std::errc() && last == end) return "";
            return "expected a whole number from 0 to 18446744073709551615, found " + text;
          },
          "", "seed"))
      ->type_name("N")
      ->group(group);
  app.add_flag("--json", flags.json, "One JSON object on standard output, nothing else there")
      ->group(group);
  app.add_flag("--verbose", flags.verbose, "More about what is done, on standard error")
      ->group(group);
  app.add_flag("--quiet", flags.quiet, "Only results and errors")->group(group);
}

GlobalFlags InFloats(GlobalFlags flags) {
  flags.act = flags.kv = "f32";
  flags.kv_k.clear();
  flags.kv_v.clear();
  flags.kv_skip_layers.clear();
  flags.kv_rotate.clear();
  return flags;
}

Result<Act> ParseAct(const std::string& text) {
  if (text == "int8") return Act::kInt8;
  if (text == "f32") return Act::kF32;
  return BadInput("--act: expected int8 or f32, found '{}'", text);
}

namespace {

Result<KvFormat> ParseKvFormat(const char* flag, const std::string& text) {
  if (const auto format = KvFormatFromName(text)) return *format;
  return BadInput("{}: expected {}, found '{}'", flag, KvFormatNames(", ", " or "), text);
}

}  // namespace

Result<KvFormats> ParseKvFormats(const GlobalFlags& flags) {
  KvFormats formats;
  NIBBLE_TRY(const KvFormat both, ParseKvFormat("--kv", flags.kv));
  formats.k = formats.v = both;
  if (!flags.kv_k.empty()) {
    NIBBLE_TRY(formats.k, ParseKvFormat("--kv-k", flags.kv_k));
  }
  if (!flags.kv_v.empty()) {
    NIBBLE_TRY(formats.v, ParseKvFormat("--kv-v", flags.kv_v));
  }
  formats.skip_layers = flags.kv_skip_layers;
  if (!flags.kv_rotate.empty()) formats.rotate = flags.kv_rotate == "on";
  return formats;
}

Result<std::optional<size_t>> KvMemory(const GlobalFlags& flags) {
  if (flags.kv_memory == "auto") return std::nullopt;
  auto size = ParseSize(flags.kv_memory);
  if (!size) return Within("--kv-memory", size.error());
  if (*size == 0)
    return BadInput("--kv-memory: expected auto or a size above 0, found '{}'", flags.kv_memory);
  return *size;
}

std::vector<NumaNode> NodesToUse(const GlobalFlags& flags) {
  if (!flags.numa) return {};
  std::vector<NumaNode> nodes = ReadNumaNodes();
  if (nodes.size() > 1) return nodes;
  if (!flags.quiet) fmt::print(stderr, "--numa: one node of memory here, so nothing to do\n");
  return {};
}

Result<size_t> ParseSize(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  double factor = 0;
  const std::string_view letters = "kmgt";
  if (unit.empty() || unit == "b") {
    factor = 1;
  } else if (const size_t power = letters.find(unit[0]); power != std::string_view::npos) {
    const std::string rest = unit.substr(1);
    if (rest.empty() || rest == "b") factor = std::pow(1000.0, static_cast<double>(power) + 1);
    if (rest == "ib") factor = std::pow(1024.0, static_cast<double>(power) + 1);
  }
  const double bytes = number * factor;
  if (error != std::errc() || factor == 0 || !(bytes >= 0) || bytes > 1e18) {
    return BadInput("expected a size such as 512MiB or 4GB, found '{}'", text);
  }
  return static_cast<size_t>(bytes);
}

}  // namespace nibble::cli
