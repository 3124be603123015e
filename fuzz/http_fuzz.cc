// deps: server
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/http_parser.h"

// The first byte says how large the pieces are in which the rest arrives. Whatever it is: requests
// within the limits, or an error, and never a standstill.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble::server;
  if (size == 0) return 0;
  const size_t piece = size_t{data[0]} + 1;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const HttpLimits limits{.max_header_bytes = 512, .max_body_bytes = 300};
  HttpParser parser(limits);
  std::string in;
  size_t arrived = 0;
  while (arrived < all.size()) {
    in += all.substr(arrived, piece);
    arrived += piece;
    while (!in.empty() || parser.has_head()) {
      const HttpParser::Fed fed = parser.Feed(in);
      if (fed.consumed > in.size()) std::abort();
      in.erase(0, fed.consumed);
      if (fed.event == HttpParser::Event::kError) {
        const int status = parser.error().status;
        if (status < 400 || status > 505 || parser.error().message.empty()) std::abort();
        return 0;
      }
      if (fed.event == HttpParser::Event::kDone) {
        const HttpRequest request = parser.Take();
        if (request.body.size() > limits.max_body_bytes) std::abort();
        if (request.method.empty() || parser.has_head()) std::abort();
        continue;
      }
      if (fed.event == HttpParser::Event::kMore && (fed.consumed == 0 || in.empty())) break;
    }
    if (in.size() > limits.max_header_bytes + piece) std::abort();
  }
  return 0;
}
