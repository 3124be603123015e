#include "server/tool_calls.h"

#include <algorithm>
#include <utility>

namespace nibble::server {
namespace {

bool Has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

// What calls are written with and tokenizers may have as control tokens.
constexpr std::string_view kMarks[] = {"<tool_call>",
                                       "</tool_call>",
                                       "[TOOL_CALLS]",
                                       "[CALL_ID]",
                                       "[ARGS]",
                                       "<｜tool▁calls▁begin｜>",
                                       "<｜tool▁calls▁end｜>",
                                       "<｜tool▁call▁begin｜>",
                                       "<｜tool▁call▁end｜>",
                                       "<｜tool▁sep｜>"};

grammar::ToolSyntax Hermes() {
  return {.list_open = "",
          .open = "<tool_call>\n{\"name\": \"",
          .between = "\", \"arguments\": ",
          .close = "}\n</tool_call>",
          .separator = "\n",
          .list_close = "",
          .mark = "<tool_call>"};
}

grammar::ToolSyntax Mistral(std::string_view chat_template) {
  if (Has(chat_template, "[ARGS]")) {
    return {.list_open = "",
            .open = "[TOOL_CALLS]",
            .between = "[ARGS]",
            .close = "",
            .separator = "",
            .list_close = "",
            .mark = "[TOOL_CALLS]",
            .id_mark = Has(chat_template, "[CALL_ID]") ? "[CALL_ID]" : ""};
  }
  return {.list_open = "[TOOL_CALLS][",
          .open = "{\"name\": \"",
          .between = "\", \"arguments\": ",
          .close = "}",
          .separator = ", ",
          .list_close = "]",
          .mark = "[TOOL_CALLS]"};
}

grammar::ToolSyntax Functionary() {
  return {.list_open = "",
          .open = "<function=",
          .between = ">",
          .close = "</function>",
          .separator = "",
          .list_close = "",
          .mark = "<function="};
}

grammar::ToolSyntax Functionary32() {
  return {.list_open = "",
          .open = ">>>",
          .between = "\n",
          .close = "",
          .separator = "",
          .list_close = "",
          .mark = ">>>",
          .text_name = "all"};
}

grammar::ToolSyntax DeepSeek(bool fenced) {
  return {.list_open = "<｜tool▁calls▁begin｜>",
          .open = fenced ? "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" : "<｜tool▁call▁begin｜>",
          .between = fenced ? "\n```json\n" : "<｜tool▁sep｜>",
          .close = fenced ? "\n```<｜tool▁call▁end｜>" : "<｜tool▁call▁end｜>",
          .separator = fenced ? "\n" : "",
          .list_close = "<｜tool▁calls▁end｜>",
          .mark = "<｜tool▁calls▁begin｜>"};
}

grammar::ToolSyntax Llama3() {
  return {.list_open = "",
          .open = "{\"name\": \"",
          .between = "\", \"parameters\": ",
          .close = "}",
          .separator = "",
          .list_close = "",
          .mark = "",
          .several = false};
}

std::optional<grammar::ToolSyntax> SyntaxOf(std::string_view chat_template) {
  const auto has = [&](std::string_view what) { return Has(chat_template, what); };
  if (has("<tool_call>") && (has("\"arguments\"") || has("\\\"arguments\\\""))) return Hermes();
  if (has("[TOOL_CALLS]")) return Mistral(chat_template);
  if (has("<function=") && has("</function>") && !has("<parameter=")) return Functionary();
  if (has(">>>${recipient}")) return Functionary32();
  if (has("<｜tool▁calls▁begin｜>") && !SpeaksOfTools(chat_template)) {
    return DeepSeek(has("```json"));
  }
  if (has("\"parameters\": ") && has("<|start_header_id|>")) return Llama3();
  if (SpeaksOfTools(chat_template)) return std::nullopt;
  return Hermes();
}

// The longest end of text that `what` begins with, but not all of it.
size_t PartialEnd(std::string_view text, std::string_view what) {
  for (size_t n = std::min(text.size(), what.size() - 1); n > 0; --n) {
    if (text.ends_with(what.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

bool SpeaksOfTools(std::string_view chat_template) { return Has(chat_template, "tools"); }

std::optional<grammar::ToolSyntax> FindToolSyntax(std::string_view chat_template,
                                                  const Tokenizer& tokenizer) {
  std::optional<grammar::ToolSyntax> out = SyntaxOf(chat_template);
  if (!out) return out;
  const std::string call = out->list_open + out->open + out->id_mark + out->between + out->close +
                           out->separator + out->list_close;
  for (const std::string_view mark : kMarks) {
    if (!Has(call, mark)) continue;
    const auto id = tokenizer.Find(mark);
    if (id && tokenizer.IsControl(*id)) out->tokens.emplace_back(mark);
  }
  return out;
}

std::string ToolsPrompt(std::string_view tools_json, const grammar::ToolSyntax& syntax) {
  std::string out =
      "You may call one or more functions to assist with the user query.\n\nYou are provided with "
      "function signatures within <tools></tools> XML tags:\n<tools>\n";
  out += tools_json;
  if (syntax.mark != "<tool_call>") {
    out +=
        "\n</tools>\n\nFor each function call, write exactly this, with the function's name and "
        "its arguments as a JSON object:\n";
    return out + syntax.list_open + syntax.open + "<function-name>" + syntax.between +
           "<args-json-object>" + syntax.close + syntax.list_close;
  }
  out +=
      "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
      "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
      "\"arguments\": <args-json-object>}\n</tool_call>";
  return out;
}

ToolCallSplitter::Parts ToolCallSplitter::Add(std::string_view piece) {
  pending_ += piece;
  Parts parts;
  while (Advance(parts)) {
  }
  return parts;
}

ToolCallSplitter::Parts ToolCallSplitter::End() {
  Parts parts;
  if (state_ == State::kText || (state_ == State::kOpen && index_ < 0)) {
    parts.text = std::exchange(pending_, {});
  }
  pending_.clear();
  return parts;
}

ToolCallSplitter::Next ToolCallSplitter::TakeNext(std::string_view what) {
  if (std::string_view(pending_).starts_with(what)) {
    pending_.erase(0, what.size());
    return Next::kYes;
  }
  return what.starts_with(pending_) ? Next::kMaybe : Next::kNo;
}

// Text up to where calls begin. Without a mark they begin the answer or not at all.
bool ToolCallSplitter::TakeText(Parts& parts) {
  const std::string begin = syntax_.list_open + syntax_.open;
  if (syntax_.mark.empty()) {
    if (!begun_) {
      if (pending_.empty()) return false;
      if (std::string_view(pending_).starts_with(begin)) {
        state_ = State::kOpen;
        return true;
      }
      if (begin.starts_with(pending_)) return false;
      begun_ = true;
    }
    parts.text += std::exchange(pending_, {});
    return false;
  }
  const size_t at = pending_.find(begin);
  if (at != std::string::npos) {
    parts.text += pending_.substr(0, at);
    while (parts.text.ends_with('\n')) parts.text.pop_back();
    pending_.erase(0, at);
    state_ = State::kOpen;
    return true;
  }
  const size_t kept = PartialEnd(pending_, begin);
  parts.text += pending_.substr(0, pending_.size() - kept);
  pending_.erase(0, pending_.size() - kept);
  return false;
}

bool ToolCallSplitter::TakeArguments(Parts& parts) {
  std::string taken;
  size_t i = 0;
  bool done = false;
  for (; i < pending_.size() && !done; ++i) {
    const char c = pending_[i];
    taken += c;
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if (c == '}' || c == ']') {
      done = --depth_ == 0;
    }
  }
  pending_.erase(0, i);
  if (!taken.empty())
    parts.deltas.push_back({.index = index_, .name = {}, .id = {}, .arguments = taken});
  if (done) state_ = State::kBehind;
  return done;
}

bool ToolCallSplitter::Advance(Parts& parts) {
  switch (state_) {
    case State::kText:
      return TakeText(parts);
    case State::kOpen: {
      const std::string begin = (index_ < 0 ? syntax_.list_open : syntax_.separator) + syntax_.open;
      const Next next = TakeNext(begin);
      if (next == Next::kYes) state_ = State::kName;
      if (next == Next::kNo) state_ = State::kDone;
      return next != Next::kMaybe;
    }
    case State::kName: {
      const size_t end = pending_.find(syntax_.between);
      if (end == std::string::npos) return false;
      std::string name = pending_.substr(0, end);
      pending_.erase(0, end + syntax_.between.size());
      if (!syntax_.text_name.empty() && name == syntax_.text_name) {
        state_ = State::kText;
        return true;
      }
      std::string id;
      if (const size_t mark = name.find(syntax_.id_mark);
          !syntax_.id_mark.empty() && mark != std::string::npos) {
        id = name.substr(mark + syntax_.id_mark.size());
        name.resize(mark);
      }
      parts.deltas.push_back(
          {.index = ++index_, .name = std::move(name), .id = std::move(id), .arguments = {}});
      state_ = State::kArguments;
      depth_ = 0;
      return true;
    }
    case State::kArguments:
      return TakeArguments(parts);
    case State::kBehind: {
      const Next next = TakeNext(syntax_.close);
      if (next == Next::kYes) state_ = State::kOpen;
      if (next == Next::kNo) state_ = State::kDone;
      return next != Next::kMaybe;
    }
    case State::kDone:
      break;
  }
  pending_.clear();  // list_close
  return false;
}

}  // namespace nibble::server
