#include "server/constraints.h"

#include <algorithm>
#include <utility>

#include "grammar/constraint.h"

namespace nibble::server {
namespace {

// Everything that a constraint is made from, parts told apart by their lengths.
std::string KeyOf(const grammar::Wanted& wanted) {
  std::string key;
  const auto add = [&](std::string_view part) {
    key += std::to_string(part.size()) + ":";
    key += part;
  };
  key += static_cast<char>('a' + static_cast<int>(wanted.kind));
  key += wanted.best_effort ? '1' : '0';
  add(wanted.text);
  add(wanted.behind);
  for (const std::string& choice : wanted.choices) add(choice);
  const grammar::ToolCalls& calls = wanted.tools;
  key += calls.required ? '1' : '0';
  key += calls.parallel ? '1' : '0';
  for (const std::string& token : calls.syntax.tokens) add(token);
  key += calls.syntax.several ? '1' : '0';
  for (const std::string& part :
       {calls.syntax.list_open, calls.syntax.open, calls.syntax.between, calls.syntax.close,
        calls.syntax.separator, calls.syntax.list_close, calls.syntax.mark, calls.syntax.text_name,
        calls.syntax.id_mark}) {
    add(part);
  }
  for (const grammar::ToolCalls::Tool& tool : calls.tools) {
    add(tool.name);
    add(tool.schema);
    key += tool.best_effort ? '1' : '0';
  }
  return key;
}

}  // namespace

std::shared_ptr<grammar::Constraint> Constraints::FindKey(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(kept_, key, &Kept::key);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->constraint;
}

std::shared_ptr<grammar::Constraint> Constraints::Find(const grammar::Wanted& wanted) {
  return FindKey(KeyOf(wanted));
}

Result<std::shared_ptr<grammar::Constraint>> Constraints::Get(const grammar::Wanted& wanted) {
  std::string key = KeyOf(wanted);
  if (auto kept = FindKey(key)) return kept;
  NIBBLE_TRY(auto automaton, grammar::Compile(wanted));
  auto constraint = std::make_shared<grammar::Constraint>(std::move(automaton), vocabulary_());
  const std::scoped_lock lock(mutex_);
  kept_.push_front({std::move(key), constraint});
  if (kept_.size() > kKept) kept_.pop_back();
  return constraint;
}

}  // namespace nibble::server
