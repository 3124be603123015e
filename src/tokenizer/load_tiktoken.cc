#include <algorithm>
#include <array>
#include <limits>

#include "base/utf8.h"
#include "tokenizer/hf_json.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/pre_types.h"

namespace nibble {
namespace {

// From tiktoken_ext/openai_public.py.
constexpr std::string_view kR50k =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|)"
    R"(\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";
constexpr std::string_view kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Special {
  std::string_view text;
  int32_t id;
};
constexpr std::array<Special, 1> kR50kSpecial = {{{"<|endoftext|>", 50256}}};
constexpr std::array<Special, 4> kP50kEditSpecial = {{{"<|endoftext|>", 50256},
                                                      {"<|fim_prefix|>", 50281},
                                                      {"<|fim_middle|>", 50282},
                                                      {"<|fim_suffix|>", 50283}}};
constexpr std::array<Special, 5> kCl100kSpecial = {{{"<|endoftext|>", 100257},
                                                    {"<|fim_prefix|>", 100258},
                                                    {"<|fim_middle|>", 100259},
                                                    {"<|fim_suffix|>", 100260},
                                                    {"<|endofprompt|>", 100276}}};
constexpr std::array<Special, 2> kO200kSpecial = {
    {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}};
constexpr std::array<Special, 10> kHarmonySpecial = {{{"<|startoftext|>", 199998},
                                                      {"<|endoftext|>", 199999},
                                                      {"<|return|>", 200002},
                                                      {"<|constrain|>", 200003},
                                                      {"<|channel|>", 200005},
                                                      {"<|start|>", 200006},
                                                      {"<|end|>", 200007},
                                                      {"<|message|>", 200008},
                                                      {"<|call|>", 200012},
                                                      {"<|endofprompt|>", 200018}}};
constexpr std::array<Special, 3> kQwenSpecial = {
    {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}};
constexpr std::array<Special, 6> kLlama3Special = {{{"<|begin_of_text|>", 128000},
                                                    {"<|end_of_text|>", 128001},
                                                    {"<|start_header_id|>", 128006},
                                                    {"<|end_header_id|>", 128007},
                                                    {"<|eom_id|>", 128008},
                                                    {"<|eot_id|>", 128009}}};

struct Encoding {
  std::string_view name;
  std::string_view expression;
  std::span<const Special> special;
  size_t ranks;  // how many the published file has; 0: known by name only
};
constexpr std::array<Encoding, 9> kEncodings = {{{"o200k_harmony", kO200k, kHarmonySpecial, 0},
                                                 {"o200k_base", kO200k, kO200kSpecial, 199998},
                                                 {"cl100k_base", kCl100k, kCl100kSpecial, 100256},
                                                 {"p50k_edit", kR50k, kP50kEditSpecial, 0},
                                                 {"p50k_base", kR50k, kR50kSpecial, 50280},
                                                 {"r50k_base", kR50k, kR50kSpecial, 50256},
                                                 {"gpt2", kR50k, kR50kSpecial, 0},
                                                 {"qwen", kQwen, kQwenSpecial, 151643},
                                                 {"llama3", kLlama3, kLlama3Special, 128000}}};

// By the file's name, else by its size; cl100k_base is what other vocabularies copy most often.
const Encoding& ChooseEncoding(std::string_view file_name, size_t ranks) {
  for (const Encoding& e : kEncodings) {
    if (file_name.find(e.name) != std::string_view::npos) return e;
  }
  const auto same = std::ranges::find(kEncodings, ranks, &Encoding::ranks);
  return same != kEncodings.end() ? *same : kEncodings[2];
}

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

struct Line {
  std::string bytes;
  int64_t rank;
};

Result<Line> ParseLine(std::string_view line, size_t number) {
  const size_t space = line.find(' ');
  const auto bad = [&] {
    return BadInput("line {}: expected 'base64 rank', found '{}'", number,
                    ReplaceInvalidUtf8(line.substr(0, 60)));
  };
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return bad();
  Line out{"", 0};
  uint32_t bits = 0;
  int count = 0;
  for (const char c : line.substr(0, space)) {
    if (c == '=') break;
    const int value = Base64Value(c);
    if (value < 0) return bad();
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out.bytes += static_cast<char>(bits >> count);
    }
  }
  for (const char c : line.substr(space + 1)) {
    if (c < '0' || c > '9' || out.rank > INT32_MAX / 16) return bad();
    out.rank = out.rank * 10 + (c - '0');
  }
  if (out.bytes.empty()) return bad();
  return out;
}

Status CheckBytes(const TokenIndex& index) {
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    if (index.Find({&c, 1}) < 0) return BadInput("no rank for the single byte 0x{:02X}", b);
  }
  return {};
}

}  // namespace

Result<TokenizerParts> TiktokenParts(std::string_view text, std::string_view file_name) {
  TokenizerParts parts;
  RankBpeOptions options;
  options.bytes = true;
  options.whole_piece = true;
  TokenIndex index;
  size_t number = 0;
  size_t count = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    NIBBLE_TRY(const Line parsed, ParseLine(line, number));
    if (parts.vocabulary.Has(parsed.rank) &&
        parts.vocabulary.IsSet(TokenId{static_cast<int32_t>(parsed.rank)})) {
      return BadInput("line {}: rank {} comes twice", number, parsed.rank);
    }
    // Spelled as text for display; the raw bytes are kept beside.
    NIBBLE_RETURN_IF_ERROR(parts.vocabulary.Set(parsed.rank, parsed.bytes, TokenKind::kNormal));
    const auto rank = static_cast<size_t>(parsed.rank);
    if (rank >= parts.bytes.size()) parts.bytes.resize(rank + 1);
    if (!index.Insert(parsed.bytes, static_cast<int32_t>(parsed.rank))) {
      return BadInput("line {}: the same bytes have two ranks", number);
    }
    parts.bytes[rank] = parsed.bytes;
    ++count;
  }
  if (count == 0) return BadInput("no ranks: not a tiktoken file");
  NIBBLE_RETURN_IF_ERROR(CheckBytes(index));
  const Encoding& encoding = ChooseEncoding(file_name, count);
  const bool published = encoding.ranks == 0 || encoding.ranks == count;
  for (const Special& special : encoding.special) {
    // A file with other ranks than the published one has other special tokens too.
    if (!published ||
        (parts.vocabulary.Has(special.id) && parts.vocabulary.IsSet(TokenId{special.id}))) {
      continue;
    }
    NIBBLE_RETURN_IF_ERROR(hf::AddToken(
        {.content = std::string(special.text), .id = TokenId{special.id}, .special = true}, parts));
  }
  options.ranks.resize(static_cast<size_t>(parts.vocabulary.size()));
  for (size_t i = 0; i < options.ranks.size(); ++i) options.ranks[i] = static_cast<uint32_t>(i);
  for (size_t i = parts.bytes.size(); i < options.ranks.size(); ++i) {
    parts.bytes.emplace_back(parts.vocabulary.Piece(TokenId{static_cast<int32_t>(i)}));
  }
  for (const Special& special : encoding.special) {
    if (published) parts.bytes[static_cast<size_t>(special.id)] = special.text;
  }
  NIBBLE_TRY(Regex regex, Regex::Compile(encoding.expression, RegexDialect::kRust));
  parts.pretokenizers.push_back(MakeRegexSplit(std::move(regex), SplitBehavior::kIsolated, false));
  parts.model = MakeRankBpe(std::move(options), std::move(index));
  parts.description = fmt::format("tiktoken {}", encoding.name);
  hf::FinishParts(parts);
  return parts;
}

}  // namespace nibble
