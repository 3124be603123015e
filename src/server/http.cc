#include "server/http.h"

#include <fmt/format.h>

namespace nibble::server {
namespace {

void AppendHeader(std::string_view name, std::string_view value, std::string& out) {
  out += name;
  out += ": ";
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  }
  out += "\r\n";
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (!escape) {
      out += text[i];
      continue;
    }
    out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
    i += 2;
  }
  return out;
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::string_view HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

std::string SerializeHead(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, HttpReason(response.status));
  if (!response.content_type.empty()) AppendHeader("Content-Type", response.content_type, out);
  for (const auto& [name, value] : response.headers) AppendHeader(name, value, out);
  if (framing.chunked) {
    AppendHeader("Transfer-Encoding", "chunked", out);
  } else if (!framing.until_close && response.status != 204 && response.status != 304) {
    AppendHeader("Content-Length", std::to_string(response.body.size()), out);
  }
  if (!framing.keep_alive) {
    AppendHeader("Connection", "close", out);
  } else if (framing.version_1_0) {
    AppendHeader("Connection", "keep-alive", out);
  }
  return out + "\r\n";
}

}  // namespace nibble::server
