#include "cli/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace nibble::cli {
namespace {

enum class Kind : uint8_t {
  kValue,   // its value stays
  kFormat,  // its value is the name of a number format
  kSwitch,  // becomes `ours`, which may hold a value
  kModel,   // its value is MODEL
  kNothing  // nothing to be done: it is always so here
};
struct Foreign {
  std::string_view name;
  std::string_view ours;
  Kind kind = Kind::kValue;
};
constexpr std::array kForeign = {
    Foreign{"-ctk", "--kv-k", Kind::kFormat},
    Foreign{"--cache-type-k", "--kv-k", Kind::kFormat},
    Foreign{"-ctv", "--kv-v", Kind::kFormat},
    Foreign{"--cache-type-v", "--kv-v", Kind::kFormat},
    Foreign{"--kv-cache-dtype", "--kv", Kind::kFormat},
    Foreign{"-np", "--max-seqs"},
    Foreign{"--parallel", "--max-seqs"},
    Foreign{"--max-num-seqs", "--max-seqs"},
    Foreign{"--ctx-size", "--ctx"},
    Foreign{"--max-model-len", "--ctx"},
    Foreign{"-b", "--max-batch-tokens"},
    Foreign{"--batch-size", "--max-batch-tokens"},
    Foreign{"--max-num-batched-tokens", "--max-batch-tokens"},
    Foreign{"-n", "--max-tokens"},
    Foreign{"--n-predict", "--max-tokens"},
    Foreign{"--served-model-name", "--alias"},
    Foreign{"--allowed-origins", "--cors"},
    Foreign{"--cors-origins", "--cors"},
    Foreign{"--chat-template-file", "--chat-template"},
    Foreign{"-m", "", Kind::kModel},
    Foreign{"--model", "", Kind::kModel},
    Foreign{"--enable-prefix-caching", "--prefix-cache on", Kind::kSwitch},
    Foreign{"--no-enable-prefix-caching", "--prefix-cache off", Kind::kSwitch},
    Foreign{"--metrics", "", Kind::kNothing},
    Foreign{"--jinja", "", Kind::kNothing},
    Foreign{"-cb", "", Kind::kNothing},
    Foreign{"--cont-batching", "", Kind::kNothing},
    Foreign{"--enable-chunked-prefill", "", Kind::kNothing},
};
struct Format {
  std::string_view theirs;
  std::string_view ours;
};
constexpr std::array kFormats = {
    Format{"q8_0", "int8"},    Format{"q4_0", "int4"},   Format{"auto", "f16"},
    Format{"fp8_e4m3", "fp8"}, Format{"float16", "f16"}, Format{"float32", "f32"},
};

std::string FormatName(const std::string& theirs) {
  const auto found = std::ranges::find(kFormats, std::string_view(theirs), &Format::theirs);
  return std::string(found == kFormats.end() ? theirs : found->ours);
}

}  // namespace

Translated TranslateForeignFlags(const std::vector<std::string>& arguments) {
  Translated out;
  const auto note = [&](const std::string& theirs, const std::string& ours) {
    out.notes.push_back(ours.empty() ? theirs + " is always so here"
                                     : fmt::format("{} is {} here", theirs, ours));
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.starts_with("--") ? argument.find('=') : argument.npos;
    const std::string name = argument.substr(0, equals);
    const auto found = std::ranges::find(kForeign, std::string_view(name), &Foreign::name);
    if (found == kForeign.end()) {
      out.arguments.push_back(argument);
      continue;
    }
    const std::string ours(found->ours);
    if (found->kind == Kind::kNothing) {
      note(name, "");
      continue;
    }
    if (found->kind == Kind::kSwitch) {
      const size_t blank = ours.find(' ');
      out.arguments.push_back(ours.substr(0, blank));
      out.arguments.push_back(ours.substr(blank + 1));
      note(name, ours);
      continue;
    }
    if (equals == argument.npos && i + 1 == arguments.size()) {  // no value: our parser complains
      out.arguments.push_back(found->kind == Kind::kModel ? argument : ours);
      continue;
    }
    const std::string given =
        equals == argument.npos ? arguments[++i] : argument.substr(equals + 1);
    const std::string value = found->kind == Kind::kFormat ? FormatName(given) : given;
    if (found->kind != Kind::kModel) out.arguments.push_back(ours);
    out.arguments.push_back(value);
    note(name + " " + given, found->kind == Kind::kModel ? value : ours + " " + value);
  }
  return out;
}

}  // namespace nibble::cli
