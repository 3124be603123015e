#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace nibble {

struct DownloadOptions {
  std::string bearer_token;  // sent to the URL's own host only, never along a redirect to another
  std::string expected_sha256;  // hexadecimal digits; empty: not known
  std::optional<uint64_t> expected_bytes;
  // A body longer than this is an error even when the server announces it.
  uint64_t max_bytes = uint64_t{4} << 40;
  // Bytes done and of how many (0: unknown). False: stop, keeping what is there.
  std::function<bool(uint64_t done, uint64_t total)> progress;
  // Looks at the complete body before it gets its name; an error of it removes the part.
  std::function<Status(const std::filesystem::path&)> verify;
  int attempts = 5;                        // in a row without a new byte
  std::chrono::milliseconds backoff{500};  // before the second attempt; doubles up to 32 times
  std::chrono::seconds stall_timeout{60};  // without a byte
};

struct DownloadResult {
  uint64_t bytes = 0;
  std::string sha256;
};

// Fetches a URL (http, https) into `target`. The body grows in target.part, beside which
// target.part.from says what it is a part of; a later call resumes it when the server still has the
// same file. `target` appears only when the body is complete, its length is the announced one and
// its checksum, where one is known (given, or x-linked-etag), is right. Errors say what the server
// did; a wrong checksum also removes the part.
Result<DownloadResult> Download(const std::string& url, const std::filesystem::path& target,
                                const DownloadOptions& options);

// Fetches a small text (an API's answer) into memory: at most `max_bytes`.
struct TextAnswer {
  int status = 0;  // HTTP
  std::string body;
  std::string next_url;  // of the Link header, rel="next"; empty: none
};
Result<TextAnswer> FetchText(const std::string& url, const std::string& bearer_token,
                             size_t max_bytes);

// What to say about an HTTP status that is no success.
std::string DescribeStatus(int status, const std::string& url, bool has_token);

}  // namespace nibble
