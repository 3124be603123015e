// Reads texts as JSON strings, one per line, from standard input and writes their token ids, one
// line each, and the decoded text as JSON: for tools/tokenizer_differential.py.
//   tokenize_lines TOKENIZER [--no-special] [--plain] [--pre NAME]
// --no-special: no BOS and the like. --plain: texts of control tokens stay text.
// --pre NAME: no tokenizer; writes the pieces of tokenizer.ggml.pre NAME. --pre-list: its names and
// expressions.
#include <fmt/core.h>

#include <cstring>
#include <iostream>
#include <string>

#include "base/utf8.h"
#include "container/json.h"
#include "tokenizer/load.h"
#include "tokenizer/pre_types.h"
#include "tokenizer/pretokenizer.h"

namespace {

using nibble::TokenId;

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : nibble::ReplaceInvalidUtf8(text)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

int Fail(const nibble::Error& error) {
  std::cerr << error.message << "\n";
  return 2;
}

nibble::Result<std::string> NextText(const std::string& line) {
  auto document = nibble::JsonDocument::Parse(line);
  if (!document) return std::unexpected(document.error());
  auto text = document->root().AsString();
  if (!text) return std::unexpected(text.error());
  return std::string(*text);
}

int ListPreTypes() {
  for (const nibble::PreType& type : nibble::PreTypes()) {
    std::string list;
    for (const std::string_view e : type.expressions) {
      if (!e.empty()) list += (list.empty() ? "" : ",") + Quoted(e);
    }
    std::cout << "{\"name\":" << Quoted(type.name) << ",\"expressions\":[" << list << "]}\n";
  }
  return 0;
}

int SplitLines(const char* name) {
  const nibble::PreType* type = nibble::FindPreType(name);
  if (type == nullptr) return Fail({.message = "no such pre-tokenizer"});
  nibble::PreTokenizers steps;
  for (const std::string_view e : type->expressions) {
    if (e.empty()) continue;
    auto step = nibble::MakeIsolatedSplit(e);
    if (!step) return Fail(step.error());
    steps.push_back(*std::move(step));
  }
  for (std::string line; std::getline(std::cin, line);) {
    auto text = NextText(line);
    if (!text) return Fail(text.error());
    nibble::Pieces pieces;
    pieces.text = *text;
    if (!text->empty()) pieces.pieces.push_back({0, static_cast<uint32_t>(text->size()), true});
    for (const auto& step : steps) {
      if (auto status = step->Apply(pieces); !status) return Fail(status.error());
    }
    std::string out;
    for (const auto& piece : pieces.pieces) {
      out += (out.empty() ? "" : ",") + Quoted(pieces.View(piece));
    }
    std::cout << "[" << out << "]\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--pre-list") == 0) return ListPreTypes();
  if (argc == 3 && std::strcmp(argv[1], "--pre") == 0) return SplitLines(argv[2]);
  if (argc < 2)
    return Fail({.message = "usage: tokenize_lines TOKENIZER [--no-special] [--plain]"});
  nibble::EncodeOptions options;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-special") == 0) options.add_special = false;
    if (std::strcmp(argv[i], "--plain") == 0) options.parse_special = false;
  }
  auto tokenizer = nibble::LoadTokenizer(argv[1]);
  if (!tokenizer) return Fail(tokenizer.error());
  for (std::string line; std::getline(std::cin, line);) {
    auto text = NextText(line);
    if (!text) return Fail(text.error());
    auto ids = tokenizer->Encode(*text, options);
    if (!ids) {
      std::cout << "{\"error\":" << Quoted(ids.error().message) << "}\n";
      continue;
    }
    std::string list;
    for (const TokenId id : *ids) {
      list += (list.empty() ? "" : ",") + std::to_string(id.value());
    }
    std::cout << "{\"ids\":[" << list << "],\"text\":" << Quoted(tokenizer->Decode(*ids)) << "}\n";
  }
  return 0;
}
