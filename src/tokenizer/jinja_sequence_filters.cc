// Filters of sequences and mappings.
#include <algorithm>

#include "tokenizer/jinja_filters.h"
#include "tokenizer/jinja_text.h"

namespace nibble::jinja {
namespace {

using Next = std::function<std::optional<Value>()>;

// A generator that keeps `input` and the arguments alive.
Value Lazy(const Value& input, const CallArgs& args, Next next) {
  Value generator = MakeGenerator(input, std::move(next));
  for (const Value& value : args.positional) generator.As<Generator>().Contain(value.object());
  for (const auto& [name, value] : args.keyword) {
    generator.As<Generator>().Contain(value.object());
  }
  return generator;
}

bool IsDigits(std::string_view text) {
  return !text.empty() && text.size() < 18 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// jinja2's make_attrgetter: "a.0.b" looks up a, then 0, then b.
class AttributePath {
 public:
  explicit AttributePath(const Value& attribute) {
    if (attribute.IsNone()) return;
    if (!attribute.IsString()) {
      parts_.push_back(attribute);
      return;
    }
    const std::string& text = attribute.str();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      parts_.push_back(IsDigits(part) ? Value::Int(std::stol(part)) : Value::String(part));
      begin = end + 1;
    }
  }

  Value Of(Interpreter& in, Value item, const Value& fallback = Value::None()) const {
    in.Charge(1);
    for (const Value& part : parts_) {
      item = in.GetItem(item, part);
      if (!fallback.IsNone() && item.IsUndefined()) item = fallback;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
};

Value IgnoreCase(const Value& value) {
  return value.IsString() ? Value::String(ToLower(value.str())) : value;
}

bool Less(Interpreter& in, const Value& a, const Value& b) {
  in.Charge(1 + std::min(a.weight(), b.weight()));
  const auto order = Compare(a, b, "<");
  return order && *order < 0;
}

// Python's sorted(items, key, reverse): stable in both directions.
std::vector<Value> SortedBy(Interpreter& in, const std::vector<Value>& items,
                            const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? Less(in, keys[b], keys[a]) : Less(in, keys[a], keys[b]);
  });
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value Default(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments bound("default", args, {"default_value", "boolean"});
  const bool replace = input.IsUndefined() || (bound.Bool(1, false) && !Truthy(input));
  return replace ? bound.GetOr(0, Value::String("")) : input;
}

Value Length(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments none("length", args, {});
  if (input.Is(Kind::kLoop)) return Value::Int(input.As<Loop>().Length());
  return Value::Int(LengthOf(input));
}

Value First(Interpreter&, const Value& input, CallArgs& args) {
  const Arguments none("first", args, {});
  auto item = Iterate(input)();
  return item ? *item : Value::Undefined("No first item, sequence was empty.");
}

Value Last(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments none("last", args, {});
  if (!HasLength(input)) Raise("'{}' object is not reversible", TypeName(input));
  if (LengthOf(input) == 0) return Value::Undefined("No last item, sequence was empty.");
  if (input.IsSequence()) return input.items().back();
  return in.Collect(input).back();
}

Value ToList(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments none("list", args, {});
  return Value::MakeList(in.Collect(input));
}

Value Reverse(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments none("reverse", args, {});
  if (input.IsString()) {
    std::string out;
    auto parts = SplitCodePoints(input.str());
    std::for_each(parts.rbegin(), parts.rend(), [&](std::string_view part) { out += part; });
    return Value::String(std::move(out), input.IsMarkup());
  }
  if (!IsIterable(input)) Raise("argument must be iterable");
  auto items = in.Collect(input);
  std::ranges::reverse(items);
  const Value list = Value::MakeList(std::move(items));
  return input.Is(Kind::kGenerator) ? list : Lazy(list, {}, Iterate(list));
}

Value Join(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("join", args, {"d", "attribute"});
  const std::string separator = bound.Has(0) ? in.Str(bound.Get(0)) : "";
  const AttributePath path(bound.GetOr(1, Value::None()));
  const auto next = Iterate(input);
  std::string out;
  bool first = true;
  while (const auto item = next()) {
    if (!std::exchange(first, false)) out += separator;
    out += in.Str(path.Of(in, *item));
    in.CheckStringSize(out.size());
  }
  return Value::String(std::move(out));
}

Value Items(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments none("items", args, {});
  if (input.IsUndefined()) return Lazy(input, {}, Iterate(input));
  if (!input.Is(Kind::kDict)) {
    return Lazy(input, {},
                []() -> std::optional<Value> { Raise("Can only get item pairs from a mapping."); });
  }
  CallArgs no_args;
  const Value view = FindMethod(input, "items")(in, input, no_args);
  return Lazy(input, {}, Iterate(view));
}

Value DictSort(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  const Value by = bound.GetOr(1, Value::String("key"));
  const bool by_key = Equal(by, Value::String("key"));
  if (!by_key && !Equal(by, Value::String("value"))) {
    Raise("You can only sort by either \"key\" or \"value\"");
  }
  if (input.IsUndefined()) throw TemplateError(input.UndefinedMessage());
  if (!input.Is(Kind::kDict)) Raise("'{}' object has no attribute 'items'", TypeName(input));
  std::vector<Value> items, keys;
  for (const auto& [key, value] : input.dict().items()) {
    items.push_back(Value::MakeTuple({key, value}));
    const Value& sort_key = by_key ? key : value;
    keys.push_back(bound.Bool(0, false) ? sort_key : IgnoreCase(sort_key));
  }
  return Value::MakeList(SortedBy(in, items, keys, bound.Bool(2, false)));
}

Value Sort(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  const Value attribute = bound.GetOr(2, Value::None());
  if (attribute.IsString()) {
    const std::string& text = attribute.str();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      paths.emplace_back(Value::String(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  } else {
    paths.emplace_back(attribute);
  }
  const bool case_sensitive = bound.Bool(1, false);
  const auto items = in.Collect(input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      Value part = path.Of(in, item);
      key.push_back(case_sensitive ? part : IgnoreCase(part));
    }
    keys.push_back(Value::MakeList(std::move(key)));
  }
  return Value::MakeList(SortedBy(in, items, keys, bound.Bool(0, false)));
}

Value Unique(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("unique", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.Bool(0, false);
  return Lazy(input, args,
              [&in, input, case_sensitive, path = AttributePath(bound.GetOr(1, Value::None())),
               next = Next(), seen = std::make_shared<Dict>()]() mutable -> std::optional<Value> {
                if (!next) next = Iterate(input);
                while (auto item = next()) {
                  Value key = path.Of(in, *item);
                  if (!case_sensitive) key = IgnoreCase(key);
                  if (seen->Find(key)) continue;
                  seen->Set(key, Value::None());
                  return item;
                }
                return std::nullopt;
              });
}

template <bool kMaximum>
Value Extreme(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound(kMaximum ? "max" : "min", args, {"case_sensitive", "attribute"});
  const AttributePath path(bound.GetOr(1, Value::None()));
  const bool case_sensitive = bound.Bool(0, false);
  const auto next = Iterate(input);
  std::optional<Value> best;
  Value best_key;
  while (auto item = next()) {
    Value key = path.Of(in, *item);
    if (!case_sensitive) key = IgnoreCase(key);
    bool better = !best;
    if (best) {
      in.Charge(1 + key.weight());
      const auto order = Compare(key, best_key, kMaximum ? ">" : "<");
      better = order && (kMaximum ? *order > 0 : *order < 0);
    }
    if (!better) continue;
    best = std::move(*item);
    best_key = std::move(key);
  }
  return best ? *best : Value::Undefined("No aggregated item, sequence was empty.");
}

Value Sum(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("sum", args, {"attribute", "start"});
  const AttributePath path(bound.GetOr(0, Value::None()));
  Value total = bound.GetOr(1, Value::Int(0));
  if (total.IsString()) Raise("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : in.Collect(input)) total = Add(in, total, path.Of(in, item));
  return total;
}

Value GroupBy(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(bound.Get(0));
  const Value fallback = bound.GetOr(1, Value::None());
  const bool case_sensitive = bound.Bool(2, false);
  const auto key_of = [&](const Value& item) {
    Value key = path.Of(in, item, fallback);
    return case_sensitive ? key : IgnoreCase(key);
  };
  const auto items = in.Collect(input);
  std::vector<Value> keys;
  for (const Value& item : items) keys.push_back(key_of(item));
  const auto sorted = SortedBy(in, items, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < sorted.size();) {
    const Value key = key_of(sorted[begin]);
    size_t end = begin + 1;
    while (end < sorted.size() && Equal(key, key_of(sorted[end]))) ++end;
    Value grouper = case_sensitive ? key : path.Of(in, sorted[begin], fallback);
    Value group = Value::MakeTuple(
        {std::move(grouper),
         Value::MakeList({sorted.begin() + long(begin), sorted.begin() + long(end)})});
    group.As<List>().is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return Value::MakeList(std::move(groups));
}

Value Batch(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("batch", args, {"linecount", "fill_with"}, 1);
  const Value size = bound.Get(0);
  return Lazy(input, args,
              [&in, input, size, fill = bound.GetOr(1, Value::None()), next = Next(),
               held = std::optional<Value>(), ended = false]() mutable -> std::optional<Value> {
                if (ended) return std::nullopt;
                if (!next) next = Iterate(input);
                std::vector<Value> line;
                if (held) line.push_back(*std::exchange(held, std::nullopt));
                while (auto item = next()) {
                  in.Charge(1);
                  // As in jinja2, a line is full when its length equals the count exactly.
                  if (Equal(Value::Int(int64_t(line.size())), size)) {
                    held = std::move(item);
                    return Value::MakeList(std::move(line));
                  }
                  line.push_back(std::move(*item));
                }
                ended = true;
                if (line.empty()) return std::nullopt;
                if (!fill.IsNone() && RequireInt(size) > int64_t(line.size())) {
                  in.CheckItemCount(size.int_value());
                  line.resize(size_t(size.int_value()), fill);
                }
                return Value::MakeList(std::move(line));
              });
}

Value Slice(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("slice", args, {"slices", "fill_with"}, 1);
  const Value slices = bound.Get(0);
  return Lazy(input, args,
              [&in, input, slices, fill = bound.GetOr(1, Value::None()),
               items = std::optional<std::vector<Value>>(), offset = int64_t{0},
               number = int64_t{0}]() mutable -> std::optional<Value> {
                if (!items) items = in.Collect(input);
                const int64_t count = RequireInt(slices);
                if (count == 0) Raise("integer division or modulo by zero");
                if (number >= count) return std::nullopt;
                in.Charge(1);
                const int64_t length = int64_t(items->size());
                const int64_t per_slice = length / count, with_extra = length % count;
                const int64_t start = offset + number * per_slice;
                if (number < with_extra) ++offset;
                const int64_t end = offset + (number + 1) * per_slice;
                std::vector<Value> part(items->begin() + start, items->begin() + end);
                if (!fill.IsNone() && number >= with_extra) part.push_back(fill);
                ++number;
                return Value::MakeList(std::move(part));
              });
}

Value Map(Interpreter& in, const Value& input, CallArgs& args) {
  return Lazy(input, args,
              [&in, input, args, next = Next(), path = std::optional<AttributePath>(),
               fallback = Value::None(), filter = std::string()]() mutable -> std::optional<Value> {
                if (!next) {
                  if (!Truthy(input)) return std::nullopt;
                  if (args.positional.empty() && args.FindKeyword("attribute")) {
                    path.emplace(*args.TakeKeyword("attribute"));
                    fallback = args.TakeKeyword("default").value_or(Value::None());
                    if (!args.keyword.empty()) {
                      Raise("Unexpected keyword argument '{}'", args.keyword[0].first);
                    }
                  } else {
                    if (args.positional.empty()) Raise("map requires a filter argument");
                    if (!args.positional[0].IsString()) Raise("map: a filter's name is a string");
                    filter = args.positional[0].str();
                    args.positional.erase(args.positional.begin());
                  }
                  next = Iterate(input);
                }
                const auto item = next();
                if (!item) return std::nullopt;
                return path ? path->Of(in, *item, fallback) : in.CallFilter(filter, *item, args);
              });
}

template <bool kKeep, bool kOfAttribute>
Value Select(Interpreter& in, const Value& input, CallArgs& args) {
  return Lazy(input, args,
              [&in, input, args, next = Next(), path = AttributePath(Value::None()),
               test = std::optional<std::string>()]() mutable -> std::optional<Value> {
                if (!next) {
                  if (!Truthy(input)) return std::nullopt;
                  auto& rest = args.positional;
                  if (kOfAttribute) {
                    if (rest.empty()) Raise("Missing parameter for attribute name");
                    path = AttributePath(rest[0]);
                    rest.erase(rest.begin());
                  }
                  if (!rest.empty()) {
                    if (!rest[0].IsString()) Raise("select: a test's name is a string");
                    test = rest[0].str();
                    rest.erase(rest.begin());
                  }
                  next = Iterate(input);
                }
                while (auto item = next()) {
                  in.Charge(1);
                  const Value value = path.Of(in, *item);
                  const bool holds = test ? in.CallTest(*test, value, args) : Truthy(value);
                  if (holds == kKeep) return item;
                }
                return std::nullopt;
              });
}

Value Attr(Interpreter& in, const Value& input, CallArgs& args) {
  const Arguments bound("attr", args, {"name"}, 1);
  const std::string& name = bound.Text(0);
  // Only attributes: a dict's keys are none.
  if (input.Is(Kind::kDict) && !FindMethod(input, name) && !IsRefusedMutator(input, name)) {
    return UndefinedAttribute(input, bound.Get(0));
  }
  return in.GetAttribute(input, name);
}

}  // namespace

const std::vector<NamedFilter>& SequenceFilters() {
  static const std::vector<NamedFilter> table = {
      {"attr", Attr},
      {"batch", Batch},
      {"count", Length},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", Length},
      {"list", ToList},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<false, true>},
      {"reverse", Reverse},
      {"select", Select<true, false>},
      {"selectattr", Select<true, true>},
      {"slice", Slice},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  return table;
}

FilterFunction FindFilter(std::string_view name) {
  for (const auto* table : {&SequenceFilters(), &TextFilters()}) {
    const auto it = std::ranges::find(*table, name, &NamedFilter::name);
    if (it != table->end()) return it->filter;
  }
  return nullptr;
}

}  // namespace nibble::jinja
