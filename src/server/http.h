#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::server {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // as sent: "GET"
  std::string path;     // without the query; percent-decoded
  std::string query;    // behind the '?', as sent
  HttpHeaders headers;  // names in lower case, in order
  std::string body;
  bool version_1_0 = false;
  bool keep_alive = true;

  // The first header of a name in lower case; empty when there is none.
  std::string_view Header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: none
  HttpHeaders headers = {};
  std::string body = {};
};

// "a%20b" as "a b". A wrong escape stays as it is.
std::string PercentDecode(std::string_view text);

std::string_view HttpReason(int status);  // "Not Found"

struct ResponseFraming {
  bool keep_alive = true;
  bool version_1_0 = false;
  bool chunked = false;      // else Content-Length
  bool until_close = false;  // neither of them
};
// The status line and the headers of a response, with the empty line. Line breaks in values are
// left out.
std::string SerializeHead(const HttpResponse& response, const ResponseFraming& framing);

}  // namespace nibble::server
