#include <chrono>
#include <thread>

#include "fetch/curl_handle.h"
#include "fetch/download.h"

namespace nibble {
namespace {

struct TextSink {
  TextAnswer answer;
  ResponseHeaders headers;
  size_t max_bytes = 0;
  bool too_long = false;
};

// <https://...?cursor=x>; rel="next"
std::string NextUrl(const std::string& link) {
  const size_t rel = link.find("rel=\"next\"");
  if (rel == link.npos) return "";
  const size_t begin = link.rfind('<', rel);
  const size_t end = link.find('>', begin == link.npos ? 0 : begin);
  if (begin == link.npos || end == link.npos || end > rel) return "";
  return link.substr(begin + 1, end - begin - 1);
}

Result<TextAnswer> FetchOnce(const std::string& url, const std::string& token, size_t max_bytes,
                             bool& transient) {
  TextSink sink;
  sink.max_bytes = max_bytes;
  HeaderList request;
  NIBBLE_TRY(const CurlHandle handle, NewCurl(url, token, request));
  CURL* curl = handle.get();
  char error_text[CURL_ERROR_SIZE] = {};
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_text);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 120L);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &sink);
  curl_easy_setopt(
      curl, CURLOPT_HEADERFUNCTION,
      +[](char* data, size_t size, size_t count, void* self) -> size_t {
        static_cast<TextSink*>(self)->headers.Parse({data, size * count});
        return size * count;
      });
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
  curl_easy_setopt(
      curl, CURLOPT_WRITEFUNCTION,
      +[](char* data, size_t size, size_t count, void* self) -> size_t {
        auto* to = static_cast<TextSink*>(self);
        to->too_long = to->answer.body.size() + size * count > to->max_bytes;
        if (to->too_long) return 0;
        to->answer.body.append(data, size * count);
        return size * count;
      });
  const CURLcode code = curl_easy_perform(curl);
  if (sink.too_long) {
    return IoError("{}: the answer is longer than {} bytes", ShownUrl(url), max_bytes);
  }
  if (code != CURLE_OK) {
    transient = true;
    return IoError("{}: {}", ShownUrl(url), error_text[0] ? error_text : curl_easy_strerror(code));
  }
  sink.answer.status = sink.headers.status;
  sink.answer.next_url = NextUrl(sink.headers.link);
  transient = sink.answer.status == 429 || sink.answer.status >= 500;
  return std::move(sink.answer);
}

}  // namespace

Result<TextAnswer> FetchText(const std::string& url, const std::string& bearer_token,
                             size_t max_bytes) {
  for (int attempt = 1;; ++attempt) {
    bool transient = false;
    auto answer = FetchOnce(url, bearer_token, max_bytes, transient);
    if (!transient || attempt == 4) return answer;
    std::this_thread::sleep_for(std::chrono::milliseconds(250 << attempt));
  }
}

}  // namespace nibble
