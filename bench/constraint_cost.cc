// What constraints cost per token and per schema: masks on random walks of a real vocabulary, and
// compilation. constraint_cost TOKENIZER…: files or folders that `nibble tokenize` takes.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/vocabulary.h"
#include "grammar/compile.h"
#include "grammar/constraint.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

using grammar::Wanted;

// Seconds that this thread has computed: what others do to the machine is left out.
double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Case {
  const char* name;
  Wanted wanted;
};

Wanted Of(Wanted::Kind kind, std::string text) {
  Wanted wanted;
  wanted.kind = kind;
  wanted.text = std::move(text);
  return wanted;
}

std::vector<Case> Cases() {
  const std::string order = R"({"type": "object", "additionalProperties": false,
    "required": ["id", "customer", "items", "status"], "properties": {
    "id": {"type": "string", "format": "uuid"}, "created": {"type": "string", "format": "date-time"},
    "status": {"enum": ["open", "paid", "sent", "returned"]},
    "customer": {"type": "object", "additionalProperties": false, "required": ["name", "email"],
      "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 100},
      "email": {"type": "string", "format": "email"}, "age": {"type": "integer", "minimum": 0,
      "maximum": 150}, "address": {"$ref": "#/$defs/address"}}},
    "items": {"type": "array", "minItems": 1, "maxItems": 50, "items": {"type": "object",
      "additionalProperties": false, "required": ["sku", "count", "price"], "properties": {
      "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "count": {"type": "integer",
      "minimum": 1}, "price": {"type": "number", "minimum": 0}, "note": {"anyOf":
      [{"type": "string"}, {"type": "null"}]}}}}},
    "$defs": {"address": {"type": "object", "additionalProperties": false, "required": ["city"],
      "properties": {"street": {"type": "string"}, "city": {"type": "string"}, "zip":
      {"type": "string", "pattern": "^[0-9]{5}$"}}}}})";
  return {{"API schema", Of(Wanted::Kind::kJsonSchema, order)},
          {"any JSON object", Of(Wanted::Kind::kJsonObject, "")},
          {"regex of words", Of(Wanted::Kind::kRegex, "([A-Za-z]{1,20}[ ,.]){1,200}")},
          {"regex of Unicode words", Of(Wanted::Kind::kRegex, "(\\p{L}{1,20}[ ,.])+")},
          {"grammar, arithmetic", Of(Wanted::Kind::kGbnf,
                                     "root ::= (expr \"=\" ws term \"\\n\")+\n"
                                     "expr ::= term ([-+*/] term)*\n"
                                     "term ::= ident | num | \"(\" ws expr \")\" ws\n"
                                     "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\n"
                                     "ws ::= [ \\t\\n]*\n")}};
}

void Measure(const Case& one, const std::shared_ptr<const grammar::Vocabulary>& vocabulary) {
  double compile = 1e9;
  std::shared_ptr<const grammar::Automaton> automaton;
  for (int i = 0; i < 5; ++i) {
    const double begin = Now();
    auto compiled = grammar::Compile(one.wanted);
    if (!compiled) {
      fmt::print("{}: {}\n", one.name, compiled.error().message);
      return;
    }
    automaton = *std::move(compiled);
    compile = std::min(compile, Now() - begin);
  }
  grammar::Constraint constraint(automaton, vocabulary);
  std::vector<double> times;
  std::mt19937 random(5);
  for (int walk = 0; walk < 20; ++walk) {
    auto state = constraint.Start();
    for (int step = 0; step < 200 && !constraint.ended(state); ++step) {
      const double begin = Now();
      const auto mask = constraint.Mask(state);
      times.push_back(Now() - begin);
      if (!mask) {
        fmt::print("{}: {}\n", one.name, mask.error().message);
        return;
      }
      std::vector<int> allowed;
      for (int i = 0; i < vocabulary->size(); ++i) {
        if ((*mask)->Allows(TokenId{i})) allowed.push_back(i);
      }
      const double accept = Now();
      constraint.Accept(state, TokenId{allowed[random() % allowed.size()]});
      times.back() += Now() - accept;
    }
  }
  std::ranges::sort(times);
  const auto at = [&](double p) {
    return 1e6 * times[static_cast<size_t>(p * static_cast<double>(times.size() - 1))];
  };
  fmt::print("| {} | {:.1f} ms | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} MB |\n", one.name,
             1e3 * compile, times.size(), at(0.5), at(0.9), at(0.99), times.back() * 1e6,
             static_cast<double>(constraint.memory()) / 1e6);
}

int Run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto tokenizer = LoadTokenizer(argv[i]);
    if (!tokenizer) {
      fmt::print(stderr, "{}\n", tokenizer.error().message);
      return 2;
    }
    const double begin = Now();
    const auto vocabulary = MakeVocabulary(*tokenizer, 0);
    fmt::print("{}: {} tokens, sorted in {:.0f} ms, {:.1f} MB\n\n", argv[i], vocabulary->size(),
               1e3 * (Now() - begin), static_cast<double>(vocabulary->memory()) / 1e6);
    fmt::print("| | compile | tokens | mask and accept: p50 us | p90 | p99 | most | kept |\n");
    fmt::print("|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (const Case& one : Cases()) Measure(one, vocabulary);
    fmt::print("\n");
  }
  return 0;
}

}  // namespace
}  // namespace nibble

int main(int argc, char** argv) { return nibble::Run(argc, argv); }
