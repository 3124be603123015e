#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/utf8.h"
#include "tests/support/test_data.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/load.h"

namespace nibble {
namespace {

// Byte-level BPE: the 256 bytes in order, "ab", "abc", " a", and two added tokens.
std::string ByteJson() {
  std::string vocabulary;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    AppendByteLevel(piece, static_cast<unsigned char>(b));
    if (piece == "\"" || piece == "\\") piece = "\\" + piece;
    vocabulary += fmt::format("\"{}\":{},", piece, b);
  }
  vocabulary += R"("ab":256,"abc":257,"Ġa":258)";
  return R"({"added_tokens":[{"id":259,"content":"<|end|>","special":true},)"
         R"({"id":260,"content":"<tool>","special":false}],)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
         R"("decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","vocab":{)" +
         vocabulary + R"(},"merges":["a b","ab c","Ġ a"]}})";
}

Tokenizer ByteTokenizer() {
  auto tokenizer = ParseTokenizerJson(ByteJson());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *std::move(tokenizer);
}

std::vector<int> Encode(const Tokenizer& tokenizer, std::string_view text,
                        EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  std::vector<int> out;
  if (ids) {
    for (const TokenId id : *ids) out.push_back(id.value());
  }
  return out;
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = ByteTokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.Bytes(TokenId{258}), " a");
  EXPECT_EQ(tokenizer.Piece(TokenId{258}), "Ġa");
  EXPECT_EQ(tokenizer.Bytes(TokenId{0xE9}), "\xE9");
  EXPECT_EQ(tokenizer.Bytes(TokenId{261}), "");
  EXPECT_EQ(tokenizer.Bytes(TokenId{-1}), "");
  EXPECT_EQ(tokenizer.Find("<|end|>"), TokenId{259});
  EXPECT_FALSE(tokenizer.Find("nothing"));
  EXPECT_TRUE(tokenizer.IsControl(TokenId{259}));
  EXPECT_FALSE(tokenizer.IsControl(TokenId{260}));
  EXPECT_TRUE(tokenizer.IsEnd(TokenId{259}));
  EXPECT_FALSE(tokenizer.IsEnd(TokenId{256}));
}

TEST(Tokenizer, EndTokensGrow) {
  Tokenizer tokenizer = ByteTokenizer();
  tokenizer.AddEndTokens(std::vector<TokenId>{TokenId{7}, TokenId{100000}, TokenId{7}});
  EXPECT_EQ(tokenizer.end_tokens().size(), 2U);
  EXPECT_TRUE(tokenizer.IsEnd(TokenId{7}));
}

TEST(Tokenizer, ParsesSpecialTextOnDemand) {
  const Tokenizer tokenizer = ByteTokenizer();
  EXPECT_EQ(Encode(tokenizer, "abc<|end|>"), (std::vector<int>{257, 259}));
  EXPECT_EQ(Encode(tokenizer, "<|end|>", {.parse_special = false}).size(), 7U);
  EXPECT_EQ(Encode(tokenizer, "<tool>", {.parse_special = false}), (std::vector<int>{260}));
}

TEST(Tokenizer, ATextBeyondABoundIsNotCutToItsEnd) {
  const Tokenizer tokenizer = ByteTokenizer();
  // In words, as one word, and as added tokens, which are no text for the expression.
  std::string words, marks;
  for (int i = 0; i < 5000; ++i) {
    words += " a";
    marks += "<tool>";
  }
  for (const std::string& text : {words, std::string(20000, 'a'), marks}) {
    const auto ids = Encode(tokenizer, text);
    EXPECT_EQ(Encode(tokenizer, text, {.most_tokens = ids.size()}), ids);
    EXPECT_GT(Encode(tokenizer, text, {.most_tokens = ids.size() - 1}).size(), ids.size() - 1);
    for (const size_t most : {ids.size() / 10, size_t{0}}) {
      EXPECT_EQ(Encode(tokenizer, text, {.most_tokens = most}).size(), most + 1) << text[1];
    }
  }
}

TEST(Tokenizer, ABoundHoldsBehindAStepThatLeavesTextOut) {
  const std::string json =
      R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
      R"({"type":"Split","pattern":{"String":"x"},"behavior":"Isolated"},)"
      R"({"type":"Split","pattern":{"String":"x"},"behavior":"Removed"}]},)"
      R"("model":{"type":"WordLevel","vocab":{"[UNK]":0,"y":1},"unk_token":"[UNK]"}})";
  const auto tokenizer = ParseTokenizerJson(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  // The first step has a hundred pieces, the second takes all but one away.
  EXPECT_EQ(Encode(*tokenizer, std::string(100, 'x') + "y", {.most_tokens = 5}),
            std::vector<int>{1});
}

TEST(Tokenizer, AnyBytesGoThroughByteLevelModels) {
  const Tokenizer tokenizer = ByteTokenizer();
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  for (const std::string& text :
       {all, std::string("ab\xFF\xFE abc\xE2\x82"), std::string("\xC3")}) {
    const auto ids = tokenizer.Encode(text);
    ASSERT_TRUE(ids);
    EXPECT_EQ(tokenizer.Decode(*ids), text);
  }
}

TEST(StreamingDetokenizer, NeverEmitsHalfACharacter) {
  const Tokenizer tokenizer = ByteTokenizer();
  StreamingDetokenizer stream(tokenizer);
  const std::string text = "aé漢😀b";
  std::string out;
  for (const char c : text) {
    const std::string part = stream.Add(TokenId{static_cast<uint8_t>(c)});
    EXPECT_TRUE(IsValidUtf8(part));
    out += part;
  }
  EXPECT_EQ(stream.pending_bytes(), 0U);
  EXPECT_EQ(out + stream.Flush(), text);
}

TEST(StreamingDetokenizer, ReplacesWhatCannotBecomeACharacter) {
  const Tokenizer tokenizer = ByteTokenizer();
  StreamingDetokenizer stream(tokenizer);
  EXPECT_EQ(stream.Add(TokenId{0xE6}), "");
  EXPECT_EQ(stream.Add(TokenId{0xBC}), "");
  EXPECT_EQ(stream.Add(TokenId{'a'}), "\uFFFDa");
  EXPECT_EQ(stream.Add(TokenId{0xFF}), "\uFFFD");
  EXPECT_EQ(stream.Add(TokenId{0xF0}), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(StreamingDetokenizer, ControlTokensShowOnDemand) {
  const Tokenizer tokenizer = ByteTokenizer();
  StreamingDetokenizer hidden(tokenizer);
  EXPECT_EQ(hidden.Add(TokenId{259}), "");
  StreamingDetokenizer shown(tokenizer, {.skip_special = false});
  EXPECT_EQ(shown.Add(TokenId{259}), "<|end|>");
}

TEST(TokenTrie, HoldsEveryTokenOnce) {
  const Tokenizer tokenizer = ByteTokenizer();
  const TokenTrie trie(tokenizer);
  const auto nodes = trie.nodes();
  size_t found = 0;
  for (const TokenTrie::Node& node : nodes) found += trie.TokensAt(node).size();
  EXPECT_EQ(found, 260U);  // all but the control token
  EXPECT_EQ(nodes[0].subtree_end, nodes.size());
  for (const int id : {256, 257, 258, 260, 0x61, 0xFF}) {
    const auto node = trie.Walk(tokenizer.Bytes(TokenId{id}));
    ASSERT_TRUE(node);
    EXPECT_EQ(trie.TokensAt(nodes[*node])[0], TokenId{id});
  }
  EXPECT_FALSE(trie.Walk("abd"));
  const auto ab = trie.Walk("ab");
  EXPECT_EQ(nodes[*ab].subtree_end - *ab, 2U);  // itself and "abc"
}

// Inputs on which a naive merge loop, search or expression takes quadratic time. Nothing is timed:
// the test's own limit is what fails.
TEST(Tokenizer, LongRunsTakeLinearTime) {
  const Tokenizer tokenizer = ByteTokenizer();
  for (const char* unit : {"a", "ab", " ", "7", "\n", "\xFF", "<", "abc<|end", " a"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += unit;
    const auto ids = tokenizer.Encode(text);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_TRUE(tokenizer.Decode(*ids) == text) << unit;
  }
}

struct BadCase {
  const char* what;
  const char* json;
  const char* message;
};

class BadTokenizerJson : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadTokenizerJson, IsRefusedWithAReason) {
  const auto tokenizer = ParseTokenizerJson(GetParam().json);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().kind, ErrorKind::kBadInput);
  EXPECT_NE(tokenizer.error().message.find(GetParam().message), std::string::npos)
      << tokenizer.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadTokenizerJson,
    ::testing::Values(
        BadCase{"truncated", R"({"model":{"type":"BPE","vocab":{"a":)", ""},
        BadCase{"no model", R"({"version":"1.0"})", "'model' is missing"},
        BadCase{"unknown model", R"({"model":{"type":"Magic","vocab":{}}})", "'Magic'"},
        BadCase{"negative id", R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})", "-1"},
        BadCase{"huge id", R"({"model":{"type":"BPE","vocab":{"a":99999999},"merges":[]}})",
                "99999999"},
        BadCase{"same id twice", R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})",
                "same id 0"},
        BadCase{"merge of unknown part",
                R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a c"]}})", "merges[0]"},
        BadCase{"merge without result",
                R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}})",
                "'ab' is not in the vocabulary"},
        BadCase{"merge of three", R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}})",
                "merges[0]"},
        BadCase{"cyclic merge",
                R"({"model":{"type":"BPE","continuing_subword_prefix":"##",)"
                R"("vocab":{"a":0,"##":1},"merges":["a ##"]}})",
                "cycle"},
        BadCase{"no merges", R"({"model":{"type":"BPE","vocab":{"a":0}}})", "'merges'"},
        BadCase{"vocabulary is a number", R"({"model":{"type":"BPE","vocab":3,"merges":[]}})",
                "object"},
        BadCase{"unk not there",
                R"({"model":{"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}})",
                "unk_token"},
        BadCase{"bad expression",
                R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},)"
                R"("behavior":"Isolated"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "(a"},
        BadCase{"bad behaviour",
                R"({"pre_tokenizer":{"type":"Split","pattern":{"String":"a"},)"
                R"("behavior":"Eaten"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "Eaten"},
        BadCase{"unknown step",
                R"({"normalizer":{"type":"Shout"},)"
                R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "Shout"},
        BadCase{"added id of another token",
                R"({"added_tokens":[{"id":0,"content":"b"}],)"
                R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "added_tokens[0]"},
        BadCase{"template id out of range",
                R"({"post_processor":{"type":"TemplateProcessing","single":)"
                R"([{"SpecialToken":{"id":"x","type_id":0}}],"special_tokens":)"
                R"({"x":{"id":"x","ids":[9],"tokens":["x"]}}},)"
                R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "token id 9"},
        BadCase{"charsmap of nonsense",
                R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},)"
                R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]}})",
                "precompiled_charsmap"}),
    [](const auto& info) {
      std::string name = info.param.what;
      for (char& c : name) c = c == ' ' ? '_' : c;
      return name;
    });

TEST(Tokenizer, HostileExpressionsAreStopped) {
  const auto tokenizer = ParseTokenizerJson(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|a)*(a|aa)*[bc]"},)"
      R"("behavior":"Isolated"},"model":{"type":"WordLevel","unk_token":"a","vocab":{"a":0}}})");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = tokenizer->Encode(std::string(4000, 'a'));
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("(a|a)*(a|aa)*[bc]"), std::string::npos)
      << ids.error().message;
}

TEST(Tokenizer, CharactersWithoutATokenAreNamed) {
  const auto tokenizer = ParseTokenizerJson(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[\\s\\S]"},"behavior":"Isolated"},)"
      R"("decoder":{"type":"Fuse"},"model":{"type":"WordLevel","vocab":{"a":0,"b":1}}})");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(Encode(*tokenizer, "abba"), (std::vector<int>{0, 1, 1, 0}));
  const auto ids = tokenizer->Encode("abc");
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("'c'"), std::string::npos) << ids.error().message;
}

TEST(Tokenizer, ConfigurationSetsMarksAndTemplate) {
  const auto tokenizer = ParseTokenizerJson(
      R"({"added_tokens":[{"id":1,"content":"<s>","special":true},)"
      R"({"id":2,"content":"</s>","special":true}],)"
      R"("model":{"type":"WordLevel","unk_token":"x","vocab":{"x":0}}})",
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","add_bos_token":true,)"
      R"("add_eos_token":true,"chat_template":[{"name":"tool","template":"T"},)"
      R"({"name":"default","template":"D"}],"model_max_length":1000000000000000019884624838656})");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(Encode(*tokenizer, "x"), (std::vector<int>{1, 0, 2}));
  EXPECT_EQ(Encode(*tokenizer, "x", {.add_special = false}), (std::vector<int>{0}));
  EXPECT_TRUE(tokenizer->adds_bos() && tokenizer->adds_eos());
  EXPECT_EQ(tokenizer->bos(), TokenId{1});
  EXPECT_EQ(tokenizer->chat_template(), "D");
  EXPECT_TRUE(tokenizer->IsEnd(TokenId{2}));
}

class DamagedFile : public ::testing::TestWithParam<const char*> {};

// Every prefix and every changed byte is read or refused; nothing else.
TEST_P(DamagedFile, NeverCrashes) {
  NIBBLE_SHARED_OR_SKIP(path, std::string("tokenizers/neural-api/") + GetParam());
  const std::string bytes = testing::ReadFile(path);
  const testing::TempDir folder;
  const auto target = folder.path() / path.filename();
  const auto check = [&](const std::string& damaged) {
    FILE* out = fopen(target.c_str(), "wb");
    fwrite(damaged.data(), 1, damaged.size(), out);
    fclose(out);
    const auto tokenizer = LoadTokenizer(target);
    if (!tokenizer) {
      EXPECT_FALSE(tokenizer.error().message.empty());
      return;
    }
    const auto ids = tokenizer->Encode("the cat 123 é<s>");
    if (ids) {
      EXPECT_LT(tokenizer->Decode(*ids).size(), 100000U);
    }
  };
  const size_t step = bytes.size() / 150 + 1;
  for (size_t i = 0; i < bytes.size(); i += step) {
    check(bytes.substr(0, i));
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    check(changed);
  }
}
INSTANTIATE_TEST_SUITE_P(All, DamagedFile,
                         ::testing::Values("tiny_spm.model", "tiny_spm_bpe.model",
                                           "tiny_spm_bytefallback.model",
                                           "tiny_unigram_tokenizer.json",
                                           "tiny_bpe_split_deepseek_tokenizer.json"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

TEST(LoadTokenizer, NamesWhatIsMissing) {
  const testing::TempDir folder;
  const auto empty = LoadTokenizer(folder.path());
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("tokenizer.json"), std::string::npos);
  EXPECT_FALSE(LoadTokenizer(folder.path() / "none.json"));
}

}  // namespace
}  // namespace nibble
