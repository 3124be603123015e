#include "cost/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "tests/support/test_data.h"

namespace nibble {
namespace {

std::string Refusal(std::string_view text, std::optional<TraceFormat> format = {}) {
  const auto trace = ReadTrace(text, {.format = format});
  return trace ? "accepted" : trace.error().message;
}

TEST(Trace, ReadsAzuresCsvWithDatesOverMidnight) {
  const auto trace = ReadTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2024-02-28 23:59:59.5000000,4808,10\r\n"
      "2024-03-01 00:00:01.2500000,3180,8\r\n"
      "\r\n");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, TraceFormat::kAzure);
  EXPECT_TRUE(trace->has_arrivals);
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[0].input_tokens, 4808);
  EXPECT_EQ(trace->requests[1].output_tokens, 8);
  EXPECT_EQ(trace->requests[0].arrival_s, 0);
  EXPECT_NEAR(trace->requests[1].arrival_s, 86400 + 1.75, 1e-6);  // 2024 has a 29th of February
}

TEST(Trace, ReadsTheOtherFormats) {
  const auto vidur = ReadTrace("arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,7,2\n1,8,3\n");
  ASSERT_TRUE(vidur) << vidur.error().message;
  EXPECT_EQ(vidur->format, TraceFormat::kVidur);
  EXPECT_EQ(vidur->requests[0].input_tokens, 8);  // by arrival
  EXPECT_DOUBLE_EQ(vidur->requests[1].arrival_s, 0.5);

  const auto lengths = ReadTrace(
      "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.8");
  ASSERT_TRUE(lengths) << lengths.error().message;
  EXPECT_EQ(lengths->format, TraceFormat::kVidur);
  EXPECT_FALSE(lengths->has_arrivals);
  EXPECT_EQ(lengths->requests[0].output_tokens, 54);

  const auto sharegpt = ReadTrace("arrival_time_ns,input_toks,output_toks\n46926808,2358,531\n");
  ASSERT_TRUE(sharegpt) << sharegpt.error().message;
  EXPECT_EQ(sharegpt->format, TraceFormat::kServingSim);

  const auto mooncake = ReadTrace(
      "{\"timestamp\": 1000, \"input_length\": 1200, \"output_length\": 6, \"hash_ids\": [0, 7]}\n"
      "{\"timestamp\": 3500, \"input_length\": 20, \"output_length\": 4, \"hash_ids\": []}\n");
  ASSERT_TRUE(mooncake) << mooncake.error().message;
  EXPECT_EQ(mooncake->format, TraceFormat::kMooncake);
  EXPECT_EQ(mooncake->requests[0].blocks, (std::vector<int64_t>{0, 7}));
  EXPECT_DOUBLE_EQ(mooncake->requests[1].arrival_s, 2.5);

  const auto measured = ReadTrace("{\"input_toks\": 3, \"output_toks\": 2, \"arrival_time\": 9}\n");
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_TRUE(measured->has_arrivals);
  const auto plain = ReadTrace("{\"input_toks\": 3, \"output_toks\": 2}\n");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->format, TraceFormat::kJsonl);
  EXPECT_FALSE(plain->has_arrivals);
}

TEST(Trace, ReadsWhatServeWrites) {
  const std::string head = "{\"nibble_trace\": 1, \"block_tokens\": 4, \"model\": \"m\"}\n";
  const auto trace = ReadTrace(head +
                               "{\"arrival_time_ns\": 3000000000, \"input_toks\": 9, "
                               "\"output_toks\": 2, \"hash_ids\": [7, 8]}\n"
                               "{\"arrival_time_ns\": 1000000000, \"input_toks\": 5, "
                               "\"output_toks\": 3, \"hash_ids\": [7], \"priority\": 1}\n");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->format, TraceFormat::kNibble);
  EXPECT_TRUE(trace->has_arrivals);
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_DOUBLE_EQ(trace->requests[1].arrival_s, 2);
  // Alike as far as the first block of four tokens goes.
  const auto first = TracePrompt(trace->requests[0], 0, 1000, 1);
  const auto second = TracePrompt(trace->requests[1], 1, 1000, 1);
  ASSERT_EQ(second.size(), 9U);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 4, second.begin()));
  EXPECT_NE(first[4], second[4]);
  for (const char* bad : {"{\"nibble_trace\": 2, \"block_tokens\": 4}\n",
                          "{\"nibble_trace\": 1, \"block_tokens\": 0}\n", "{\"nibble_trace\": 1}\n",
                          "{\"nibble_trace\": 1\n"}) {
    EXPECT_EQ(Refusal(bad).substr(0, 6), "line 1");
  }
  EXPECT_FALSE(ReadTrace(head));  // no requests
}

TEST(Trace, ALimitTakesTheBeginningOfTheFile) {
  const std::string text = "{\"input_toks\": 3, \"output_toks\": 2}\nrubbish";
  EXPECT_FALSE(ReadTrace(text));
  const auto limited = ReadTrace(text, {.limit = 1});
  ASSERT_TRUE(limited) << limited.error().message;
  EXPECT_EQ(limited->requests.size(), 1U);
}

TEST(Trace, RefusesWrongFilesByLineAndColumn) {
  const auto has = [](const std::string& message, std::initializer_list<const char*> words) {
    for (const char* word : words) {
      if (message.find(word) == message.npos) ADD_FAILURE() << message << " does not say " << word;
    }
  };
  const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  has(Refusal(""), {"line 1"});
  has(Refusal(azure), {"no requests"});
  has(Refusal("a,b,c\n1,2,3\n"), {"line 1", "'a,b,c'"});
  has(Refusal(azure + "2023-11-16 18:17:03,5\n"), {"line 2", "3 fields", "found 2"});
  has(Refusal(azure + "2023-11-16 18:17:03,5,x\n"), {"line 2", "GeneratedTokens", "'x'"});
  has(Refusal(azure + "2023-11-16 18:17:03,-5,1\n"), {"line 2", "ContextTokens", "'-5'"});
  has(Refusal(azure + "2023-11-16 18:17:03,99999999,1\n"), {"16777216", "99999999"});
  has(Refusal(azure + "2023-13-16 18:17:03,5,1\n"), {"line 2", "TIMESTAMP", "2023-13-16"});
  has(Refusal(azure + "yesterday,5,1\n"), {"line 2", "TIMESTAMP", "'yesterday'"});
  has(Refusal("arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,1\n"), {"arrived_at", "nan"});
  has(Refusal("{\"input_length\": 2, \"output_length\": 1}"), {"line 1", "'timestamp'"});
  has(Refusal("{\"input_toks\": 2.5, \"output_toks\": 1}"), {"line 1", "'input_toks'", "2.5"});
  has(Refusal("{\"input_toks\": 2, \"output_toks\": 1, \"hash_ids\": [\"a\"]}"), {"'hash_ids'"});
  has(Refusal("{\"input_toks\": 2, \"output_toks\": 1}\n"
              "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time\": 3}\n"),
      {"line 2", "in every line"});
  has(Refusal("a,b\n", TraceFormat::kVidur), {"line 1", "num_prefill_tokens"});
}

TEST(Trace, ARateStretchesTimesOrMakesThem) {
  auto trace = ReadTrace("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n1,1,1\n4,1,1\n");
  ASSERT_TRUE(trace);
  SetRate(*trace, 0.5, 1);  // 3 requests in 6 seconds
  EXPECT_DOUBLE_EQ(trace->requests[1].arrival_s, 1.5);
  EXPECT_DOUBLE_EQ(trace->requests[2].arrival_s, 6);

  std::string text = "num_prefill_tokens,num_decode_tokens\n";
  for (int i = 0; i < 4000; ++i) text += "1,1\n";
  auto poisson = ReadTrace(text);
  ASSERT_TRUE(poisson);
  auto other = *poisson;
  SetRate(*poisson, 20, 1);
  SetRate(other, 20, 2);
  double squares = 0;
  for (size_t i = 1; i < 4000; ++i) {
    const double gap = poisson->requests[i].arrival_s - poisson->requests[i - 1].arrival_s;
    EXPECT_GT(gap, 0);
    squares += gap * gap;
  }
  EXPECT_NEAR(poisson->requests.back().arrival_s, 200, 16);  // 5 standard deviations
  EXPECT_NEAR(squares / 4000 * 400, 2, 0.5);                 // exponential: twice the mean squared
  EXPECT_NE(other.requests[9].arrival_s, poisson->requests[9].arrival_s);
}

TEST(Trace, PromptsOfTheSameBlocksBeginAlike) {
  const TraceRequest a{.input_tokens = 1100, .output_tokens = 1, .blocks = {3, 4, 5}};
  const TraceRequest b{.input_tokens = 1200, .output_tokens = 1, .blocks = {3, 9}};
  const std::vector<TokenId> one = TracePrompt(a, 0, 50, 1), two = TracePrompt(b, 1, 50, 1);
  ASSERT_EQ(one.size(), 1100U);
  ASSERT_EQ(two.size(), 1200U);
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 512, two.begin()));
  EXPECT_FALSE(std::equal(one.begin() + 512, one.begin() + 544, two.begin() + 512));
  EXPECT_EQ(one, TracePrompt(a, 7, 50, 1));  // nothing is its own
  EXPECT_NE(two, TracePrompt(b, 7, 50, 1));  // tokens behind the blocks are
  EXPECT_NE(one, TracePrompt(a, 0, 50, 2));
  const std::set<TokenId> ids(one.begin(), one.end());
  EXPECT_EQ(ids.size(), 50U);
  EXPECT_EQ(*ids.begin(), TokenId{0});
  EXPECT_EQ(*ids.rbegin(), TokenId{49});
}

TEST(Trace, ASharedPrefixIsSharedAndTheRestIsNot) {
  const Trace trace = SharedPrefixTrace(40, 1024, 64, 3, 5);
  ASSERT_EQ(trace.requests.size(), 40U);
  const auto first = TracePrompt(trace.requests[0], 0, 1000, 5);
  for (size_t i = 1; i < 40; ++i) {
    EXPECT_GT(trace.requests[i].input_tokens, 1024);
    EXPECT_LE(trace.requests[i].input_tokens, 1088);
    const auto prompt = TracePrompt(trace.requests[i], i, 1000, 5);
    EXPECT_TRUE(std::equal(first.begin(), first.begin() + 1024, prompt.begin()));
  }
}

// The published files, as far as they are there.
TEST(Trace, ReadsPublishedTraces) {
  struct Case {
    const char* file;
    TraceFormat format;
    size_t requests;
  };
  const Case cases[] = {
      {"traces/azure2023/AzureLLMInferenceTrace_code.csv", TraceFormat::kAzure, 8819},
      {"traces/mooncake/synthetic_trace.jsonl", TraceFormat::kMooncake, 3993},
      {"traces/servingsim/sharegpt_lengths_300_sps10.csv", TraceFormat::kServingSim, 300},
      {"traces/servingsim/vllm_measured_RTX4090_Llama-3.1-8B.jsonl", TraceFormat::kJsonl, 300},
      {"traces/vidur/arxiv_summarization_first2000.csv", TraceFormat::kVidur, 2000},
      {"traces/vidur/splitwise_code.csv", TraceFormat::kVidur, 8819}};
  for (const Case& expected : cases) {
    NIBBLE_SHARED_OR_SKIP(path, expected.file);
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto trace = ReadTrace(text);
    ASSERT_TRUE(trace) << expected.file << ": " << trace.error().message;
    EXPECT_EQ(trace->format, expected.format) << expected.file;
    EXPECT_EQ(trace->requests.size(), expected.requests) << expected.file;
  }
}

}  // namespace
}  // namespace nibble
