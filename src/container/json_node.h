#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "container/json.h"

namespace nibble {

// The values of a document in the order of its text, children after their parent; a member is its
// key (a string) and its value. Strings lie in the document's own text, unescaped in place.
struct JsonDocument::Node {
  JsonKind kind = JsonKind::kNull;
  uint32_t count = 0;  // bytes of a string, elements of an array, members of an object
  union {
    int64_t integer = 0;  // kBool, kInt
    double real;          // kDouble
    const char* text;     // kString
    uint64_t nodes;       // kArray, kObject: this node and all below it
  };

  std::string_view string() const { return {text, count}; }
  const Node* next() const {
    return kind == JsonKind::kArray || kind == JsonKind::kObject ? this + nodes : this + 1;
  }
};

struct JsonDocument::Impl {
  static_assert(sizeof(Node) == 16);
  std::string text;
  std::vector<Node> nodes;  // never empty
};

}  // namespace nibble
