// Random schedules over real models; fuzz/schedule_fuzz.cc goes on for ever.
#include "tests/schedule/schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/schedule/file_model.h"
#include "tests/support/test_data.h"

namespace nibble::testing {
namespace {

// Under clang's sanitizers each format is met once and briefly.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NIBBLE_SCHEDULE_BRIEF 1
#endif
#endif
#ifdef NIBBLE_SCHEDULE_BRIEF
constexpr bool kBrief = true;
#else
constexpr bool kBrief = false;
#endif

struct Plan {
  int max_context = 400;
  uint32_t first_seed = 0;
  int sets = 1;       // of questions, for each format
  int schedules = 6;  // of each
};

ScheduleCounts& operator+=(ScheduleCounts& to, const ScheduleCounts& from) {
  to.steps += from.steps;
  to.preemptions += from.preemptions;
  to.cached_tokens += from.cached_tokens;
  to.forked_tokens += from.forked_tokens;
  to.cancelled += from.cancelled;
  to.longest = std::max(to.longest, from.longest);
  return to;
}

ScheduleCounts RunSets(FileModel& model, const Plan& plan, uint32_t seed) {
  ScheduleCounts counts;
  for (int set = 0; set < plan.sets; ++set) {
    std::mt19937 random(seed + static_cast<uint32_t>(set));
    const Pick pick = [&](int low, int high) {
      return low + static_cast<int>(random() % static_cast<uint32_t>(high - low + 1));
    };
    std::vector<Question> questions =
        MakeQuestions(pick, 9, model.vocabulary(), model.max_context());
    AskAlone(model, questions);
    const int schedules = kBrief ? 1 : plan.schedules;
    for (int schedule = 0; schedule < schedules; ++schedule) {
      const auto problem = RunSchedule(pick, model, questions, counts);
      EXPECT_FALSE(problem) << *problem << ", seed " << seed << ", set " << set << ", schedule "
                            << schedule;
      if (problem) return counts;
    }
  }
  return counts;
}

// A format and the arithmetic it is met under.
struct Form {
  KvFormats kv;
  Act act = Act::kInt8;
};

bool Seals(const KvFormats& kv) { return TraitsOf(kv.k).sealed_only || TraitsOf(kv.v).sealed_only; }

// Sequences of more than six pages in every form; pages are sealed wherever the form has two.
ScheduleCounts RunForms(const std::filesystem::path& path, std::span<const Form> forms,
                        const Plan& plan) {
  FileModel model(ModelFile::Open(path).value(), plan.max_context);
  ScheduleCounts all;
  for (size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(forms[i].kv.Name());
    model.Use(forms[i].act, forms[i].kv);
    const ScheduleCounts counts =
        RunSets(model, plan, plan.first_seed + 100 * static_cast<uint32_t>(i));
    EXPECT_GT(counts.longest, 6 * kPageTokens);
    EXPECT_EQ(model.seals() > 0, Seals(forms[i].kv)) << model.seals();
    all += counts;
  }
  return all;
}

void ExpectMuchMet(const ScheduleCounts& counts) {
  if (kBrief) return;
  EXPECT_GT(counts.preemptions, 3);
  EXPECT_GT(counts.cached_tokens, 300);
  EXPECT_GT(counts.forked_tokens, 300);
  EXPECT_GT(counts.cancelled, 0);
}

std::vector<Form> EachFormat(Act act) {
  std::vector<Form> forms;
  for (const KvFormatTraits& traits : AllKvFormats()) {
    forms.push_back({.kv = {.k = traits.format, .v = traits.format}, .act = act});
  }
  return forms;
}

TEST(Schedule, Shakespeare) {
  std::vector<Form> forms = EachFormat(Act::kF32);
  forms.push_back({.kv = {.k = KvFormat::kInt8, .v = KvFormat::kKivi4, .skip_layers = {-1}}});
  RunForms(SourcePath("models/shakespeare"), forms, {.schedules = 2});
}

TEST(Schedule, Stories260KInEveryFormat) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  for (const Act act : {Act::kInt8, Act::kF32}) {
    ExpectMuchMet(RunForms(path, EachFormat(act), {.first_seed = 7}));
  }
}

// Keys and values apart, layers kept in f16 beside layers that seal in units of four, rotation.
const Form kMixed[] = {
    {.kv = {.k = KvFormat::kInt8, .v = KvFormat::kKivi2}},
    {.kv = {.k = KvFormat::kKivi4, .v = KvFormat::kF32}, .act = Act::kF32},
    {.kv = {.k = KvFormat::kF16, .v = KvFormat::kInt4, .rotate = true}},
    {.kv = {.k = KvFormat::kFp8, .v = KvFormat::kInt8, .skip_layers = {0}}},
    {.kv = {.k = KvFormat::kKivi2, .v = KvFormat::kKivi2, .skip_layers = {0, -1}, .rotate = true}},
    {.kv = {.k = KvFormat::kInt4, .v = KvFormat::kFp8, .skip_layers = {1, 2}}, .act = Act::kF32},
};

TEST(Schedule, Stories260KInMixedFormats) {
  NIBBLE_SHARED_OR_SKIP(path, "models/stories260K/tinyllamas-stories-260k-f32.gguf");
  ExpectMuchMet(RunForms(path, kMixed, {.first_seed = 3000}));
}

TEST(Schedule, PastTheWindowsOfGemma) {
  for (const char* name : {"models/hf-320/gemma3", "models/hf-320/gemma2"}) {
    NIBBLE_SHARED_OR_SKIP(path, name);
    std::vector<Form> forms = EachFormat(Act::kInt8);
    forms.insert(forms.end(), std::begin(kMixed), std::end(kMixed));
    ExpectMuchMet(RunForms(path, forms, {.first_seed = 20, .schedules = 3}));
  }
}

TEST(Schedule, Qwen3) {
  NIBBLE_SHARED_OR_SKIP(path, "models/hf-320/qwen3");
  ExpectMuchMet(RunForms(path, EachFormat(Act::kInt8), {.first_seed = 30, .schedules = 2}));
}

TEST(Schedule, SmolLm2) {
  NIBBLE_PULLED_OR_SKIP(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const Form forms[] = {{.kv = {.k = KvFormat::kInt4, .v = KvFormat::kInt4}},
                        {.kv = {.k = KvFormat::kKivi2, .v = KvFormat::kKivi2}}};
  RunForms(path, forms, {.first_seed = 40, .schedules = 1});
}

}  // namespace
}  // namespace nibble::testing
