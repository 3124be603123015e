#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "grammar/compile.h"

namespace nibble::grammar {
class Constraint;
class Vocabulary;
}  // namespace nibble::grammar

namespace nibble::server {

// Compiles what answers must be, and keeps the last ones: a client asks with the same schema again
// and again, and what its first answers have found out serves the next. Any thread.
class Constraints {
 public:
  // vocabulary: called when the first constraint is made.
  explicit Constraints(std::function<std::shared_ptr<const grammar::Vocabulary>()> vocabulary)
      : vocabulary_(std::move(vocabulary)) {}

  // One that was asked for before; else null. Takes no time.
  std::shared_ptr<grammar::Constraint> Find(const grammar::Wanted& wanted);
  // Errors: those of grammar::Compile.
  Result<std::shared_ptr<grammar::Constraint>> Get(const grammar::Wanted& wanted);

 private:
  std::shared_ptr<grammar::Constraint> FindKey(const std::string& key);

  static constexpr size_t kKept = 16;
  struct Kept {
    std::string key;
    std::shared_ptr<grammar::Constraint> constraint;
  };
  std::function<std::shared_ptr<const grammar::Vocabulary>()> vocabulary_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the last used first
};

}  // namespace nibble::server
