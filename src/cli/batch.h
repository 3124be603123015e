#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/globals.h"
#include "cli/serving_flags.h"
#include "cli/speculation_flags.h"
#include "engine/request.h"

namespace nibble::cli {

struct BatchFlags {
  std::string model;
  std::string in;
  std::string out;
  std::string chat_template;
  ServingFlags serving;
  SpeculationFlags speculation = {};
  SamplingParams sampling;  // for lines that say nothing: OpenAI's defaults, or the flags'
  std::vector<std::string> logit_bias = {};  // cli/logit_bias.h
  std::optional<int> max_tokens;
};

// `run --batch`: the requests of a file in OpenAI's batch format, any number at a time, to a file
// of responses in the same order. The same input, model and flags give the same bytes, whatever
// max_sequences is; a run that was killed goes on where it was (cli/batch_journal.h). A line that
// is wrong gets a response that says so.
Status RunBatch(const GlobalFlags& flags, BatchFlags own);

}  // namespace nibble::cli
