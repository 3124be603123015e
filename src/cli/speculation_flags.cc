#include "cli/speculation_flags.h"

#include <CLI/CLI.hpp>

#include "cli/self_draft.h"
#include "cli/session.h"

namespace nibble::cli {

void AddSpeculationFlags(CLI::App& command, SpeculationFlags& flags) {
  const std::string group = "Speculation";
  command
      .add_flag("--ngram", flags.ngram,
                "Guess that what followed the last tokens before follows again, and verify several "
                "guesses in one step: the same answer, sooner where it repeats")
      ->group(group);
  command
      .add_flag("--no-forms", flags.no_forms,
                "Do not guess what a grammar, schema or tool leaves no choice about")
      ->group(group);
  command
      .add_option("--draft", flags.draft,
                  "Smaller model of the same vocabulary that guesses; verified the same way. "
                  "self:q2_k and the like: the model itself in fewer bits, made at load")
      ->type_name("MODEL")
      ->group(group);
}

Result<MadeSpeculation> MakeSpeculation(const GlobalFlags& flags, const SpeculationFlags& own,
                                        const ModelFile& model) {
  constexpr std::string_view kSelf = "self:";
  MadeSpeculation made;
  made.speculation.ngram = own.ngram;
  made.speculation.forms = !own.no_forms;
  if (own.draft.empty()) return made;
  if (own.draft.starts_with(kSelf)) {
    auto draft = MakeSelfDraft(flags, model, std::string_view(own.draft).substr(kSelf.size()));
    if (!draft) return Within("--draft", draft.error());
    made.speculation.draft = draft->path;
    made.files = draft->folder;
    return made;
  }
  auto path = FindModel(flags, own.draft, true);
  if (!path) return Within("--draft", path.error());
  made.speculation.draft = *std::move(path);
  return made;
}

}  // namespace nibble::cli
