#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/engine.h"
#include "server/line_file.h"

namespace nibble::server {

// What --trace-log writes of one prompt that has ended.
struct TracedRequest {
  double received_s = 0;
  double ended_s = 0;
  double first_token_s = -1;  // none: < 0
  int choices = 1;
  int max_tokens = -1;
  int priority = 0;
  int longest = 0;                // tokens of its longest answer
  std::vector<int> lengths = {};  // of each of its answers
  int generated = 0;
  Usage usage = {};        // of its first choice
  int64_t ended_step = 0;  // of its last one
  std::string reason;
  std::vector<int64_t> blocks = {};  // as BlockHashes
};

// --trace-log: a line for each request, without texts, that cost/trace.h reads. The first line has
// the configuration and the scheduler's prices.
class RequestTrace {
 public:
  // start_s: times are told from there on.
  RequestTrace(std::unique_ptr<LineFile> file, double start_s);

  void WriteHead(const std::string& model, const Engine& engine, const EngineOptions& options);
  // Prompts that begin alike begin with the same numbers, one for each page of kPageTokens tokens.
  // They tell nothing of the tokens: a salt that is drawn at the start and kept nowhere is hashed
  // with them. Any thread.
  std::vector<int64_t> BlockHashes(std::span<const TokenId> prompt) const;
  void Write(const TracedRequest& request);

 private:
  std::unique_ptr<LineFile> file_;
  double start_s_;
  std::string salt_;
};

}  // namespace nibble::server
