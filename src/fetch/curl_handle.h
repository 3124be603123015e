#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

struct CurlCloser {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using CurlHandle = std::unique_ptr<CURL, CurlCloser>;

// Request headers, freed with the value.
class HeaderList {
 public:
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  ~HeaderList() { curl_slist_free_all(list_); }
  void Add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

// What the headers of a response say; of a chain of redirects, of its last one. The linked_ fields
// may come with any of them: Hugging Face describes a file where it redirects to its storage.
struct ResponseHeaders {
  int status = 0;
  std::optional<uint64_t> content_length;
  std::optional<uint64_t> range_begin;
  std::optional<uint64_t> range_total;
  std::string etag;
  std::string link;
  std::optional<uint64_t> retry_after_seconds;
  std::string linked_sha256;
  std::optional<uint64_t> linked_bytes;

  void Parse(std::string_view line);
  // For the response that follows this one.
  ResponseHeaders Next() const;
};

// A handle set up with redirects (http and https only, no way back from https), time limits and,
// when not empty, the token for the first host.
Result<CurlHandle> NewCurl(const std::string& url, const std::string& bearer_token,
                           HeaderList& headers);

// A URL as messages show it: without its query, which may hold a signature, and without a password.
std::string ShownUrl(const std::string& url);

bool IsSha256(std::string_view text);  // 64 hexadecimal digits

}  // namespace nibble
