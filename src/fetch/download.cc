#include "fetch/download.h"

#include <algorithm>
#include <thread>

#include "base/text.h"
#include "fetch/curl_handle.h"
#include "fetch/part_file.h"
#include "fetch/paths.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMuchProgress = 1 << 20;  // bytes that make an attempt count as a success

fs::path WithSuffix(fs::path path, const char* suffix) { return path += suffix; }

bool IsTransient(int status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
         status == 504;
}

bool IsTransient(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

class Downloader {
 public:
  Downloader(const std::string& url, const fs::path& target, const DownloadOptions& options)
      : url_(url),
        target_(target),
        part_path_(WithSuffix(target, ".part")),
        origin_path_(WithSuffix(target, ".part.from")),
        options_(options) {}

  Result<DownloadResult> Run() {
    NIBBLE_RETURN_IF_ERROR(MakeFolder(target_.parent_path().empty() ? "." : target_.parent_path()));
    NIBBLE_RETURN_IF_ERROR(part_.Open(part_path_));
    NIBBLE_RETURN_IF_ERROR(Resume());
    const bool already_whole = origin_.total > 0 && part_.bytes() == origin_.total;
    if (!already_whole) {
      const Status fetched = FetchAll();
      if (!fetched) {
        if (part_.bytes() == 0) RemovePart();
        return std::unexpected(fetched.error());
      }
    }
    return Finish();
  }

 private:
  // Takes over the part of an earlier call when it is one of the same file.
  Status Resume() {
    const auto before = PartOrigin::Read(origin_path_);
    const bool same = before && before->url == url_ &&
                      (options_.expected_sha256.empty() || before->sha256.empty() ||
                       before->sha256 == options_.expected_sha256);
    if (!same) {
      origin_ = PartOrigin{url_, "", "", 0};
      return part_.Clear();
    }
    origin_ = *before;
    return part_.Keep();
  }

  Status FetchAll() {
    auto pause = options_.backoff;
    // The most bytes there ever were: one that starts over gains only by coming further.
    uint64_t most = part_.bytes();
    for (int attempt = 1;; ++attempt) {
      bool done = false;
      const Status status = Attempt(done);
      if (status && done) return {};
      if (!status && !transient_) return status;
      const uint64_t gained = part_.bytes() - std::min(part_.bytes(), most);
      most += gained;
      if (gained >= kMuchProgress || (total_ > 0 && gained > total_ / 100)) {
        attempt = 0;
        pause = options_.backoff;
      }
      if (attempt >= options_.attempts) {
        if (!status) {
          return Fail(ErrorKind::kIo, "{} ({} attempts)", status.error().message, attempt);
        }
        return IoError("{}: the server sent {} of {} bytes and no more", ShownUrl(url_),
                       part_.bytes(), total_);
      }
      const auto asked = std::chrono::seconds(headers_.retry_after_seconds.value_or(0));
      NIBBLE_RETURN_IF_ERROR(Wait(std::max<std::chrono::milliseconds>(
          pause, std::min<std::chrono::milliseconds>(asked, std::chrono::seconds(60)))));
      pause = std::min(pause * 2, options_.backoff * 32);
    }
  }

  Status Wait(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      NIBBLE_RETURN_IF_ERROR(Report());
      std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(100)));
    }
    return {};
  }

  // Once the caller has said stop it is stopped: a caller may say so once only.
  Status Report() {
    if (!stopped_) stopped_ = options_.progress && !options_.progress(part_.bytes(), total_);
    if (!stopped_) return {};
    return Fail(ErrorKind::kCancelled, "{}: stopped; the next pull goes on from {}", ShownUrl(url_),
                FormatBytes(static_cast<double>(part_.bytes())));
  }

  // One request. `done`: the body is complete. An error is worth another attempt when transient_.
  Status Attempt(bool& done) {
    transient_ = false;
    body_begun_ = false;
    failure_ = {};
    headers_ = headers_.Next();
    HeaderList request;
    // Without a tag or checksum, the rest may be one of another version of the same length.
    if (!origin_.has_strong_etag() && KnownSha256().empty()) NIBBLE_RETURN_IF_ERROR(part_.Clear());
    const uint64_t offset = part_.bytes();
    if (offset > 0) {
      request.Add(fmt::format("Range: bytes={}-", offset));
      if (origin_.has_strong_etag()) request.Add("If-Range: " + origin_.etag);
    }
    NIBBLE_TRY(const CurlHandle handle, NewCurl(url_, options_.bearer_token, request));
    SetCallbacks(handle.get());
    const CURLcode code = curl_easy_perform(handle.get());
    if (!failure_) return failure_;
    if (code == CURLE_ABORTED_BY_CALLBACK) return Report();
    return Judge(code, offset, done);
  }

  void SetCallbacks(CURL* curl) {
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error_text_);
    error_text_[0] = 0;
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, long(options_.stall_timeout.count()));
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(
        curl, CURLOPT_HEADERFUNCTION,
        +[](char* data, size_t size, size_t count, void* self) -> size_t {
          static_cast<Downloader*>(self)->headers_.Parse({data, size * count});
          return size * count;
        });
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(
        curl, CURLOPT_WRITEFUNCTION,
        +[](char* data, size_t size, size_t count, void* self) -> size_t {
          auto* me = static_cast<Downloader*>(self);
          me->failure_ = me->Write({data, size * count});
          return me->failure_ ? size * count : 0;
        });
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, this);
    curl_easy_setopt(
        curl, CURLOPT_XFERINFOFUNCTION,
        +[](void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
          return static_cast<Downloader*>(self)->Report() ? 0 : 1;
        });
  }

  Status Judge(CURLcode code, uint64_t offset, bool& done) {
    const int status = headers_.status;
    if (status == 416 && offset > 0) {
      if (headers_.range_total == offset) {
        total_ = offset;
        done = true;
        return {};
      }
      // The file on the server has become shorter: from the start.
      NIBBLE_RETURN_IF_ERROR(part_.Clear());
      transient_ = true;
      return IoError("{}: the server has no bytes from {} on", ShownUrl(url_), offset);
    }
    if (status >= 400) {
      transient_ = IsTransient(status);
      return IoError("{}", DescribeStatus(status, url_, !options_.bearer_token.empty()));
    }
    if (code == CURLE_OK && status != 200 && status != 206) {
      return IoError("{}: the server answered with status {}", ShownUrl(url_), status);
    }
    if (code == CURLE_OK && !body_begun_) NIBBLE_RETURN_IF_ERROR(BeginBody());
    if (code != CURLE_OK) {
      transient_ = IsTransient(code);
      const std::string why = error_text_[0] ? error_text_ : curl_easy_strerror(code);
      if (part_.bytes() == 0) return IoError("{}: {}", ShownUrl(url_), why);
      return IoError("{}: the transfer broke after {} of {} bytes: {}", ShownUrl(url_),
                     part_.bytes(), total_ ? std::to_string(total_) : "an unknown number of", why);
    }
    done = total_ == 0 || part_.bytes() >= total_;
    transient_ = true;
    return {};
  }

  // The headers of a body that is to be kept are there: checks what they announce.
  Status BeginBody() {
    body_begun_ = true;
    const auto shown = ShownUrl(url_);
    if (headers_.status == 206) {
      if (headers_.range_begin != part_.bytes()) {
        return IoError("{}: asked for bytes from {} on, the server sends others", shown,
                       part_.bytes());
      }
      // If-Range asked for the rest of that version alone; not every server heeds it.
      if (part_.bytes() > 0 && KnownSha256().empty() && headers_.etag != origin_.etag) {
        NIBBLE_RETURN_IF_ERROR(part_.Clear());
        return IoError("{}: the file on the server has changed; pull again", shown);
      }
      total_ = headers_.range_total.value_or(origin_.total);
      if (origin_.total > 0 && total_ != origin_.total) {
        NIBBLE_RETURN_IF_ERROR(part_.Clear());
        return IoError("{}: the file on the server has changed from {} to {} bytes; pull again",
                       shown, origin_.total, total_);
      }
    } else {
      NIBBLE_RETURN_IF_ERROR(part_.Clear());
      total_ = headers_.content_length.value_or(0);
    }
    const auto expected = options_.expected_bytes ? options_.expected_bytes : headers_.linked_bytes;
    if (expected && total_ > 0 && total_ != *expected) {
      return IoError("{}: the server announces {} bytes, the file has {}", shown, total_,
                     *expected);
    }
    limit_ = total_ > 0 ? total_ : expected ? *expected : options_.max_bytes;
    if (limit_ > options_.max_bytes) {
      return IoError("{}: the server announces {}, at most {} are fetched", shown,
                     FormatBytes(static_cast<double>(limit_)),
                     FormatBytes(static_cast<double>(options_.max_bytes)));
    }
    if (total_ == 0 && expected) total_ = *expected;
    if (total_ > part_.bytes()) {
      NIBBLE_RETURN_IF_ERROR(
          CheckFreeSpace(part_path_.parent_path().empty() ? "." : part_path_.parent_path(),
                         total_ - part_.bytes()));
    }
    // A whole new body has nothing to do with what an earlier call was told.
    const std::string sha256 = headers_.status == 206 ? KnownSha256() : ExpectedSha256();
    origin_ = {url_, headers_.etag, sha256, total_};
    return origin_.Write(origin_path_);
  }

  Status Write(std::string_view data) {
    if (headers_.status != 200 && headers_.status != 206) return {};  // an error's page
    if (!body_begun_) NIBBLE_RETURN_IF_ERROR(BeginBody());
    if (data.size() > limit_ - std::min(limit_, part_.bytes())) {
      const Status cleared = part_.Clear();
      return IoError("{}: the server sends more than the {} bytes of the file", ShownUrl(url_),
                     limit_);
    }
    return part_.Append(data);
  }

  std::string ExpectedSha256() const {
    return options_.expected_sha256.empty() ? headers_.linked_sha256 : options_.expected_sha256;
  }

  // The checksum to expect, or what an earlier call was told of it.
  std::string KnownSha256() const {
    std::string known = ExpectedSha256();
    return known.empty() ? origin_.sha256 : known;
  }

  Result<DownloadResult> Finish() {
    const auto expected_bytes =
        options_.expected_bytes ? options_.expected_bytes : headers_.linked_bytes;
    if (expected_bytes && part_.bytes() != *expected_bytes) {
      const uint64_t got = part_.bytes();
      RemovePart();
      return IoError("{}: the server sent {} bytes, the file has {}", ShownUrl(url_), got,
                     *expected_bytes);
    }
    const std::string digest = part_.Digest();
    const std::string expected = KnownSha256();
    if (!expected.empty() && digest != expected) {
      RemovePart();
      return IoError(
          "{}: wrong checksum: SHA-256 is {}, expected {}; the file was changed on its way or on "
          "the server",
          ShownUrl(url_), digest, expected);
    }
    const Status verified = options_.verify ? options_.verify(part_path_) : Status();
    if (!verified) {
      RemovePart();
      return Within(ShownUrl(url_), verified.error());
    }
    NIBBLE_RETURN_IF_ERROR(part_.Commit(target_));
    std::error_code ignored;
    fs::remove(origin_path_, ignored);
    return DownloadResult{part_.bytes(), digest};
  }

  void RemovePart() {
    std::error_code ignored;
    fs::remove(part_path_, ignored);
    fs::remove(origin_path_, ignored);
  }

  const std::string url_;
  const fs::path target_, part_path_, origin_path_;
  const DownloadOptions& options_;
  PartFile part_;
  PartOrigin origin_;
  ResponseHeaders headers_;
  uint64_t total_ = 0;  // 0: not known yet
  uint64_t limit_ = 0;
  bool body_begun_ = false;
  bool transient_ = false;
  bool stopped_ = false;  // by the progress callback
  Status failure_;
  char error_text_[CURL_ERROR_SIZE] = {};
};

}  // namespace

std::string DescribeStatus(int status, const std::string& url, bool has_token) {
  const std::string shown = ShownUrl(url);
  switch (status) {
    case 401:
    case 403:
      return fmt::format("{}: access denied (status {}); {}", shown, status,
                         has_token ? "the token in HF_TOKEN does not open it"
                                   : "a private or gated model needs a token in HF_TOKEN");
    case 404:
      return fmt::format("{}: not found (status 404)", shown);
    case 429:
      return fmt::format("{}: too many requests (status 429)", shown);
    default:
      return fmt::format("{}: the server answered with status {}", shown, status);
  }
}

Result<DownloadResult> Download(const std::string& url, const fs::path& target,
                                const DownloadOptions& options) {
  return Downloader(url, target, options).Run();
}

}  // namespace nibble
