#include "server/http_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

#include "base/text.h"

namespace nibble::server {
namespace {

namespace http = boost::beast::http;
using RequestParser = http::request_parser<http::string_body>;

constexpr std::string_view kLastChunk = "0\r\n\r\n";

// "http://host/a%20b?c": "/a b" and "c".
void SplitTarget(std::string_view target, HttpRequest& request) {
  if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != target.npos) {
    const size_t slash = target.find('/', scheme + 3);
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  request.path = PercentDecode(target.substr(0, question));
  request.query = target.substr(std::min(question + 1, target.size()));
}

// A line of the head that ends without CR, for which the parser would wait or blame the version.
bool HasBareLineFeed(std::string_view bytes) {
  bytes = bytes.substr(0, bytes.find("\r\n\r\n"));
  for (size_t at = bytes.find('\n'); at != bytes.npos; at = bytes.find('\n', at + 1)) {
    if (at == 0 || bytes[at - 1] != '\r') return true;
  }
  return false;
}

// The bytes of empty lines before a request line, which some clients send behind a body (RFC 9112,
// 2.2).
size_t BlankLines(std::string_view bytes) {
  size_t at = 0;
  while (bytes.substr(at).starts_with("\r\n")) at += 2;
  return at;
}

ApiError ErrorOf(const boost::system::error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit) {
    return {.status = 413,
            .message = fmt::format("the body is larger than {}",
                                   FormatBytes(static_cast<double>(limits.max_body_bytes)))};
  }
  if (error == http::error::header_limit) {
    return {.status = 431,
            .message = fmt::format("the head of the request is longer than {} bytes",
                                   limits.max_header_bytes)};
  }
  if (error == http::error::bad_version) {
    return {.status = 505, .message = "expected HTTP/1.0 or HTTP/1.1"};
  }
  return {.status = 400, .message = "this is no HTTP request: " + error.message()};
}

}  // namespace

struct HttpParser::Impl {
  HttpLimits limits;
  std::optional<RequestParser> parser;
  HttpRequest request;
  bool begun = false;  // the first byte of a request line was there
  bool has_head = false;
  bool has_body = false;
  bool expects_continue = false;
  ApiError error;

  void Start() {
    parser.emplace();
    parser->header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
    parser->body_limit(limits.max_body_bytes);
    request = {};
    begun = has_head = has_body = expects_continue = false;
  }

  // What the head says that Beast leaves to us. False: an error.
  bool TakeHead() {
    const auto& message = parser->get();
    has_head = true;
    request.method = std::string(message.method_string());
    SplitTarget(message.target(), request);
    request.version_1_0 = message.version() == 10;
    request.keep_alive = message.keep_alive();
    for (const auto& field : message) {
      request.headers.emplace_back(AsciiLower(field.name_string()), std::string(field.value()));
    }
    has_body = !parser->is_done();
    const std::string coding = AsciiLower(request.Header("transfer-encoding"));
    // HTTP/1.0 has no chunks: what follows would be taken for another request.
    if (!coding.empty() && request.version_1_0) {
      error = {.status = 400, .message = "Transfer-Encoding: not in HTTP/1.0"};
      return false;
    }
    if (!coding.empty() && coding != "chunked") {
      error = {.status = 501, .message = "Transfer-Encoding: expected chunked"};
      return false;
    }
    if (!request.version_1_0 && message.count(http::field::host) != 1) {
      error = {.status = 400, .message = "HTTP/1.1 needs one Host header"};
      return false;
    }
    const std::string expect = AsciiLower(request.Header("expect"));
    expects_continue = expect == "100-continue" && has_body && !request.version_1_0;
    if (!expect.empty() && expect != "100-continue") {
      error = {.status = 417, .message = "Expect: expected 100-continue"};
      return false;
    }
    return true;
  }
};

HttpParser::HttpParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
  impl_->Start();
}

HttpParser::~HttpParser() = default;

HttpParser::Fed HttpParser::Feed(std::string_view bytes) {
  Impl& impl = *impl_;
  RequestParser& parser = *impl.parser;
  if (impl.has_head && parser.is_done()) return {0, Event::kDone};
  Fed fed;
  if (!impl.begun) {
    fed.consumed = BlankLines(bytes);
    const std::string_view rest = bytes.substr(fed.consumed);
    if (rest.empty() || rest == "\r") return fed;
    impl.begun = true;
  }
  boost::system::error_code error;
  while (fed.consumed < bytes.size() && !parser.is_done()) {
    const std::string_view rest = bytes.substr(fed.consumed);
    // Beast 1.81 asserts that the last chunk is never looked at again with less than its shortest
    // form; so much is always still to come when less is there.
    if (impl.has_head && parser.chunked() && rest.size() < kLastChunk.size()) break;
    if (!impl.has_head && HasBareLineFeed(rest)) {
      impl.error = {.status = 400,
                    .message = "this is no HTTP request: expected CR LF behind each line"};
      return {fed.consumed, Event::kError};
    }
    const size_t consumed = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
    fed.consumed += consumed;
    if (error == http::error::need_more) break;
    if (error) {
      impl.error = ErrorOf(error, impl.limits);
      return {fed.consumed, Event::kError};
    }
    if (!impl.has_head && parser.is_header_done()) {
      fed.event = impl.TakeHead() ? Event::kHead : Event::kError;
      return fed;
    }
    if (consumed == 0) break;
  }
  if (impl.has_head && parser.is_done()) {
    fed.event = Event::kDone;
  } else if (bytes.size() - fed.consumed > impl.limits.max_header_bytes) {
    // Beast bounds heads, but neither a chunk's extensions nor what follows the last chunk.
    impl.error = ErrorOf(http::error::header_limit, impl.limits);
    fed.event = Event::kError;
  }
  return fed;
}

const HttpRequest& HttpParser::head() const { return impl_->request; }
bool HttpParser::has_head() const { return impl_->has_head; }
bool HttpParser::has_body() const { return impl_->has_body; }
bool HttpParser::expects_continue() const { return impl_->expects_continue; }
size_t HttpParser::body_bytes() const {
  return impl_->has_head ? impl_->parser->get().body().size() : 0;
}

HttpRequest HttpParser::Take() {
  HttpRequest request = std::move(impl_->request);
  request.body = std::move(impl_->parser->get().body());
  impl_->Start();
  return request;
}

const ApiError& HttpParser::error() const { return impl_->error; }

}  // namespace nibble::server
