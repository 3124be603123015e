#include "fetch/curl_handle.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace nibble {
namespace {

std::string_view Trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// "W/\"abc\"" and "\"abc\"" mean abc.
std::string_view Unquoted(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return etag;
}

}  // namespace

bool IsSha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
         });
}

ResponseHeaders ResponseHeaders::Next() const {
  ResponseHeaders next;
  next.linked_sha256 = linked_sha256;
  next.linked_bytes = linked_bytes;
  return next;
}

void ResponseHeaders::Parse(std::string_view line) {
  line = Trimmed(line);
  if (line.starts_with("HTTP/")) {
    // A new response begins; what describes the linked file stays.
    *this = Next();
    const size_t space = line.find(' ');
    if (space != line.npos) {
      status = int(Number(line.substr(space + 1, 3)).value_or(0));
    }
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name = AsciiLower(Trimmed(line.substr(0, colon)));
  const std::string_view value = Trimmed(line.substr(colon + 1));
  if (name == "content-length") {
    content_length = Number(value);
  } else if (name == "etag") {
    etag = value;
  } else if (name == "link") {
    link = value;
  } else if (name == "retry-after") {
    retry_after_seconds = Number(value);
  } else if (name == "x-linked-etag") {
    if (IsSha256(Unquoted(value))) linked_sha256 = AsciiLower(Unquoted(value));
  } else if (name == "x-linked-size") {
    linked_bytes = Number(value);
  } else if (name == "content-range" && value.starts_with("bytes ")) {
    const std::string_view range = value.substr(6);  // "5-9/10" or "*/10"
    const size_t slash = range.find('/');
    if (slash == range.npos) return;
    range_total = Number(range.substr(slash + 1));
    range_begin = Number(range.substr(0, range.find('-')));
  }
}

Result<CurlHandle> NewCurl(const std::string& url, const std::string& bearer_token,
                           HeaderList& headers) {
  if (!url.starts_with("http://") && !url.starts_with("https://")) {
    return BadInput("{}: only http and https URLs can be fetched", ShownUrl(url));
  }
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  CurlHandle handle(initialised == CURLE_OK ? curl_easy_init() : nullptr);
  if (!handle) return IoError("libcurl cannot be initialised");
  CURL* curl = handle.get();
  const bool secure = url.starts_with("https://");
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "nibble");
  // libcurl sends the token to the first host and port only (CURLOPT_UNRESTRICTED_AUTH is off).
  if (!bearer_token.empty()) {
    if (bearer_token.find_first_of("\r\n") != std::string::npos) {
      return BadInput("HF_TOKEN holds a line break");
    }
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, bearer_token.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  return handle;
}

std::string ShownUrl(const std::string& url) {
  std::string out = url.substr(0, url.find_first_of("?#"));
  const size_t host = out.find("://");
  if (host == out.npos) return out;
  const size_t slash = out.find('/', host + 3);
  const size_t at = out.substr(0, slash).rfind('@');
  if (at != out.npos && at > host) out.erase(host + 3, at + 1 - (host + 3));
  return out;
}

}  // namespace nibble
