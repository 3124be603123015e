// Methods of lists, tuples, dicts, ranges, loops and numbers.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_str_methods.h"

namespace nibble::jinja {
namespace {

template <ViewOf kOf>
Value View(Interpreter&, const Value& self, CallArgs& args) {
  const Arguments none("dict view", args, {});
  auto view = std::make_shared<DictView>();
  view->Contain(self.object());
  view->dict = self;
  view->of = kOf;
  return Value::FromObject(Kind::kDictView, std::move(view));
}

Value Get(Interpreter&, const Value& self, CallArgs& args) {
  if (!args.keyword.empty()) Raise("get() takes no keyword arguments");
  const Positional bound("get", args, {"key", "default"}, 1);
  const Value* value = self.dict().Find(bound.Get(0));
  return value ? *value : bound.GetOr(1, Value::None());
}

Value Copy(Interpreter&, const Value& self, CallArgs& args) {
  const Arguments none("copy", args, {});
  // Values never change, so a copy need only be another object.
  if (self.Is(Kind::kList)) return Value::MakeList(self.items());
  return MakeDict(std::make_shared<Dict>(self.dict()));
}

Value FromKeys(Interpreter& in, const Value&, CallArgs& args) {
  const Positional bound("fromkeys", args, {"iterable", "value"}, 1);
  auto dict = std::make_shared<Dict>();
  for (const Value& key : in.Collect(bound.Get(0))) dict->Set(key, bound.GetOr(1, Value::None()));
  return MakeDict(std::move(dict));
}

Value Count(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("count", args, {"value"}, 1);
  int64_t count = 0;
  const auto next = Iterate(self);
  while (const auto item = next()) {
    in.Charge(1 + std::min(item->weight(), bound.Get(0).weight()));
    count += SameObject(*item, bound.Get(0)) || Equal(*item, bound.Get(0));
  }
  return Value::Int(count);
}

Value Index(Interpreter& in, const Value& self, CallArgs& args) {
  const Positional bound("index", args, {"value", "start", "stop"}, 1);
  const int64_t size = LengthOf(self);
  const auto clamp = [size](int64_t at) { return at < 0 ? std::max<int64_t>(at + size, 0) : at; };
  const int64_t start = clamp(std::max(bound.Int(1, 0), -size));
  const int64_t stop = clamp(std::max(bound.Int(2, size), -size));
  const auto next = Iterate(self);
  for (int64_t i = 0; const auto item = next(); ++i) {
    in.Charge(1 + std::min(item->weight(), bound.Get(0).weight()));
    if (i < start || i >= stop) continue;
    if (SameObject(*item, bound.Get(0)) || Equal(*item, bound.Get(0))) return Value::Int(i);
  }
  Raise("{} is not in {}", ToRepr(bound.Get(0), in.max_string()), TypeName(self));
}

Value Cycle(Interpreter&, const Value& self, CallArgs& args) {
  if (args.positional.empty()) Raise("no items for cycling given");
  const int64_t count = int64_t(args.positional.size());
  return args.positional[size_t(self.As<Loop>().index0 % count)];
}

Value Changed(Interpreter&, const Value& self, CallArgs& args) {
  auto& last = self.As<Loop>().last_changed;
  const bool same = last && last->size() == args.positional.size() &&
                    std::equal(last->begin(), last->end(), args.positional.begin(), Equal);
  if (!same) last = args.positional;
  return Value::Bool(!same);
}

Value IsInteger(Interpreter&, const Value& self, CallArgs&) {
  const double value = self.float_value();
  return Value::Bool(std::isfinite(value) && value == std::floor(value));
}

Value BitLength(Interpreter&, const Value& self, CallArgs&) {
  const int64_t value = self.int_value();
  const uint64_t magnitude = value < 0 ? 0 - uint64_t(value) : uint64_t(value);
  return Value::Int(64 - (magnitude ? __builtin_clzll(magnitude) : 64));
}

Value Conjugate(Interpreter&, const Value& self, CallArgs&) {
  return self.IsIntegral() ? Value::Int(self.int_value()) : self;
}

}  // namespace

Method FindMethod(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return FindStrMethod(name);
    case Kind::kDict:
      if (name == "items") return View<ViewOf::kItems>;
      if (name == "get") return Get;
      if (name == "keys") return View<ViewOf::kKeys>;
      if (name == "values") return View<ViewOf::kValues>;
      if (name == "copy") return Copy;
      return name == "fromkeys" ? FromKeys : nullptr;
    case Kind::kList:
      if (name == "copy") return Copy;
      [[fallthrough]];
    case Kind::kTuple:
    case Kind::kRange:
      if (name == "count") return Count;
      return name == "index" ? Index : nullptr;
    case Kind::kLoop:
      if (name == "cycle") return Cycle;
      return name == "changed" ? Changed : nullptr;
    case Kind::kFloat:
      if (name == "is_integer") return IsInteger;
      return name == "conjugate" ? Conjugate : nullptr;
    case Kind::kBool:
    case Kind::kInt:
      if (name == "bit_length") return BitLength;
      return name == "conjugate" ? Conjugate : nullptr;
    default:
      return nullptr;
  }
}

bool IsRefusedMutator(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                                  "insert", "sort",  "extend", "remove"};
  static constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault",
                                                  "update"};
  if (object.Is(Kind::kList)) return std::ranges::find(kOfLists, name) != std::end(kOfLists);
  if (object.Is(Kind::kDict)) return std::ranges::find(kOfDicts, name) != std::end(kOfDicts);
  return false;
}

}  // namespace nibble::jinja
