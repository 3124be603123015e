// Token ids of published tokenizers against references that others made (../shared/data).
#include <array>
#include <cstdlib>

#include "container/json.h"
#include "tests/support/test_data.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

std::vector<int> Values(const std::vector<TokenId>& ids) {
  std::vector<int> out;
  for (const TokenId id : ids) out.push_back(id.value());
  return out;
}

std::vector<int> IntList(JsonValue json) {
  std::vector<int> out;
  const auto list = json.AsArray();
  if (!list) return out;
  for (const JsonValue item : *list) out.push_back(static_cast<int>(item.AsInt().value_or(-1)));
  return out;
}

std::string Text(JsonValue json, std::string_view key) {
  return std::string(json.GetString(key).value_or(""));
}

std::vector<std::string> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string> out;
  size_t start = 0;
  for (size_t at; (at = text.find(separator, start)) != std::string_view::npos;) {
    out.emplace_back(text.substr(start, at - start));
    start = at + separator.size();
  }
  out.emplace_back(text.substr(start));
  return out;
}

std::string ReplaceAll(std::string text, std::string_view from, std::string_view to) {
  std::string out;
  for (const std::string& part : Split(text, from)) {
    if (!out.empty() || !text.starts_with(part)) out += to;
    out += part;
  }
  return out;
}

// A bound tells texts that keep it, which have the ids they always have, from others.
void ExpectBounds(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  const auto all = tokenizer.Encode(text, options);
  ASSERT_TRUE(all) << all.error().message;
  const size_t n = all->size();
  for (const size_t most : {size_t{0}, size_t{1}, n / 3, n - std::min(n, size_t{1}), n, n + 7}) {
    options.most_tokens = most;
    const auto some = tokenizer.Encode(text, options);
    ASSERT_TRUE(some) << some.error().message;
    if (n <= most) {
      EXPECT_EQ(*some, *all) << most << ": " << text;
    } else {
      EXPECT_GT(some->size(), most) << n << ": " << text;
    }
  }
}

class GgufVocabulary : public ::testing::TestWithParam<const char*> {};

// llama.cpp's own cases: texts between separators, ids of Hugging Face's tokenizers.
TEST_P(GgufVocabulary, GivesTheReferencesIds) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers/gguf-vocab");
  const fs::path path = folder / (std::string("ggml-vocab-") + GetParam() + ".gguf");
  const auto tokenizer = LoadTokenizer(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto texts = Split(testing::ReadFile(path.string() + ".inp"), "\n__ggml_vocab_test__\n");
  const auto lines = Split(testing::ReadFile(path.string() + ".out"), "\n");
  ASSERT_GE(lines.size(), texts.size());
  ASSERT_GT(texts.size(), 40U);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int> want;
    for (const std::string& id : Split(lines[i], " ")) {
      if (!id.empty()) want.push_back(std::atoi(id.c_str()));
    }
    const auto ids = tokenizer->Encode(texts[i], {.add_special = false, .parse_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(Values(*ids), want) << texts[i];
    ExpectBounds(*tokenizer, texts[i], {.add_special = false, .parse_special = false});
  }
}
INSTANTIATE_TEST_SUITE_P(All, GgufVocabulary,
                         ::testing::Values("bert-bge", "deepseek-coder", "gpt-2", "llama-spm"));

TEST(TokenizerData, HuggingFaceCases) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers/neural-api");
  const auto document = JsonDocument::ReadFile((folder / "hf_tokenizer_cases.json").string());
  ASSERT_TRUE(document) << document.error().message;
  int count = 0;
  const JsonObject groups = *document->root().AsObject();
  for (const auto [name, group] : groups) {
    const auto tokenizer = LoadTokenizer(folder / Text(group, "tokenizer"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const bool unigram_file = Text(group, "tokenizer").ends_with(".model");
    const JsonArray rows = *group.Find("cases")->AsArray();
    for (const JsonValue row : rows) {
      const std::string text = Text(row, "text");
      const auto ids = tokenizer->Encode(text, {.add_special = false});
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(Values(*ids), IntList(*row.Find("ids"))) << name << ": " << text;
      ExpectBounds(*tokenizer, text, {});
      EXPECT_EQ(tokenizer->Decode(*ids, {.skip_special = !unigram_file}), Text(row, "decoded"))
          << name << ": " << text;
      ++count;
    }
  }
  EXPECT_GT(count, 250);
}

// "▁" for a space; a text begins with the encoder's own space, which is not in the source.
std::string MistralSource(const std::string& debug_text, bool marks_are_tokens) {
  std::vector<std::string> marks = {"<s>", "</s>"};
  if (marks_are_tokens) {
    for (const char* mark : {"[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
                             "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"}) {
      marks.emplace_back(mark);
    }
  }
  std::string text = ReplaceAll(ReplaceAll(debug_text, "▁", " "), "<0x0A>", "\n");
  for (const std::string& mark : marks) text = ReplaceAll(text, mark + " ", mark);
  return text;
}

TEST(TokenizerData, MistralSamples) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers/mistral");
  int count = 0;
  for (const auto& [version, file] : std::array<std::array<const char*, 2>, 3>{
           {{"v1", "tokenizer.model.v1"},
            {"v2", "mistral_instruct_tokenizer_240323.model.v3"},
            {"v3", "mistral_instruct_tokenizer_240323.model.v3"}}}) {
    const auto tokenizer = LoadTokenizer(folder / file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const auto& sample : fs::directory_iterator(folder / "samples")) {
      const fs::path text = sample.path() / (std::string("text_") + version + ".txt");
      if (!fs::exists(text)) continue;
      const auto document = JsonDocument::ReadFile(
          (sample.path() / (std::string("tokens_") + version + ".json")).string());
      ASSERT_TRUE(document) << document.error().message;
      const JsonValue root = document->root();
      const auto want = IntList(root.is_array() ? root : *root.Find("tokens"));
      const std::string source =
          MistralSource(testing::ReadFile(text), std::string_view(version) != "v1");
      const auto ids = tokenizer->Encode(source, {.add_special = false});
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(Values(*ids), want) << text;
      ExpectBounds(*tokenizer, source, {.add_special = false});
      ++count;
    }
  }
  EXPECT_GT(count, 10);
}

// The first 200,000 characters, line ends as Python's text mode reads them.
std::string WikiText(const fs::path& path) {
  std::string text = ReplaceAll(testing::ReadFile(path), "\r\n", "\n");
  size_t characters = 0;
  size_t end = 0;
  for (; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && ++characters > 200000) break;
  }
  return text.substr(0, end);
}

void ExpectWikiIds(const fs::path& model, const char* ids_file) {
  NIBBLE_SHARED_OR_SKIP(wiki, "corpora/wikitext-2-raw/wiki.test.raw");
  NIBBLE_SHARED_OR_SKIP(ids_path, std::string("models/real/") + ids_file);
  const auto tokenizer = LoadTokenizer(model);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto document = JsonDocument::ReadFile(ids_path.string());
  ASSERT_TRUE(document) << document.error().message;
  const std::string text = WikiText(wiki);
  const auto ids = tokenizer->Encode(text, {.add_special = false});
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_TRUE(Values(*ids) == IntList(document->root()));
  EXPECT_TRUE(tokenizer->Decode(*ids) == text);
  ExpectBounds(*tokenizer, text, {.add_special = false});
}

TEST(TokenizerData, SmolLm2OnWikiText) {
  NIBBLE_PULLED_OR_SKIP(model, "SmolLM2-135M-Instruct.Q4_1.gguf");
  ExpectWikiIds(model, "smollm2-135m.wiki_ids.json");
}

TEST(TokenizerData, Gemma3OnWikiText) {
  NIBBLE_PULLED_OR_SKIP(model, "gemma-3-270m-q4_k_m.gguf");
  ExpectWikiIds(model, "gemma3-270m.wiki_ids.json");
}

// Cases that no one published ids for: tools/make_tokenizer_goldens.py.
TEST(TokenizerData, PublishedGoldens) {
  NIBBLE_SHARED_OR_SKIP(folder, "tokenizers");
  const auto document =
      JsonDocument::ReadFile(testing::SourcePath("tests/golden/tokenizer/published.json").string());
  ASSERT_TRUE(document) << document.error().message;
  const JsonArray groups = *document->root().AsArray();
  for (const JsonValue group : groups) {
    const std::string file = Text(group, "file");
    const auto tokenizer = LoadTokenizer(folder / file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const JsonArray rows = *group.Find("cases")->AsArray();
    for (const JsonValue row : rows) {
      const std::string text = Text(row, "text");
      // SentencePiece itself knows no marks in a text.
      const bool parse = file.find(".model") == std::string::npos;
      const auto ids = tokenizer->Encode(text, {.add_special = false, .parse_special = parse});
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(Values(*ids), IntList(*row.Find("ids"))) << file << ": " << text;
      ExpectBounds(*tokenizer, text, {.parse_special = parse});
    }
  }
}

TEST(TokenizerData, SyntheticGoldens) {
  const auto document =
      JsonDocument::ReadFile(testing::SourcePath("tests/golden/tokenizer/synthetic.json").string());
  ASSERT_TRUE(document) << document.error().message;
  int groups = 0;
  const JsonArray elements = *document->root().AsArray();
  for (const JsonValue group : elements) {
    const std::string name = Text(group, "name");
    const auto tokenizer = ParseTokenizerJson(group.Find("tokenizer")->ToString());
    ASSERT_TRUE(tokenizer) << name << ": " << tokenizer.error().message;
    const JsonArray rows = *group.Find("cases")->AsArray();
    for (const JsonValue row : rows) {
      const std::string text = Text(row, "text");
      const auto ids = tokenizer->Encode(text);
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(Values(*ids), IntList(*row.Find("ids"))) << name << ": " << text;
      if (row.Find("decoded")) {
        EXPECT_EQ(tokenizer->Decode(*ids), Text(row, "decoded")) << name << ": " << text;
      }
      const auto plain = tokenizer->Encode(text, {.add_special = false, .parse_special = false});
      ASSERT_TRUE(plain) << plain.error().message;
      EXPECT_EQ(Values(*plain), IntList(*row.Find("plain"))) << name << ": " << text;
      ExpectBounds(*tokenizer, text, {});
    }
    ++groups;
  }
  EXPECT_GT(groups, 70);
}

// GPT-2's prompts of ggml: "text => ids".
TEST(TokenizerData, GgmlPromptsOfGpt2) {
  NIBBLE_SHARED_OR_SKIP(prompts, "corpora/ggml-prompts/gpt-2.txt");
  NIBBLE_SHARED_OR_SKIP(vocabulary, "tokenizers/gpt2/encoder.json");
  const auto tokenizer = LoadTokenizer(vocabulary);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  int count = 0;
  for (const std::string& line : Split(testing::ReadFile(prompts), "\n")) {
    const size_t arrow = line.rfind(" => ");
    if (arrow == std::string::npos) continue;
    std::vector<int> want;
    for (const std::string& id : Split(line.substr(arrow + 4), ",")) {
      want.push_back(std::atoi(id.c_str()));
    }
    const auto ids = tokenizer->Encode(line.substr(0, arrow), {.add_special = false});
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(Values(*ids), want) << line;
    ++count;
  }
  EXPECT_GT(count, 50);
}

}  // namespace
}  // namespace nibble
