#include "fetch/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/sha256.h"
#include "base/text.h"
#include "fetch/curl_handle.h"
#include "fetch/paths.h"

namespace nibble {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMuchProgress = 1 << 20;  // bytes that make an attempt count as a success

fs::path WithSuffix(fs::path path, const char* suffix) { return path += suffix; }

// What the part on the disk is a part of.
struct Origin {
  std::string url, etag, sha256;
  uint64_t total = 0;  // 0: not announced

  static std::optional<Origin> Read(const fs::path& path) {
    std::ifstream file(path);
    Origin out;
    std::string total;
    if (!std::getline(file, out.url) || !std::getline(file, out.etag) ||
        !std::getline(file, out.sha256) || !std::getline(file, total)) {
      return std::nullopt;
    }
    out.total = std::strtoull(total.c_str(), nullptr, 10);
    return out;
  }

  void Write(const fs::path& path) const {
    std::ofstream(path) << url << '\n' << etag << '\n' << sha256 << '\n' << total << '\n';
  }
};

// The growing file, locked against other processes, and the hash of what is in it.
class PartFile {
 public:
  PartFile() = default;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    if (file_ >= 0) ::close(file_);
  }

  Status Open(const fs::path& path) {
    path_ = path;
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) return IoError("{}: cannot write: {}", path.string(), std::strerror(errno));
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      return IoError("{}: another process is fetching this file", path.string());
    }
    return {};
  }

  // Keeps what is there: hashes it and goes to its end.
  Status Keep() {
    const off_t size = ::lseek(file_, 0, SEEK_END);
    if (size < 0 || ::lseek(file_, 0, SEEK_SET) < 0) return Failed("seek");
    hash_ = Sha256();
    std::vector<char> buffer(1 << 18);
    for (bytes_ = 0; bytes_ < uint64_t(size);) {
      const ssize_t n = ::read(file_, buffer.data(), buffer.size());
      if (n <= 0) return Failed("read");
      hash_.Update(std::string_view(buffer.data(), size_t(n)));
      bytes_ += uint64_t(n);
    }
    return {};
  }

  Status Clear() {
    bytes_ = 0;
    hash_ = Sha256();
    if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) < 0) return Failed("truncate");
    return {};
  }

  Status Append(std::string_view data) {
    hash_.Update(data);
    bytes_ += data.size();
    while (!data.empty()) {
      const ssize_t n = ::write(file_, data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Failed("write");
      data.remove_prefix(size_t(n));
    }
    return {};
  }

  uint64_t bytes() const { return bytes_; }
  std::string Digest() const {
    Sha256 copy = hash_;
    return copy.HexDigest();
  }

 private:
  Status Failed(const char* what) const {
    const auto kind = errno == ENOSPC ? ErrorKind::kNoRoom : ErrorKind::kIo;
    return Fail(kind, "{}: cannot {}: {}", path_.string(), what, std::strerror(errno));
  }

  fs::path path_;
  int file_ = -1;
  uint64_t bytes_ = 0;
  Sha256 hash_;
};

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
    const auto before = Origin::Read(origin_path_);
    const bool same = before && before->url == url_ &&
                      (options_.expected_sha256.empty() || before->sha256.empty() ||
                       before->sha256 == options_.expected_sha256);
    if (!same) {
      origin_ = Origin{url_, "", "", 0};
      return part_.Clear();
    }
    origin_ = *before;
    return part_.Keep();
  }

  Status FetchAll() {
    auto pause = options_.backoff;
    for (int attempt = 1;; ++attempt) {
      const uint64_t before = part_.bytes();
      bool done = false;
      const Status status = Attempt(done);
      if (status && done) return {};
      if (!status && !transient_) return status;
      const uint64_t gained = part_.bytes() > before ? part_.bytes() - before : 0;
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

  Status Report() const {
    if (!options_.progress || options_.progress(part_.bytes(), total_)) return {};
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
    const uint64_t offset = part_.bytes();
    if (offset > 0) {
      request.Add(fmt::format("Range: bytes={}-", offset));
      if (!origin_.etag.empty() && !origin_.etag.starts_with("W/")) {
        request.Add("If-Range: " + origin_.etag);
      }
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
      total_ = headers_.range_total.value_or(0);
      if (origin_.total > 0 && total_ > 0 && total_ != origin_.total) {
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
    origin_ = {url_, headers_.etag, ExpectedSha256(), total_};
    origin_.Write(origin_path_);
    return {};
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
    std::string expected = ExpectedSha256();
    if (expected.empty()) expected = origin_.sha256;
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
    NIBBLE_RETURN_IF_ERROR(CommitFile(part_path_, target_));
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
  Origin origin_;
  ResponseHeaders headers_;
  uint64_t total_ = 0;  // 0: not known yet
  uint64_t limit_ = 0;
  bool body_begun_ = false;
  bool transient_ = false;
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
