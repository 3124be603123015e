#include "cli/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "cli/output.h"
#include "platform/bandwidth.h"
#include "platform/thread_pool.h"

namespace nibble::cli {
namespace {

std::atomic<int> interrupts = 0;
static_assert(std::atomic<int>::is_always_lock_free);  // set in a signal handler

void OnInterrupt(int /*signal*/) { interrupts.fetch_add(1); }

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupts = 0;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: a blocked read returns
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, SIG_DFL); }

bool InterruptGuard::Take() {
  int seen = interrupts.load();
  while (seen > 0) {
    if (interrupts.compare_exchange_weak(seen, seen - 1)) return true;
  }
  return false;
}

Result<Answer> Generate(Engine& engine, Request request,
                        const std::function<void(std::string_view)>& on_text) {
  const auto stream = std::make_shared<EventStream>();
  NIBBLE_TRY(const RequestId id, engine.Submit(std::move(request), stream));
  Answer answer;
  while (!stream->done()) {
    if (InterruptGuard::Take()) engine.Cancel(id);
    std::optional<EventStream::Event> event = stream->NextFor(0.05);
    if (!event) continue;
    std::string text;
    if (auto* token = std::get_if<TokenEvent>(&*event)) {
      text = token->text;
      answer.tokens.push_back(std::move(*token));
    } else {
      answer.finish = std::get<FinishEvent>(*std::move(event));
      text = answer.finish.text;
    }
    answer.text += text;
    if (!text.empty()) on_text(text);
  }
  if (answer.finish.error) return std::unexpected(*answer.finish.error);
  return answer;
}

RunStats MakeRunStats(const Engine& engine, const Usage& usage) {
  RunStats stats;
  stats.usage = usage;
  // Of what was computed: positions from the prefix cache took no time.
  const int computed = usage.prompt_tokens - usage.cached_prompt_tokens;
  if (usage.prefill_s > 0) stats.prefill_tok_s = computed / usage.prefill_s;
  stats.weight_bytes_per_step = static_cast<double>(engine.WeightBytesPerStep());
  if (usage.decode_steps > 0) {
    stats.kv_bytes_per_step = usage.decode_kv_bytes / usage.decode_steps;
  }
  if (usage.decode_s > 0) {
    stats.decode_tok_s = (usage.generated_tokens - 1) / usage.decode_s;
    stats.achieved_bandwidth = (usage.decode_weight_bytes + usage.decode_kv_bytes) / usage.decode_s;
  }
  return stats;
}

std::string DescribeSpeed(const RunStats& stats, double read_bandwidth) {
  std::string text = fmt::format("prompt: {} tokens, {} tokens/s", stats.usage.prompt_tokens,
                                 FormatRate(stats.prefill_tok_s));
  if (stats.usage.decode_steps == 0) return text;
  text += fmt::format("; answer: {} tokens, {} tokens/s; {} per token (weights {} + KV {}), {}/s",
                      stats.usage.generated_tokens, FormatRate(stats.decode_tok_s),
                      FormatBytes(stats.weight_bytes_per_step + stats.kv_bytes_per_step),
                      FormatBytes(stats.weight_bytes_per_step),
                      FormatBytes(stats.kv_bytes_per_step), FormatBytes(stats.achieved_bandwidth));
  if (read_bandwidth > 0) {
    text +=
        fmt::format(" = {:.0f}% of this machine's read bandwidth ({}/s)",
                    100 * stats.achieved_bandwidth / read_bandwidth, FormatBytes(read_bandwidth));
  }
  return text;
}

std::string DescribeSpeculation(const Usage& usage) {
  const int steps = std::max(usage.decode_steps, 1);
  std::string text = fmt::format("speculation: {} of {} guesses right, {:.2f} tokens a step",
                                 usage.accepted_tokens, usage.drafted_tokens,
                                 static_cast<double>(usage.generated_tokens - 1) / steps);
  for (size_t i = 0; i < usage.accepted_at.size(); ++i) {
    text += fmt::format("{}{:.0f}%", i == 0 ? "; right at guess 1, 2 …: " : ", ",
                        100.0 * usage.accepted_at[i] / usage.drafts);
  }
  return text;
}

double MeasureReadBandwidth(const Engine& engine) {
  ThreadPool pool(engine.threads());
  return ProbeReadBandwidth(pool, 0.35).value_or(0);
}

}  // namespace nibble::cli
