// The expressions behind tokenizer.ggml.pre, as src/llama-vocab.cpp of llama.cpp names them. Where
// that file quotes the expression of the model's own tokenizer.json beside one adapted to
// std::regex, the original stands here. tools/tokenizer_differential.py checks each against
// Python's `regex`.
#include "tokenizer/pre_types.h"

#include <algorithm>
#include <array>

namespace nibble {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[)"
    R"(\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[)"
    R"(\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)"
    R"()|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kNewline = R"([\r\n])";
constexpr std::string_view kDeepseekLlm2 =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{29)"
    R"(3}\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\)"
    R"(x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{)"
    R"(556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{)"
    R"(1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x)"
    R"({1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{)"
    R"(1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x)"
    R"({1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\)"
    R"(x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{)"
    R"(2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{)"
    R"(214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2)"
    R"(cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{)"
    R"(a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x)"
    R"({ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x)"
    R"({10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+)";
constexpr std::string_view kDeepseekLlm3 =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepseekLlm4 = R"(\s+$)";
constexpr std::string_view kDeepseekLlm5 =
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kUpToThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kDeepseek3Llm2 =
    R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kDeepseek3Llm3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark253 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kYoutu1 =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{20)"
    R"(19}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x)"
    R"({312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
constexpr std::string_view kYoutu2 =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|')"
    R"(t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm)"
    R"(}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\)"
    R"(n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseekCoder2 = R"(\s?\p{L}+)";
constexpr std::string_view kDeepseekCoder3 = R"(\s?\p{P}+)";
constexpr std::string_view kFalcon1 = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kThreeAsciiDigits = R"([0-9][0-9][0-9])";
constexpr std::string_view kStablelm2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n])"
    R"(*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\)"
    R"(p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPoro =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\)"
    R"(p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p)"
    R"({L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kChameleon1 = R"(<sentinel:[0-9]+>)";
constexpr std::string_view kChameleon2 = R"((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)";
constexpr std::string_view kChameleon3 = R"(([\t\n]|    |  ))";
constexpr std::string_view kChameleon5 = R"([\p{P}!-/:-@\[-`{-~])";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|')"
    R"(t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm)"
    R"(}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s)"
    R"(*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTinyAya1 = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{L)"
    R"(m}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p)"
    R"({Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|')"
    R"(re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSuperbpe2 = R"((?=(\d{3})+(?!\d)))";
constexpr std::string_view kBailingmoe =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*)"
    R"([\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n])"
    R"(+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kAfmoe1 = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr std::string_view kAfmoe2 =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30f)"
    R"(f}\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\)"
    R"(x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff})"
    R"(]+)";
constexpr std::string_view kLines = R"([^\n]+|[\n]+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{)"
    R"(N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kMinicpm52 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n)"
    R"(]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kWhitespace = R"(\S+)";
constexpr std::string_view kDefault1 = R"([\p{P}\$\+<=>\^~\|]+)";

constexpr std::array<PreType, 91> kPreTypes = {{
    {.name = "llama3", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "llama-v3", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "llama-bpe", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "falcon3", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "falcon-h1", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "pixtral", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "midm-2.0", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "lfm2", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "jina-v5-nano", .expressions = {kLlama3}, .whole_piece = true, .add_bos = true},
    {.name = "jais-2", .expressions = {kJais2}},
    {.name = "dbrx", .expressions = {kLlama3}},
    {.name = "smaug-bpe", .expressions = {kLlama3}},
    {.name = "deepseek-llm",
     .expressions = {kNewline, kDeepseekLlm2, kDeepseekLlm3, kDeepseekLlm4, kDeepseekLlm5,
                     kDigits}},
    {.name = "deepseek-v3", .expressions = {kUpToThreeDigits, kDeepseek3Llm2, kDeepseek3Llm3}},
    {.name = "hunyuan-dense", .expressions = {kUpToThreeDigits, kDeepseek3Llm2, kDeepseek3Llm3}},
    {.name = "joyai-llm", .expressions = {kUpToThreeDigits, kDeepseek3Llm2, kDeepseek3Llm3}},
    {.name = "hy_v4", .expressions = {kUpToThreeDigits, kDeepseek3Llm2, kDeepseek3Llm3}},
    {.name = "spark2_5", .expressions = {kUpToThreeDigits, kDeepseek3Llm2, kSpark253, kDigit}},
    {.name = "youtu", .expressions = {kYoutu1, kYoutu2}, .whole_piece = true},
    {.name = "deepseek-coder",
     .expressions = {kNewline, kDeepseekCoder2, kDeepseekCoder3, kDeepseekLlm5, kDigit}},
    {.name = "falcon", .expressions = {kFalcon1, kGpt2, kThreeAsciiDigits}},
    {.name = "starcoder", .expressions = {kDigit, kGpt2}},
    {.name = "refact", .expressions = {kDigit, kGpt2}},
    {.name = "command-r", .expressions = {kDigit, kGpt2}},
    {.name = "smollm", .expressions = {kDigit, kGpt2}},
    {.name = "codeshell", .expressions = {kDigit, kGpt2}},
    {.name = "exaone", .expressions = {kDigit, kGpt2}},
    {.name = "minerva-7b", .expressions = {kDigit, kGpt2}},
    {.name = "mellum2", .expressions = {kDigit, kGpt2}},
    {.name = "gpt-2", .expressions = {kGpt2}},
    {.name = "phi-2", .expressions = {kGpt2}},
    {.name = "jina-es", .expressions = {kGpt2}},
    {.name = "jina-de", .expressions = {kGpt2}},
    {.name = "gigachat", .expressions = {kGpt2}},
    {.name = "jina-v2-es", .expressions = {kGpt2}},
    {.name = "jina-v2-de", .expressions = {kGpt2}},
    {.name = "a.x-4.0", .expressions = {kGpt2}},
    {.name = "mellum", .expressions = {kGpt2}},
    {.name = "modern-bert", .expressions = {kGpt2}},
    {.name = "jina-v1-en", .expressions = {kGpt2}, .add_sep = true},
    {.name = "jina-v2-code", .expressions = {kGpt2}, .add_sep = true},
    {.name = "roberta-bpe", .expressions = {kGpt2}, .add_sep = true},
    {.name = "exaone4", .expressions = {kGpt2}},
    {.name = "mpt", .expressions = {kGpt2}},
    {.name = "olmo", .expressions = {kGpt2}},
    {.name = "jais", .expressions = {kGpt2}},
    {.name = "trillion", .expressions = {kGpt2}},
    {.name = "granite-docling", .expressions = {kGpt2}},
    {.name = "stablelm2", .expressions = {kStablelm2}},
    {.name = "qwen2", .expressions = {kStablelm2}},
    {.name = "deepseek-r1-qwen", .expressions = {kStablelm2}},
    {.name = "kormo", .expressions = {kStablelm2}},
    {.name = "f2llmv2", .expressions = {kStablelm2}},
    {.name = "megrez", .expressions = {kStablelm2}},
    {.name = "hunyuan", .expressions = {kStablelm2}},
    {.name = "solar-open", .expressions = {kStablelm2}},
    {.name = "qwen35", .expressions = {kQwen35}},
    {.name = "poro-chat", .expressions = {kPoro}},
    {.name = "bloom", .expressions = {kPoro}},
    {.name = "gpt3-finnish", .expressions = {kPoro}},
    {.name = "chatglm-bpe", .expressions = {kLlama3}},
    {.name = "glm4", .expressions = {kLlama3}, .whole_piece = true},
    {.name = "glm5", .expressions = {kLlama3}, .whole_piece = true},
    {.name = "viking", .expressions = {kPoro, kDigit}},
    {.name = "tekken", .expressions = {kTekken}, .whole_piece = true, .add_bos = true},
    {.name = "chameleon",
     .expressions = {kChameleon1, kChameleon2, kChameleon3, kDigit, kChameleon5, kGpt2},
     .add_bos = true},
    {.name = "gpt-4o", .expressions = {kGpt4o}},
    {.name = "llama4", .expressions = {kGpt4o}},
    {.name = "kanana2", .expressions = {kGpt4o}},
    {.name = "talkie", .expressions = {kGpt4o}},
    {.name = "minimax-m2", .expressions = {kGpt4o}},
    {.name = "granite-embed-multi-97m", .expressions = {kGpt4o}, .whole_piece = true},
    {.name = "tiny_aya", .expressions = {kTinyAya1, kGpt4o}},
    {.name = "cohere2moe", .expressions = {kTinyAya1, kGpt4o}},
    {.name = "kimi-k2", .expressions = {kKimiK2}},
    {.name = "superbpe", .expressions = {kDigits, kSuperbpe2}},
    {.name = "bailingmoe", .expressions = {kBailingmoe}},
    {.name = "bailingmoe2", .expressions = {kBailingmoe}},
    {.name = "llada-moe", .expressions = {kBailingmoe}},
    {.name = "seed-coder", .expressions = {kSeedCoder}},
    {.name = "ufakzeka", .expressions = {kUfakzeka}},
    {.name = "grok-2", .expressions = {kStablelm2}},
    {.name = "afmoe", .expressions = {kAfmoe1, kAfmoe2, kDeepseek3Llm3}},
    {.name = "laguna", .expressions = {kLines, kStablelm2}},
    {.name = "exaone-moe", .expressions = {kExaoneMoe}},
    {.name = "gemma4", .expressions = {kLines}, .characters = true, .escape_spaces = true},
    {.name = "granite-embed-multi-311m",
     .expressions = {kLines},
     .characters = true,
     .escape_spaces = true},
    {.name = "sarvam-moe", .expressions = {kLines}, .characters = true, .escape_spaces = true},
    {.name = "minicpm5", .expressions = {kUpToThreeDigits, kMinicpm52}, .whole_piece = true},
    {.name = "whitespace", .expressions = {kWhitespace}, .characters = true},
    {.name = "default", .expressions = {kDefault1, kGpt2, kDigits, kThreeAsciiDigits}},
}};

}  // namespace

std::span<const PreType> PreTypes() { return kPreTypes; }

const PreType* FindPreType(std::string_view name) {
  const auto found = std::ranges::find(kPreTypes, name, &PreType::name);
  return found == kPreTypes.end() ? nullptr : &*found;
}

}  // namespace nibble
