#pragma once

#include <array>
#include <span>
#include <string_view>

namespace nibble {

// One name that tokenizer.ggml.pre may have.
struct PreType {
  std::string_view name;
  // Applied one after the other, each to the pieces the one before left; matches and what lies
  // between them are pieces. Oniguruma's spelling; unused ones are empty.
  std::array<std::string_view, 6> expressions = {};
  bool whole_piece = false;    // a piece that is a token is taken as it is (ignore_merges)
  bool add_bos = false;        // default of add_bos_token
  bool add_sep = false;        // default of add_sep_token
  bool characters = false;     // merges are over characters, not bytes
  bool escape_spaces = false;  // spaces are "▁" in the vocabulary
};

std::span<const PreType> PreTypes();
const PreType* FindPreType(std::string_view name);  // null: not known

}  // namespace nibble
