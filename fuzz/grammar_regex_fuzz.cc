// deps: grammar
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "grammar/compile.h"
#include "grammar/configurations.h"

// An expression: an error with a message, or an automaton in which every way goes on or ends. Bytes
// behind a zero byte choose the ways; work is bounded.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  using namespace nibble::grammar;
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t cut = all.find('\0');
  Wanted wanted;
  wanted.kind = Wanted::Kind::kRegex;
  wanted.text = all.substr(0, cut);
  const auto automaton = Compile(wanted);
  if (!automaton) {
    if (automaton.error().message.empty()) std::abort();
    return 0;
  }
  Configurations configurations(*automaton);
  configurations.AllowWork(1'000'000);
  Configurations::Id id = configurations.start();
  const std::string_view steps = cut == all.npos ? std::string_view() : all.substr(cut + 1);
  for (const char step : steps.substr(0, 200)) {
    if (configurations.exhausted()) return 0;
    if (id == Configurations::kDead) std::abort();  // reached by a way that was open
    if (!configurations.open(id) && !configurations.accepting(id)) std::abort();
    // The first open class from the one that the byte names.
    const int classes = (*automaton)->classes;
    Configurations::Id next = Configurations::kDead;
    for (int i = 0; i < classes && next == Configurations::kDead; ++i) {
      next = configurations.Next(
          id, static_cast<Automaton::Class>((static_cast<uint8_t>(step) + i) % classes));
    }
    if (configurations.exhausted()) return 0;
    if (next == Configurations::kDead) {
      if (!configurations.accepting(id)) std::abort();  // neither goes on nor ends
      return 0;
    }
    id = next;
  }
  return 0;
}
