#include "platform/machine.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>
#include <utility>

#include "platform/cpu.h"

namespace nibble {
namespace {

std::string_view TrimSpaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Of the first processor: the lines that name its kind, x86's and ARM's.
std::string ReadProcessor(const std::filesystem::path& root) {
  constexpr std::pair<std::string_view, std::string_view> kLines[] = {
      {"model name", ""},         {"cpu family", "family "},           {"model", "model "},
      {"stepping", "stepping "},  {"CPU implementer", "implementer "}, {"CPU part", "part "},
      {"CPU variant", "variant "}};
  std::ifstream in(root / "proc/cpuinfo");
  std::string text;
  std::string line;
  while (std::getline(in, line) && !line.empty()) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = TrimSpaces(std::string_view(line).substr(0, colon));
    const std::string_view value = TrimSpaces(std::string_view(line).substr(colon + 1));
    for (const auto& [name, label] : kLines) {
      if (key != name || value.empty()) continue;
      if (!text.empty()) text += ", ";
      text += label;
      text += value;
    }
  }
  return text.empty() ? "unknown processor" : text;
}

}  // namespace

Machine ReadMachine(const std::filesystem::path& root) {
  const CpuTopology topology = ReadTopology(root);
  return {.processor = ReadProcessor(root),
          .processors = topology.threads,
          .last_level_cache = topology.last_level_cache};
}

std::string Machine::Describe() const {
  return fmt::format("{}; {} processor{}; {} MiB of last-level cache", processor, processors,
                     processors == 1 ? "" : "s", last_level_cache >> 20);
}

}  // namespace nibble
