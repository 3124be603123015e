#include "cli/json_output.h"

#include <fmt/format.h>

namespace nibble::cli {
namespace {

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void PrintJsonLine(const Json& json) { fmt::print("{}\n", Dump(json)); }

std::string QuoteJson(std::string_view text) { return Dump(Json(text)); }

}  // namespace nibble::cli
