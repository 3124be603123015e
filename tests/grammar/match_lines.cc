// Reads a JSON object per line and writes one:
//   {"kind": "gbnf" | "regex" | "choice" | "schema" | "json", "text": …, "choices": […],
//    "draft": 7 | 2020, "formats": bool, "best_effort": bool,
//    "accept": [texts], "generate": n, "seed": s}
// gives {"error": …} or {"accepts": [bool], "generated": [texts], "states": n, "compile_s": s}.
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <unordered_map>

#include "base/utf8.h"
#include "grammar/compile.h"
#include "grammar/configurations.h"
#include "grammar/json_grammar.h"
#include "grammar/json_schema.h"

namespace {

using nibble::Result;
using nlohmann::json;
using namespace nibble::grammar;

Result<std::shared_ptr<const Automaton>> Build(const json& line) {
  const std::string kind = line.at("kind");
  const std::string text = line.value("text", "");
  if (kind == "schema" || kind == "json") {
    GrammarSource source;
    if (kind == "schema") {
      SchemaOptions options;
      options.draft =
          line.value("draft", 2020) == 7 ? SchemaOptions::Draft::k7 : SchemaOptions::Draft::k2020;
      options.assert_formats = line.value("formats", true);
      options.best_effort = line.value("best_effort", false);
      NIBBLE_TRY(source, SchemaSource(text, options));
    } else {
      const JsonRules rules = AddJsonRules(source, JsonSpace::kAny);
      const ExprId ws =
          source.Repeat(source.Chars({{' ', ' '}, {'\t', '\n'}, {'\r', '\r'}}), 0, kUnbounded);
      source.SetRoot(source.AddRule("text", source.Sequence({ws, source.Use(rules.value), ws})));
    }
    NIBBLE_TRY(Automaton automaton, AutomatonOf(source));
    return std::make_shared<const Automaton>(std::move(automaton));
  }
  Wanted wanted;
  wanted.kind = kind == "gbnf"     ? Wanted::Kind::kGbnf
                : kind == "regex"  ? Wanted::Kind::kRegex
                : kind == "choice" ? Wanted::Kind::kChoice
                                   : Wanted::Kind::kJsonObject;
  wanted.text = text;
  wanted.choices = line.value("choices", std::vector<std::string>{});
  return Compile(wanted);
}

bool Accepts(Configurations& c, const std::string& text) {
  Configurations::Id id = c.start();
  for (const char byte : text) {
    id = c.NextByte(id, static_cast<uint8_t>(byte));
    if (id == Configurations::kDead) return false;
  }
  return c.accepting(id);
}

// The shortest way to an end, by breadth first.
std::string Ending(Configurations& c, Configurations::Id from) {
  std::unordered_map<Configurations::Id, std::pair<Configurations::Id, int>> before;
  std::vector<Configurations::Id> queue{from};
  before[from] = {from, -1};
  for (size_t i = 0; i < queue.size(); ++i) {
    if (c.accepting(queue[i])) {
      std::string out;
      for (auto at = queue[i]; before[at].second >= 0; at = before[at].first) {
        out.insert(0, 1, static_cast<char>(before[at].second));
      }
      return out;
    }
    if (i > 200'000) break;
    for (int k = 0; k < c.automaton().classes; ++k) {
      const auto to = c.Next(queue[i], static_cast<Automaton::Class>(k));
      if (to == Configurations::kDead) continue;
      const int byte = c.automaton().class_first[static_cast<size_t>(k)];
      if (before.try_emplace(to, queue[i], byte).second) queue.push_back(to);
    }
  }
  return "<no end>";
}

std::string Generate(Configurations& c, std::mt19937& random) {
  std::string out;
  Configurations::Id id = c.start();
  const size_t length = random() % 60;
  while (out.size() < length) {
    std::vector<int> ways;
    for (int k = 0; k < c.automaton().classes; ++k) {
      if (c.Next(id, static_cast<Automaton::Class>(k)) != Configurations::kDead) ways.push_back(k);
    }
    if (ways.empty() || (c.accepting(id) && random() % 4 == 0)) break;
    const int k = ways[random() % ways.size()];
    out += static_cast<char>(
        c.automaton().class_first[static_cast<size_t>(k)] +
        static_cast<int>(random() % static_cast<unsigned>(c.automaton().class_size(k))));
    id = c.Next(id, static_cast<Automaton::Class>(k));
  }
  return out + Ending(c, id);
}

}  // namespace

int main() {
  std::string text;
  while (std::getline(std::cin, text)) {
    const json line = json::parse(text);
    const auto begin = std::chrono::steady_clock::now();
    const auto built = Build(line);
    json out;
    if (!built) {
      out["error"] = built.error().message;
    } else {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      out["compile_s"] = took.count();
      out["states"] = (*built)->states();
      Configurations configurations(*built);
      out["accepts"] = json::array();
      for (const json& one : line.value("accept", json::array())) {
        out["accepts"].push_back(Accepts(configurations, one.get<std::string>()));
      }
      std::mt19937 random(line.value("seed", 1U));
      out["generated"] = json::array();
      for (int i = 0; i < line.value("generate", 0); ++i) {
        out["generated"].push_back(nibble::ReplaceInvalidUtf8(Generate(configurations, random)));
      }
    }
    std::cout << out.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
