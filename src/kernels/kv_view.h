#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/math.h"
#include "base/paging.h"
#include "format/kv_format.h"

namespace nibble {

// The contract between the page bookkeeping and the kernels
//
// Forms. A page of 32 positions exists in up to two forms. Its *open* form holds f16 (f32 for a
// side whose format is f32) and is written position by position. Its *sealed* form holds the
// group's formats. Where both sides' formats are f16 or f32 the two forms are the same bytes: there
// are no sealed pages, KvTable::sealed stays empty, and the rest of this comment does not apply.
//
// Who sees what. Pages seal in aligned units of S pages (KvView::unit_pages). A query at a position
// of page q sees page i sealed iff i < S · ⌊q / S⌋, else open: by positions alone. So for rows at
// positions [first, first + rows) the kernels read
//   sealed  pages [0, S · ⌊last / 32 / S⌋), less those that have left the window
//   open    pages [S · ⌊first / 32 / S⌋, last / 32]
// with last = first + rows - 1, and the tables must have pages there. A unit that the rows
// complete is in both.
//
// Who writes. WriteKv writes the rows into open pages. It then seals every unit whose last position
// is among the rows: all S pages of it, from their open forms (those of earlier steps included)
// into table.sealed[...], in this step, since later rows of the step may read it; so `sealed` has
// reserved pages for every unit that the rows complete. They count as published only when the step
// commits. After a rollback of some rows, a later step that completes the unit seals it again,
// over the old bytes or into another page. A sealed page is never written by anyone else. Pages of
// a unit none of whose positions any later query can see (window) need not exist: kNoPage is not
// sealed.

// Layout of one layer's piece of one page: [kv_head][K | V], then the page floats [kv_head][K, V]
// of the sides that have one. The blocks of each format: format/kv_format.h.
struct KvLayout {
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  int kv_heads = 0;
  int head_dim = 0;

  bool operator==(const KvLayout&) const = default;

  size_t KBytes() const { return KvBlockBytes(k, KvSide::kKeys, head_dim); }  // of one head
  size_t VBytes() const { return KvBlockBytes(v, KvSide::kValues, head_dim); }
  size_t HeadOffset(int head) const { return (KBytes() + VBytes()) * static_cast<size_t>(head); }
  // Bytes of one head's page floats.
  size_t FloatBytes() const {
    return sizeof(float) * (size_t{TraitsOf(k).page_float[0]} + size_t{TraitsOf(v).page_float[1]});
  }
  size_t FloatOffset(int head) const {
    return HeadOffset(kv_heads) + FloatBytes() * static_cast<size_t>(head);
  }
  size_t PieceBytes() const { return FloatOffset(kv_heads); }  // a multiple of 4
};

// The form that pages are written in, and the one that full units are sealed into.
constexpr KvFormat OpenFormat(KvFormat format) {
  return format == KvFormat::kF32 ? KvFormat::kF32 : KvFormat::kF16;
}
inline KvLayout OpenLayout(const KvLayout& layout) {
  return {OpenFormat(layout.k), OpenFormat(layout.v), layout.kv_heads, layout.head_dim};
}
// Pages that seal together: the larger unit of the two sides.
inline int UnitPages(const KvLayout& layout) {
  const int k = TraitsOf(layout.k).unit_pages;
  const int v = TraitsOf(layout.v).unit_pages;
  return k > v ? k : v;
}

// The pages of one sequence in one KV group: page p of the sequence holds positions [32p, 32p+32)
// at arena + pages[p] * page_bytes, and sealed at sealed_arena + sealed[p] * sealed_page_bytes.
// kNoPage: the page is not there in that form, and is never read.
struct KvTable {
  std::byte* arena = nullptr;
  size_t page_bytes = 0;
  std::span<const PageId> pages = {};
  std::byte* sealed_arena = nullptr;
  size_t sealed_page_bytes = 0;
  std::span<const PageId> sealed = {};  // empty: the group has one form
};

// One sequence's cache of one layer.
struct KvView {
  KvTable table;
  size_t layer_offset = 0;   // of this layer's piece in an open page
  KvLayout layout;           // of open pages
  size_t sealed_offset = 0;  // of this layer's piece in a sealed page
  KvLayout sealed;           // of sealed pages; equal to `layout`: one form
  int unit_pages = 1;        // S

  bool two_forms() const { return sealed != layout; }

  std::byte* piece(int page) const {
    return table.arena + table.page_bytes * static_cast<size_t>(table.pages[page].value()) +
           layer_offset;
  }
  std::byte* sealed_piece(int page) const {
    return table.sealed_arena +
           table.sealed_page_bytes * static_cast<size_t>(table.sealed[page].value()) +
           sealed_offset;
  }
  // Leading pages that a query at `position` sees sealed.
  int SealedPages(int position) const {
    const int page = position / kPageTokens;
    return two_forms() ? page / unit_pages * unit_pages : 0;
  }
};

}  // namespace nibble
