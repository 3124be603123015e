#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/event_stream.h"
#include "engine/request.h"

namespace nibble {

class Engine;
class Tokenizer;

// How a text is cut and which predictions count; figures of the two do not compare.
enum class PerplexityProtocol {
  // llama.cpp: windows of `context` tokens, the first replaced by BOS where the model adds one, the
  // second half of each scored (context - context/2 - 1 predictions).
  kLlama,
  // GPTQ, AWQ, SmoothQuant papers: one BOS at the very start, every prediction of a window scored,
  // exp of the mean over windows.
  kGptq,
};

struct WindowOptions {
  PerplexityProtocol protocol = PerplexityProtocol::kLlama;
  int context = 512;
  int chunks = 0;              // windows from the start; 0: all
  bool one_is_enough = false;  // llama.cpp asks for text for two, even if it measures one
};

// A text's windows, which are computed each from scratch.
class TextWindows {
 public:
  // ids: the whole text, with BOS in front if the tokenizer adds one; needed as long as this.
  // Errors: text too short (both numbers), a context below 2 or beyond max_context.
  static Result<TextWindows> Cut(std::span<const TokenId> ids, const WindowOptions& options,
                                 const Tokenizer& tokenizer, int max_context);

  int count() const { return count_; }
  int context() const { return options_.context; }
  // The first position whose prediction counts.
  int score_from() const {
    return options_.protocol == PerplexityProtocol::kLlama ? options_.context / 2 : 0;
  }
  std::vector<TokenId> Ids(int window) const;

 private:
  TextWindows() = default;

  std::span<const TokenId> ids_;
  WindowOptions options_;
  std::vector<TokenId> first_;  // in place of each window's first token; empty: its own
  int count_ = 0;
};

// A window in an engine's hands: the prompt is computed and its logits go to a sink. If it is given
// up early it is cancelled and waited for, since the engine calls the sink until the last event.
class RunningWindow {
 public:
  // The sink must live as long as this.
  static Result<std::unique_ptr<RunningWindow>> Start(
      Engine& engine, std::vector<TokenId> ids, int score_from, PositionLogitsSink& sink,
      std::shared_ptr<EventStream> stream = std::make_shared<EventStream>());
  ~RunningWindow();
  RunningWindow(const RunningWindow&) = delete;
  RunningWindow& operator=(const RunningWindow&) = delete;

  // Waits for the end. Errors: the request's own; kCancelled.
  Status Finish();

 private:
  RunningWindow(Engine& engine, std::shared_ptr<EventStream> stream)
      : engine_(engine), stream_(std::move(stream)) {}

  Engine& engine_;
  std::shared_ptr<EventStream> stream_;
  RequestId id_;
  bool running_ = false;
};

}  // namespace nibble
