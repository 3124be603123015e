#include <array>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox

Value MakeRange(Interpreter&, CallArgs& args) {
  if (!args.keyword.empty()) Raise("range() takes no keyword arguments");
  if (args.positional.empty()) Raise("range expected at least 1 argument, got 0");
  const Arguments bound("range", args, {"start", "stop", "step"}, 1);
  auto range = std::make_shared<Range>();
  range->start = bound.Has(1) ? bound.Int(0, 0) : 0;
  range->stop = bound.Has(1) ? bound.Int(1, 0) : bound.Int(0, 0);
  range->step = bound.Int(2, 1);
  if (range->step == 0) Raise("range() arg 3 must not be zero");
  const bool up = range->step > 0;
  if (up ? range->stop > range->start : range->stop < range->start) {
    const uint64_t distance = up ? uint64_t(range->stop) - uint64_t(range->start)
                                 : uint64_t(range->start) - uint64_t(range->stop);
    const uint64_t width = up ? uint64_t(range->step) : 0 - uint64_t(range->step);
    const uint64_t size = (distance - 1) / width + 1;
    if (size > uint64_t(kMaxRange)) {
      Raise("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
    }
    range->size = int64_t(size);
  }
  return Value::FromObject(Kind::kRange, std::move(range));
}

Value MakeDictValue(Interpreter& in, CallArgs& args) {
  auto dict = std::make_shared<Dict>();
  FillDict(in, *dict, args);
  return MakeDict(std::move(dict));
}

struct CyclerState {
  std::vector<Value> items;
  size_t at = 0;
};

Value MakeCycler(Interpreter&, CallArgs& args) {
  if (!args.keyword.empty()) Raise("cycler() takes no keyword arguments");
  if (args.positional.empty()) Raise("at least one item has to be provided");
  auto state = std::make_shared<CyclerState>();
  state->items = args.positional;
  Value cycler = MakeFunction(
      "cycler", [](Interpreter&, CallArgs&) -> Value { Raise("'Cycler' object is not callable"); });
  auto& function = cycler.As<Function>();
  for (const Value& item : state->items) function.Contain(item.object());
  const int depth = function.depth;
  function.attribute = [state, depth](const std::string& name) -> std::optional<Value> {
    if (name == "current") return state->items[state->at];
    if (name == "items") return Value::MakeTuple(state->items);
    if (name == "pos") return Value::Int(int64_t(state->at));
    if (name != "next" && name != "reset") return std::nullopt;
    const bool is_next = name == "next";
    Value method = MakeFunction(name, [state, is_next](Interpreter&, CallArgs&) {
      const Value current = state->items[state->at];
      state->at = is_next ? (state->at + 1) % state->items.size() : 0;
      return is_next ? current : Value::None();
    });
    method.As<Function>().depth = depth + 1;
    return method;
  };
  return cycler;
}

Value MakeJoiner(Interpreter&, CallArgs& args) {
  const Arguments bound("joiner", args, {"sep"});
  const Value separator = bound.GetOr(0, Value::String(", "));
  Value joiner = MakeFunction("joiner", [separator, used = false](Interpreter&, CallArgs&) mutable {
    return std::exchange(used, true) ? separator : Value::String("");
  });
  joiner.As<Function>().Contain(separator.object());
  return joiner;
}

Value RaiseException(Interpreter& in, CallArgs& args) {
  const Arguments bound("raise_exception", args, {"message"}, 1);
  throw TemplateError(in.Str(bound.Get(0)));
}

Value StrftimeNow(Interpreter& in, CallArgs& args) {
  const Arguments bound("strftime_now", args, {"format"}, 1);
  return Value::String(FormatTime(in.Now(), bound.Text(0)));
}

Value Refused(Interpreter&, CallArgs&) {
  Raise("lipsum() is refused in chat templates: the same messages must give the same text");
}

// transformers gives `dict` as an object that can be called and has fromkeys.
Value DictGlobal() {
  Value dict = MakeFunction("dict", MakeDictValue);
  dict.As<Function>().attribute = [](const std::string& name) -> std::optional<Value> {
    if (name != "fromkeys") return std::nullopt;
    const Method method = FindMethod(MakeDict(std::make_shared<Dict>()), name);
    return MakeFunction(name, [method](Interpreter& in, CallArgs& args) {
      return method(in, Value::None(), args);
    });
  };
  return dict;
}

}  // namespace

void FillDict(Interpreter& in, Dict& dict, const CallArgs& args) {
  if (args.positional.size() > 1) {
    Raise("dict expected at most 1 argument, got {}", args.positional.size());
  }
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.Is(Kind::kDict)) {
      for (const auto& [key, value] : from.dict().items()) dict.Set(key, value);
    } else {
      size_t i = 0;
      for (const Value& item : in.Collect(from)) {
        const auto pair = in.Collect(item);
        if (pair.size() != 2) {
          Raise("dictionary update sequence element #{} has length {}; 2 is required", i,
                pair.size());
        }
        dict.Set(pair[0], pair[1]);
        ++i;
      }
    }
  }
  for (const auto& [name, value] : args.keyword) dict.Set(name, value);
}

Value MakeGlobal(const std::string& name) {
  if (name == "range") return MakeFunction(name, MakeRange);
  if (name == "dict") return DictGlobal();
  if (name == "namespace") {
    return MakeFunction(name,
                        [](Interpreter& in, CallArgs& args) { return in.NewNamespace(args); });
  }
  if (name == "raise_exception") return MakeFunction(name, RaiseException);
  if (name == "strftime_now") return MakeFunction(name, StrftimeNow);
  if (name == "cycler") return MakeFunction(name, MakeCycler);
  if (name == "joiner") return MakeFunction(name, MakeJoiner);
  if (name == "lipsum") return MakeFunction(name, Refused);
  return Value();
}

}  // namespace nibble::jinja
