#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "server/api_error.h"
#include "server/http.h"

namespace nibble::server {

struct HttpLimits {
  size_t max_header_bytes = size_t{16} << 10;
  size_t max_body_bytes = 10'000'000;
};

// Bytes in, requests out (HTTP/1.0 and 1.1), one after the other on a connection. Whatever the
// bytes are: an error, or more are needed. Beast's parser, which is kept out of this header.
class HttpParser {
 public:
  enum class Event {
    kMore,   // of the head or of the body
    kHead,   // the head is there and the body is not yet read; feed on
    kDone,   // Take() the request
    kError,  // see error(); nothing more can be read
  };
  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Bytes that are not consumed are to be given again, with more behind them. kHead comes once for
  // each request, also when it has no body.
  struct Fed {
    size_t consumed = 0;
    Event event = Event::kMore;
  };
  Fed Feed(std::string_view bytes);

  // From kHead on; the body is empty until kDone.
  const HttpRequest& head() const;
  bool has_head() const;
  bool has_body() const;          // one is announced
  bool expects_continue() const;  // before it sends it
  size_t body_bytes() const;      // read so far

  // After kDone; the next request may be fed then.
  HttpRequest Take();

  // 400, 413, 417, 431, 501 or 505.
  const ApiError& error() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble::server
