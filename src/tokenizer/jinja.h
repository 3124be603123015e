#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

// Jinja as transformers sets it up for chat templates: jinja2's immutable sandbox with trim_blocks,
// lstrip_blocks, break and continue, {% generation %}, json.dumps as tojson, strftime_now and
// raise_exception. The truth is jinja2 3.1 with transformers' utils/chat_template_utils.py;
// tools/make_template_goldens.py and tools/template_differential.py hold this engine against it.
//
// Differences, all deliberate: integers are 64 bits wide (overflow is an error), `random`,
// `pprint`, `lipsum` and templates that load other templates are refused by name, and everything is
// bounded.
namespace nibble {

namespace jinja {
class Value;
struct Program;
}  // namespace jinja

// What a render may use up. Beyond any of these it stops with an error that names the limit.
struct JinjaLimits {
  int64_t max_steps = 5'000'000;         // nodes evaluated, items made, 64 bytes copied
  size_t max_output_bytes = 64u << 20;   // of the rendered text, and of any one string
  size_t max_string_bytes = 512u << 20;  // of all strings made on the way
  int max_depth = 600;                   // nested evaluations, macro calls included
  std::chrono::milliseconds max_time{5000};
};

// Broken-down local time for strftime_now.
struct JinjaTime {
  int year = 1970, month = 1, day = 1;  // month 1-12, day 1-31
  int hour = 0, minute = 0, second = 0, microsecond = 0;
  static JinjaTime FromClock(std::chrono::system_clock::time_point now);
};

// An immutable value of the context: None, bool, int, float, str, list or dict (insertion order
// kept, a repeated key keeps its first place and last value, as in Python's json.loads).
class JinjaValue {
 public:
  using Member = std::pair<std::string, JinjaValue>;

  JinjaValue();  // None
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  static JinjaValue String(std::string value);
  static JinjaValue List(std::vector<JinjaValue> items);
  static JinjaValue Object(std::vector<Member> members);
  // Error on malformed JSON, on integers beyond 64 bits and on nesting deeper than 200.
  static Result<JinjaValue> FromJson(std::string_view text);

  bool IsNone() const;
  bool IsList() const;
  bool IsObject() const;
  bool IsString() const;
  size_t Size() const;                // items of a list or an object, else 0
  JinjaValue At(size_t index) const;  // item of a list
  std::optional<JinjaValue> Get(std::string_view key) const;  // member of an object
  std::vector<Member> Members() const;                        // of an object
  std::string ToString() const;  // a string's text, else as Python's str() prints it
  // This object with the members set (replaced in place, or appended).
  JinjaValue With(const std::vector<Member>& members) const;

  explicit JinjaValue(std::shared_ptr<const jinja::Value> value) : value_(std::move(value)) {}
  const jinja::Value& value() const { return *value_; }

 private:
  std::shared_ptr<const jinja::Value> value_;  // never null
};

struct JinjaOptions {
  bool trim_blocks = true;    // the first newline after a block tag is dropped
  bool lstrip_blocks = true;  // blanks before a block tag at the start of a line are dropped
};

struct JinjaRenderOptions {
  JinjaLimits limits;
  std::optional<JinjaTime> now;  // for strftime_now; none: the machine's clock
};

// Half-open range of bytes in the rendered text that {% generation %} enclosed.
struct JinjaSpan {
  size_t begin = 0, end = 0;
};

// A parsed template. Immutable; Render may be called from several threads at once.
class JinjaTemplate {
 public:
  // Syntax errors, unknown tags, filters and tests: "line 3: ...".
  static Result<JinjaTemplate> Parse(std::string_view source, const JinjaOptions& options = {});

  // `context` must be an object; its members are the template's variables. Errors: "line 3: ...",
  // followed by what jinja2 or Python says; the text given to raise_exception is passed on as it
  // is.
  Result<std::string> Render(const JinjaValue& context,
                             const JinjaRenderOptions& options = {}) const;

 private:
  explicit JinjaTemplate(std::shared_ptr<const jinja::Program> program);
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace nibble
