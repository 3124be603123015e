#include "grammar/schema_document.h"

#include <algorithm>
#include <array>
#include <utility>

#include "container/json.h"

namespace nibble::grammar {
namespace {

constexpr JsonLimits kSchemaLimits{
    .max_bytes = kMostSchemaBytes, .max_values = 100'000, .max_depth = 100};

// Keywords whose values hold schemas.
constexpr std::array<std::string_view, 23> kWithSchemas = {"items",
                                                           "additionalItems",
                                                           "prefixItems",
                                                           "contains",
                                                           "properties",
                                                           "additionalProperties",
                                                           "patternProperties",
                                                           "propertyNames",
                                                           "not",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "allOf",
                                                           "anyOf",
                                                           "oneOf",
                                                           "definitions",
                                                           "$defs",
                                                           "dependencies",
                                                           "dependentSchemas",
                                                           "unevaluatedItems",
                                                           "contentSchema",
                                                           "unevaluatedProperties",
                                                           "dependentRequired"};

// RFC 3986, as far as schemas in one document use it.
std::string ResolveUri(std::string_view base, std::string_view ref) {
  base = base.substr(0, base.find('#'));
  if (ref.starts_with('#') || ref.empty()) return std::string(base) + std::string(ref);
  const size_t colon = ref.find(':');
  if (colon != std::string_view::npos && ref.find_first_of("/?#") > colon) return std::string(ref);
  const size_t authority = base.find("://");
  const size_t path =
      authority == std::string_view::npos ? base.find('/') : base.find('/', authority + 3);
  if (ref.starts_with('/')) {
    return std::string(base.substr(0, path)) + std::string(ref);
  }
  const size_t last = base.rfind('/');
  if (last == std::string_view::npos ||
      (authority != std::string_view::npos && last < authority + 3)) {
    return authority == std::string_view::npos ? std::string(ref)
                                               : std::string(base) + "/" + std::string(ref);
  }
  return std::string(base.substr(0, last + 1)) + std::string(ref);
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexValue(text[i + 1]) >= 0 &&
        HexValue(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * HexValue(text[i + 1]) + HexValue(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string Unescaped(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size()) {
      out += token[++i] == '1' ? '/' : '~';
    } else {
      out += token[i];
    }
  }
  return out;
}

std::string Escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

const SchemaJson* Point(const SchemaJson& root, std::string_view pointer) {
  const SchemaJson* at = &root;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    const std::string token = Unescaped(pointer.substr(0, end));
    pointer.remove_prefix(end);
    if (at->is_object()) {
      const auto found = at->find(token);
      if (found == at->end()) return nullptr;
      at = &*found;
    } else if (at->is_array() && !token.empty() && token.size() < 7 &&
               token.find_first_not_of("0123456789") == std::string::npos &&
               std::stoul(token) < at->size()) {
      at = &(*at)[std::stoul(token)];
    } else {
      return nullptr;
    }
  }
  return at;
}

}  // namespace

std::string Quoted(std::string_view text) {
  return SchemaJson(std::string(text.substr(0, 60)))
      .dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

Result<SchemaDocument> SchemaDocument::Parse(std::string_view text, const SchemaOptions& options) {
  // The bounds and the messages are this parser's.
  auto checked = JsonDocument::Parse(std::string(text), kSchemaLimits);
  if (!checked) return Within("the schema", checked.error());
  SchemaDocument out;
  SchemaJson parsed = SchemaJson::parse(text, nullptr, false);
  if (parsed.is_discarded()) return BadInput("the schema is no JSON");
  out.root_ = std::make_shared<const SchemaJson>(std::move(parsed));
  const SchemaJson& root = *out.root_;
  out.ref_stands_alone_ = options.draft == SchemaOptions::Draft::k7;
  if (root.is_object() && root.contains("$schema") && root["$schema"].is_string()) {
    const std::string& dialect = root["$schema"].get_ref<const std::string&>();
    if (dialect.find("draft-0") != std::string::npos) out.ref_stands_alone_ = true;
    if (dialect.find("2019-09") != std::string::npos ||
        dialect.find("2020-12") != std::string::npos) {
      out.ref_stands_alone_ = false;
    }
  }
  out.named_.emplace("", &root);
  out.Walk(root, "", "#", false);
  return out;
}

// keys_are_names: the members are schemas by name, not keywords.
void SchemaDocument::Walk(const SchemaJson& value, std::string base, const std::string& place,
                          bool keys_are_names) {
  places_.emplace(&value, place);
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      Walk(value[i], base, place + "/" + std::to_string(i), false);
    }
    return;
  }
  if (!value.is_object()) return;
  if (keys_are_names) {
    for (const auto& [key, member] : value.items()) {
      Walk(member, base, place + "/" + Escaped(key), false);
    }
    return;
  }
  const auto text_of = [&](const char* key) -> const std::string* {
    const auto found = value.find(key);
    return found != value.end() && found->is_string() ? &found->get_ref<const std::string&>()
                                                      : nullptr;
  };
  const std::string* id = text_of("$id");
  if (id != nullptr && !(ref_stands_alone_ && value.contains("$ref"))) {
    const std::string uri = ResolveUri(base, *id);
    if (id->starts_with('#')) {
      named_.emplace(uri, &value);
    } else {
      base = uri.substr(0, uri.find('#'));
      named_.emplace(base, &value);
    }
  }
  if (const std::string* anchor = text_of("$anchor")) named_.emplace(base + "#" + *anchor, &value);
  bases_.emplace(&value, base);
  for (const auto& [key, member] : value.items()) {
    if (std::ranges::find(kWithSchemas, key) == kWithSchemas.end())
      continue;  // values, or nobody knows
    const bool names = key == "properties" || key == "patternProperties" || key == "$defs" ||
                       key == "definitions" || key == "dependencies" || key == "dependentSchemas";
    Walk(member, base, place + "/" + Escaped(key), names);
  }
}

Result<const SchemaJson*> SchemaDocument::Resolve(const SchemaJson& from,
                                                  std::string_view ref) const {
  const auto base = bases_.find(&from);
  const std::string uri = ResolveUri(base == bases_.end() ? "" : base->second, ref);
  const size_t hash = uri.find('#');
  const std::string fragment =
      hash == std::string::npos ? "" : PercentDecoded(uri.substr(hash + 1));
  const auto document = named_.find(uri.substr(0, hash));
  if (fragment.empty() || fragment.starts_with('/')) {
    if (document == named_.end()) {
      return BadInput("'$ref' {} leads to another document", Quoted(ref));
    }
    const SchemaJson* found = Point(*document->second, fragment);
    if (found == nullptr) return BadInput("'$ref' {} leads nowhere", Quoted(ref));
    return found;
  }
  const auto anchor = named_.find(uri.substr(0, hash) + "#" + fragment);
  if (anchor == named_.end()) return BadInput("'$ref' {} leads nowhere", Quoted(ref));
  return anchor->second;
}

std::string SchemaDocument::PlaceOf(const SchemaJson& value) const {
  const auto found = places_.find(&value);
  return found == places_.end() ? "#" : found->second;
}

}  // namespace nibble::grammar
