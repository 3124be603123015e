#include "server/page.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/sha256.h"

// The built page: web/dist, made by web/build.mjs.
namespace nibble {
extern const std::string_view kPageIndex;
extern const std::string_view kPageScript;
extern const std::string_view kPageStyle;
extern const std::string_view kPageIcon;
}  // namespace nibble

namespace nibble::server {
namespace {

// What the page may do: its own script and style, its own server, nothing else. Markdown of an
// answer becomes nodes through DOMPurify alone.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify";

struct PageEntry {
  std::string_view path;
  std::string_view type;
  const std::string_view* bytes;
};
constexpr std::array kEntries = {
    PageEntry{"/", "text/html; charset=utf-8", &kPageIndex},
    PageEntry{"/app.js", "text/javascript; charset=utf-8", &kPageScript},
    PageEntry{"/app.css", "text/css; charset=utf-8", &kPageStyle},
    PageEntry{"/icon.svg", "image/svg+xml", &kPageIcon},
};

const PageEntry* FindEntry(std::string_view path) {
  const auto* found = std::ranges::find(kEntries, path, &PageEntry::path);
  return found == kEntries.end() ? nullptr : found;
}

// Of all files together: they are of one build.
const std::string& PageTag() {
  static const std::string tag = [] {
    std::string all;
    for (const PageEntry& entry : kEntries) all += *entry.bytes;
    return "\"" + Sha256Hex(all).substr(0, 32) + "\"";
  }();
  return tag;
}

}  // namespace

bool IsPageFile(std::string_view path) { return FindEntry(path) != nullptr; }

HttpResponse PageFile(std::string_view path, std::string_view if_none_match) {
  const PageEntry& entry = *FindEntry(path);
  HttpResponse response{.content_type = std::string(entry.type)};
  response.headers = {{"ETag", PageTag()},
                      {"Cache-Control", "no-cache"},  // asked for again, answered with 304
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Content-Security-Policy", std::string(kPolicy)}};
  if (if_none_match.find(PageTag()) != std::string_view::npos || if_none_match == "*") {
    response.status = 304;
    response.content_type.clear();
  } else {
    response.body = *entry.bytes;
  }
  return response;
}

}  // namespace nibble::server
