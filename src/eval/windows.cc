#include "eval/windows.h"

#include <algorithm>

#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

namespace nibble {

Result<TextWindows> TextWindows::Cut(std::span<const TokenId> ids, const WindowOptions& options,
                                     const Tokenizer& tokenizer, int max_context) {
  const int context = options.context;
  // llama's protocol scores [context / 2, context − 2]: of two tokens none.
  const bool llama = options.protocol == PerplexityProtocol::kLlama;
  const int shortest = llama && !options.one_is_enough ? 3 : 2;
  if (context < shortest) {
    return BadInput("context: expected at least {} tokens, found {}", shortest, context);
  }
  if (context > max_context) {
    return BadInput("context: {} tokens asked for, but the model has room for {}", context,
                    max_context);
  }
  const int64_t available = std::ssize(ids) / context;
  const int64_t least = llama && !options.one_is_enough ? 2 : 1;
  if (available < least) {
    return BadInput("text: expected at least {} tokens ({} windows of {}), found {}",
                    least * context, least, context, ids.size());
  }
  TextWindows windows;
  windows.ids_ = ids;
  windows.options_ = options;
  windows.count_ = static_cast<int>(
      options.chunks > 0 ? std::min<int64_t>(options.chunks, available) : available);
  if (llama && tokenizer.adds_bos() && tokenizer.bos()) windows.first_ = {*tokenizer.bos()};
  return windows;
}

std::vector<TokenId> TextWindows::Ids(int window) const {
  const auto begin = ids_.begin() + static_cast<ptrdiff_t>(window) * options_.context;
  std::vector<TokenId> ids(begin, begin + options_.context);
  std::ranges::copy(first_, ids.begin());
  return ids;
}

Result<std::unique_ptr<RunningWindow>> RunningWindow::Start(Engine& engine,
                                                            std::vector<TokenId> ids,
                                                            int score_from,
                                                            PositionLogitsSink& sink,
                                                            std::shared_ptr<EventStream> stream) {
  auto window = std::unique_ptr<RunningWindow>(new RunningWindow(engine, std::move(stream)));
  Request request;
  request.prompt = std::move(ids);
  request.max_tokens = 0;
  request.logits = &sink;
  request.logits_from = score_from;
  NIBBLE_TRY(window->id_, engine.Submit(std::move(request), window->stream_));
  window->running_ = true;
  return window;
}

RunningWindow::~RunningWindow() {
  if (!running_) return;
  engine_.Cancel(id_);
  Collect(*stream_);
}

Status RunningWindow::Finish() {
  const std::vector<Answer> answers = Collect(*stream_);
  running_ = false;
  const FinishEvent& finish = answers.front().finish;
  if (finish.error) return std::unexpected(*finish.error);
  if (finish.reason == FinishReason::kCancelled) {
    return Fail(ErrorKind::kCancelled, "evaluation cancelled");
  }
  return {};
}

}  // namespace nibble
