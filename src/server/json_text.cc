#include "server/json_text.h"

namespace nibble::server {

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string QuoteJson(std::string_view text) {
  constexpr size_t kMost = 200;
  if (text.size() <= kMost) return DumpJson(Json(text));
  return DumpJson(Json(std::string(text.substr(0, kMost)) + "…"));
}

}  // namespace nibble::server
