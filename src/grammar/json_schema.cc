#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "grammar/json_grammar.h"
#include "grammar/schema_document.h"
#include "grammar/schema_shape.h"

namespace nibble::grammar {
namespace {

constexpr size_t kMostGraphStates = 200'000;   // of all objects and arrays together
constexpr int64_t kMostDfaStates = 1'000'000;  // of all automata that are made on the way

// Writes shapes as rules: one per formula, so that recursion in a schema is recursion of rules.
class SchemaEmitter {
 public:
  SchemaEmitter(Formulas& formulas, GrammarSource& source)
      : formulas_(formulas), source_(source), json_(AddJsonRules(source_, JsonSpace::kCanonical)) {}

  Result<ExprId> Emit(Formula root) {
    const ExprId whole = Use(root);
    while (!wanted_.empty()) {
      const auto [formula, id] = wanted_.front();
      wanted_.pop_front();
      NIBBLE_TRY(const Shape shape, formulas_.Expand(formula));
      NIBBLE_TRY(const ExprId body, Body(shape));
      source_.Define(id, body);
    }
    return whole;
  }

 private:
  ExprId Use(Formula f) {
    if (f == formulas_.Anything()) return source_.Use(json_.value);
    if (f == formulas_.Nothing()) return source_.Never();
    const auto [found, is_new] = rules_.try_emplace(f);
    if (is_new) {
      found->second = source_.Declare("schema-" + std::to_string(rules_.size()));
      wanted_.emplace_back(f, found->second);
    }
    return source_.Use(found->second);
  }

  Result<ExprId> Body(const Shape& shape) {
    std::vector<ExprId> ways;
    if (shape.null) ways.push_back(source_.Bytes("null"));
    if (shape.true_value) ways.push_back(source_.Bytes("true"));
    if (shape.false_value) ways.push_back(source_.Bytes("false"));
    if (shape.number.IsAll()) {
      ways.push_back(source_.Use(json_.number));
    } else if (!shape.number.IsEmpty()) {
      NIBBLE_TRY(const CharDfa spellings, shape.number.Spellings());
      ways.push_back(TextGraph(spellings));
    }
    if (shape.strings) ways.push_back(String(shape.string));
    for (const ArrayShape& array : shape.arrays) {
      NIBBLE_TRY(const ExprId one, Array(array));
      ways.push_back(one);
    }
    for (const ObjectShape& object : shape.objects) {
      NIBBLE_TRY(const ExprId one, Object(object));
      ways.push_back(one);
    }
    return source_.Choice(ways);
  }

  ExprId String(const std::optional<CharDfa>& texts) {
    if (!texts) return source_.Use(json_.string);
    return source_.Sequence({source_.Bytes("\""), TextGraph(*texts), source_.Bytes("\"")});
  }

  // The texts of an automaton, as a JSON string spells them.
  ExprId TextGraph(const CharDfa& dfa) {
    GrammarSource::Graph graph(dfa.states().size());
    for (size_t i = 0; i < graph.size(); ++i) {
      graph[i].final = dfa.states()[i].final;
      std::map<uint32_t, CodePointSet> by_target;
      for (const CharDfa::Edge& edge : dfa.states()[i].edges) {
        by_target[edge.target].Add(edge.low, edge.high);
      }
      for (const auto& [target, set] : by_target)
        graph[i].edges.push_back({Character(set), target});
    }
    return source_.Add(std::move(graph));
  }

  // Sets with many spellings are rules, because a text of given length has a place for each of its
  // characters.
  ExprId Character(const CodePointSet& set) {
    std::vector<std::pair<char32_t, char32_t>> key;
    for (const CodePointRange& range : set.Ranges()) key.emplace_back(range.low, range.high);
    const auto known = characters_.find(key);
    if (known != characters_.end()) return known->second;
    ExprId expr = JsonCharacter(source_, set);
    if (key.back().second >= 0x7F || key.front().first < 0x20) {
      expr = source_.Use(
          source_.AddRule("characters-" + std::to_string(characters_.size() + 1), expr));
    }
    characters_.emplace(std::move(key), expr);
    return expr;
  }

  Status CheckGraph(size_t states) {
    graph_states_ += states;
    if (graph_states_ <= kMostGraphStates) return {};
    return BadInput("the schema's arrays and objects have more than {} places", kMostGraphStates);
  }

  // States: items so far, as far as they are told apart, and which of `contains` are there.
  Result<ExprId> Array(const ArrayShape& array) {
    if (array.contains.size() > 4) return BadInput("more than 4 'contains' hold for one array");
    const auto first = static_cast<int64_t>(array.first.size());
    const int64_t counted = std::max({first, array.min, array.max == kUnbounded ? 0 : array.max});
    const uint32_t all = (uint32_t{1} << array.contains.size()) - 1;
    using Key = std::pair<int64_t, uint32_t>;
    // Items are counted by `counted + 1` as soon as they are no longer told apart.
    StateTable<Key> table;
    GrammarSource::Graph graph(1);
    table.Of({0, 0}, graph);
    for (uint32_t i = 0; i < graph.size(); ++i) {
      NIBBLE_RETURN_IF_ERROR(CheckGraph(1));
      const auto [count, has] = table.keys[i];
      graph[i].final = count >= array.min && has == all;
      if (array.max != kUnbounded && count >= array.max) continue;
      const Formula item = count < first ? array.first[static_cast<size_t>(count)] : array.rest;
      for (uint32_t more = 0; more <= all; ++more) {
        if ((more & has) != 0) continue;
        Formula value = item;
        for (size_t c = 0; c < array.contains.size(); ++c) {
          if ((more >> c & 1) != 0) value = formulas_.And(value, array.contains[c]);
        }
        if (value == formulas_.Nothing()) continue;
        const ExprId comma = source_.Bytes(count > 0 ? ", " : "");
        // Beyond what is counted one more is like another, but the first has no comma.
        const uint32_t target =
            table.Of({std::min(count + 1, std::max<int64_t>(counted, 1)), has | more}, graph);
        graph[i].edges.push_back({source_.Sequence({comma, Use(value)}), target});
      }
    }
    return source_.Sequence(
        {source_.Bytes("["), source_.Add(std::move(graph)), source_.Bytes("]")});
  }

  template <class Key>
  struct StateTable {
    std::map<Key, uint32_t> index;
    std::vector<Key> keys;
    uint32_t Of(const Key& key, GrammarSource::Graph& graph) {
      const auto [found, is_new] = index.try_emplace(key, static_cast<uint32_t>(keys.size()));
      if (is_new) {
        keys.push_back(key);
        graph.resize(keys.size());
      }
      return found->second;
    }
  };

  // States: the next declared member, how many members there are, as far as they are told apart,
  // and whether one of them is not declared. Two that are not declared may have the same name, so
  // that only one of them counts for `min`.
  Result<ExprId> Object(const ObjectShape& object) {
    std::vector<std::string> names;
    std::vector<ObjectShape::Member> members;
    for (const ObjectShape::Member& member : object.members) {
      names.push_back(member.name);
      if (member.value != formulas_.Nothing()) {
        members.push_back(member);
      } else if (member.required) {
        return source_.Never();
      }
    }
    NIBBLE_TRY(const std::vector<ExprId> others, Others(object, names));
    const auto declared = static_cast<int64_t>(members.size());
    if (object.min > declared + 1 && !others.empty()) {
      return BadInput("'minProperties' {}: names that are not declared may be the same",
                      object.min);
    }
    const int64_t counted = std::max({int64_t{1}, object.min, object.max});
    using Key = std::tuple<int64_t, int64_t, bool>;
    StateTable<Key> table;
    GrammarSource::Graph graph(1);
    table.Of({0, 0, false}, graph);
    std::vector<ExprId> keys;
    for (const ObjectShape::Member& member : members) {
      keys.push_back(source_.Sequence(
          {JsonText(source_, member.name), source_.Bytes(": "), Use(member.value)}));
    }
    for (uint32_t i = 0; i < graph.size(); ++i) {
      NIBBLE_RETURN_IF_ERROR(CheckGraph(1));
      const auto [at, count, other] = table.keys[i];
      const bool full = object.max != kUnbounded && count >= object.max;
      const ExprId comma = source_.Bytes(count > 0 ? ", " : "");
      const int64_t one_more = std::min(count + 1, counted);
      if (at < declared) {
        const auto m = static_cast<size_t>(at);
        if (!members[m].required) {
          const uint32_t target = table.Of({at + 1, count, other}, graph);
          graph[i].edges.push_back({source_.Empty(), target});
        }
        if (full) continue;
        const uint32_t target = table.Of({at + 1, one_more, other}, graph);
        graph[i].edges.push_back({source_.Sequence({comma, keys[m]}), target});
        continue;
      }
      graph[i].final = count >= object.min;
      if (full) continue;
      for (const ExprId pair : others) {
        // A second one counts for max alone: where both bounds are there, for neither too often.
        const bool counts = !other || object.max != kUnbounded;
        if (other && object.min > count && counts) continue;
        const uint32_t target = table.Of({at, counts ? one_more : count, true}, graph);
        graph[i].edges.push_back({source_.Sequence({comma, pair}), target});
      }
    }
    return source_.Sequence(
        {source_.Bytes("{"), source_.Add(std::move(graph)), source_.Bytes("}")});
  }

  // Names that are not declared, with their values.
  Result<std::vector<ExprId>> Others(const ObjectShape& object,
                                     const std::vector<std::string>& declared) {
    std::vector<ExprId> out;
    for (const ObjectShape::Others& others : object.others) {
      if (others.value == formulas_.Nothing()) continue;
      std::optional<CharDfa> names = others.names;
      if (!declared.empty()) {
        const CharDfa free = CharDfa::OfTexts(declared).Complement();
        if (names) {
          NIBBLE_TRY(names, names->Intersect(free));
        } else {
          names = free;
        }
        if (names->IsEmpty()) continue;
      }
      out.push_back(source_.Sequence({String(names), source_.Bytes(": "), Use(others.value)}));
    }
    return out;
  }

  Formulas& formulas_;
  GrammarSource& source_;
  JsonRules json_;
  std::map<Formula, RuleId> rules_;
  std::deque<std::pair<Formula, RuleId>> wanted_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, ExprId> characters_;
  size_t graph_states_ = 0;
};

}  // namespace

Result<ExprId> AddSchema(GrammarSource& source, std::string_view schema,
                         const SchemaOptions& options) {
  NIBBLE_TRY(const SchemaDocument document, SchemaDocument::Parse(schema, options));
  const CharDfa::Budget budget(kMostDfaStates);
  Formulas formulas(document, options);
  return SchemaEmitter(formulas, source).Emit(formulas.Schema(document.root()));
}

Result<GrammarSource> SchemaSource(std::string_view schema, const SchemaOptions& options) {
  GrammarSource source;
  NIBBLE_TRY(const ExprId answer, AddSchema(source, schema, options));
  source.SetRoot(source.AddRule("answer", answer));
  return source;
}

}  // namespace nibble::grammar
