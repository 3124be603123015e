#pragma once

#include "base/result.h"
#include "cli/eval_flags.h"

namespace nibble::cli {

// `eval --task`: accuracy by the log-probabilities of given endings.
Status RunChoiceTask(const GlobalFlags& flags, const EvalFlags& own);

// `eval --task-file`: accuracy of generated answers.
Status RunPromptTask(const GlobalFlags& flags, const EvalFlags& own);

}  // namespace nibble::cli
