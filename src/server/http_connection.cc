#include "server/http_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <utility>

#include "platform/clock.h"

namespace nibble::server {
namespace {

using boost::system::error_code;

constexpr size_t kMostReadAhead = size_t{64} << 10;
constexpr size_t kMostQueuedAnswers = size_t{256} << 10;  // then no further request is begun
constexpr double kLingerS = 2;
constexpr double kSpareS = 0.5;  // a spare connection waits for a head
constexpr int kStoppingRetryS = 5;
// A client's unread bytes are to be ours to count, not the system's to hide.
constexpr int kSendBuffer = 128 << 10;

}  // namespace

class Connection::Answer final : public Responder {
 public:
  Answer(std::shared_ptr<Connection> connection, const HttpRequest& request)
      : connection_(std::move(connection)),
        head_only_(request.method == "HEAD"),
        keep_alive_(request.keep_alive),
        version_1_0_(request.version_1_0) {}

  // A handler that lost it: the client is told, not left waiting.
  ~Answer() override {
    if (!connection_ || done_) return;
    try {
      if (started_) {
        connection_->Close();
      } else {
        Send(connection_->shared_.handler->Refusal(
            {.status = 500, .message = "no answer was made"}));
      }
    } catch (const std::exception&) {
      connection_.reset();  // no memory for the words: its time limit ends it
    }
  }

  void Send(HttpResponse response) override {
    if (gone()) return;
    const ResponseFraming framing{.keep_alive = KeepAlive(), .version_1_0 = version_1_0_};
    std::string bytes = SerializeHead(response, framing);
    if (!head_only_) bytes += response.body;
    connection_->Queue(bytes);
    Done();
  }

  void Start(HttpResponse head) override {
    if (gone()) return;
    chunked_ = !version_1_0_;
    if (!chunked_) keep_alive_ = false;
    started_ = true;
    connection_->Queue(SerializeHead(head, {.keep_alive = KeepAlive(),
                                            .version_1_0 = version_1_0_,
                                            .chunked = chunked_,
                                            .until_close = !chunked_}));
  }

  void Write(std::string_view data) override {
    if (gone() || data.empty()) return;
    Connection& connection = *connection_;
    if (chunked_) {
      connection.Queue(fmt::format("{:x}\r\n{}\r\n", data.size(), data));
    } else {
      connection.Queue(data);
    }
    if (connection.unsent() <= connection.shared_.options.max_unread) return;
    ++connection.shared_.counters.dropped;
    connection.Close();
  }

  void End() override {
    if (gone()) return;
    if (chunked_) connection_->Queue("0\r\n\r\n");
    Done();
  }

  bool gone() const override { return !connection_ || done_ || !connection_->open(); }
  void OnGone(std::function<void()> call) override { on_gone_ = std::move(call); }

  void Gone() {
    if (done_) return;
    done_ = true;
    if (auto call = std::exchange(on_gone_, nullptr)) call();
  }

 private:
  bool KeepAlive() {
    if (connection_->shared_.closing || connection_->spare_) keep_alive_ = false;
    return keep_alive_;
  }
  void Done() {
    done_ = true;
    on_gone_ = nullptr;
    connection_->last_ = !keep_alive_;
    std::exchange(connection_, nullptr)->Finish();
  }

  std::shared_ptr<Connection> connection_;  // null when done
  bool head_only_;
  bool keep_alive_;
  bool version_1_0_;
  bool chunked_ = false;
  bool started_ = false;
  bool done_ = false;
  std::function<void()> on_gone_;
};

Connection::Connection(boost::asio::ip::tcp::socket socket, HttpShared& shared, bool spare)
    : socket_(std::move(socket)), shared_(shared), parser_(shared.options.limits), spare_(spare) {
  ++shared_.counters.connections;
}

Connection::~Connection() { Close(); }

void Connection::Begin() {
  error_code error;
  socket_.set_option(boost::asio::ip::tcp::no_delay(true), error);
  socket_.set_option(boost::asio::socket_base::send_buffer_size(kSendBuffer), error);
  socket_.non_blocking(true, error);
  if (!shared_.tls) return Listen();
  tls_ = std::make_unique<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>>(socket_,
                                                                                   *shared_.tls);
  WaitFor(Waiting::kHandshake);
  tls_->async_handshake(boost::asio::ssl::stream_base::server,
                        [self = shared_from_this()](const error_code& failed) {
                          if (failed) return self->Close();
                          if (self->open_) self->Listen();
                        });
}

void Connection::Listen() {
  WaitFor(Waiting::kRequest);
  Read();
}

void Connection::WaitFor(Waiting what) {
  waiting_ = what;
  since_ = MonotonicSeconds();
}

void Connection::Read() {
  if (reading_ || !open_ || ended_) return;
  if (in_.size() >= kMostReadAhead && waiting_ != Waiting::kLinger) return;
  reading_ = true;
  auto done = [self = shared_from_this()](const error_code& error, size_t bytes) {
    self->reading_ = false;
    self->OnRead(error, bytes);
  };
  if (tls_) {
    tls_->async_read_some(boost::asio::buffer(chunk_), std::move(done));
  } else {
    socket_.async_read_some(boost::asio::buffer(chunk_), std::move(done));
  }
}

void Connection::OnRead(const error_code& error, size_t bytes) {
  if (!open_) return;
  if (error) {
    if (error == boost::asio::error::eof) return OnEnd();
    return Close();
  }
  if (waiting_ != Waiting::kLinger) {
    in_.append(chunk_.data(), bytes);
    Process();
  }
  Read();
}

// The client sends no more. One that waits for an answer counts as gone: there is no telling it
// from one that has closed.
void Connection::OnEnd() {
  ended_ = true;
  if (waiting_ == Waiting::kAnswer || unsent() == 0) return Close();
  close_after_write_ = true;
}

void Connection::Process() {
  if (processing_) return;  // an answer came at once: the loop below goes on
  processing_ = true;
  while (open_ && Step()) {
  }
  processing_ = false;
}

bool Connection::Step() {
  if (waiting_ == Waiting::kAnswer || waiting_ == Waiting::kLinger || close_after_write_) {
    return false;
  }
  if (unsent() > kMostQueuedAnswers) return false;
  // Empty lines are no request yet.
  size_t empty = 0;
  while (waiting_ == Waiting::kRequest && in_.compare(empty, 2, "\r\n") == 0) empty += 2;
  in_.erase(0, empty);
  if (in_.empty() && !parser_.has_head()) return false;
  if (waiting_ == Waiting::kRequest) WaitFor(Waiting::kHead);
  const HttpParser::Fed fed = parser_.Feed(in_);
  in_.erase(0, fed.consumed);
  CountBody();
  switch (fed.event) {
    case HttpParser::Event::kMore:
      if (!WithinBodies()) return false;
      return fed.consumed > 0 && !in_.empty();
    case HttpParser::Event::kHead:
      return OnHead();
    case HttpParser::Event::kError:
      Refuse(parser_.error());
      return false;
    case HttpParser::Event::kDone:
      break;
  }
  HttpRequest request = parser_.Take();
  WaitFor(Waiting::kAnswer);
  const auto answer = std::make_shared<Answer>(shared_from_this(), request);
  answer_ = answer;
  shared_.handler->Handle(std::move(request), answer);
  return true;
}

// A spare one that no other has made room for.
bool Connection::IsTooMany() const {
  return spare_ && shared_.counters.connections > shared_.options.max_connections;
}

void Connection::RefuseAsTooMany() {
  ++shared_.counters.refused;
  Refuse({.status = 503, .message = "too many connections", .retry_after_s = 1});
}

bool Connection::OnHead() {
  WaitFor(Waiting::kBody);
  spare_ = IsTooMany();
  if (spare_ && parser_.head().path != "/health") {
    RefuseAsTooMany();
    return false;
  }
  if (auto refusal = shared_.handler->CheckHead(parser_.head())) {
    if (parser_.has_body()) {
      Queue(SerializeHead(*refusal, {.keep_alive = false}) + refusal->body);
      Linger();
      return false;
    }
    HttpRequest request = parser_.Take();
    WaitFor(Waiting::kAnswer);
    const auto answer = std::make_shared<Answer>(shared_from_this(), request);
    answer_ = answer;
    answer->Send(*std::move(refusal));
    return true;
  }
  if (parser_.expects_continue() && in_.empty()) Queue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void Connection::CountBody() {
  const size_t now = parser_.body_bytes();
  shared_.counters.body_bytes += now - counted_body_;
  counted_body_ = now;
}

bool Connection::WithinBodies() {
  if (shared_.counters.body_bytes <= shared_.options.max_all_bodies) return true;
  Refuse({.status = 503, .message = "too many large requests at a time", .retry_after_s = 1});
  return false;
}

void Connection::Refuse(const ApiError& error) {
  const HttpResponse response = shared_.handler->Refusal(error);
  Queue(SerializeHead(response, {.keep_alive = false}) + response.body);
  Linger();
}

void Connection::Finish() {
  shared_.counters.body_bytes -= counted_body_;
  counted_body_ = 0;
  if (!open_) return;
  if (last_ || shared_.closing) return Linger();
  WaitFor(Waiting::kRequest);
  Process();
  Read();
}

// Sends what there is, then reads what still comes for a while: closing at once would reset the
// connection and take the answer from the client that is still sending.
void Connection::Linger() {
  WaitFor(Waiting::kLinger);
  shared_.counters.body_bytes -= counted_body_;
  counted_body_ = 0;
  in_.clear();
  close_after_write_ = true;
  if (unsent() == 0) {
    EndSending();
    if (ended_) return Close();
  }
  Read();
}

void Connection::Queue(std::string_view bytes) {
  if (!open_) return;
  if (unsent() == 0) progress_ = MonotonicSeconds();
  out_ += bytes;
  WriteMore();
}

void Connection::WriteMore() {
  if (write_runs_ || !open_) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    if (out_.empty()) return;
    writing_.swap(out_);
  }
  write_runs_ = true;
  auto done = [self = shared_from_this()](const error_code& error, size_t bytes) {
    self->write_runs_ = false;
    self->OnWritten(error, bytes);
  };
  const auto rest = boost::asio::buffer(writing_.data() + written_, writing_.size() - written_);
  if (tls_) {
    tls_->async_write_some(rest, std::move(done));
  } else {
    socket_.async_write_some(rest, std::move(done));
  }
}

void Connection::OnWritten(const error_code& error, size_t bytes) {
  if (!open_) return;
  if (error) return Close();
  progress_ = MonotonicSeconds();
  written_ += bytes;
  WriteMore();
  if (unsent() > 0) {
    if (unsent() <= kMostQueuedAnswers) Process();
    return;
  }
  if (!close_after_write_) {
    Process();
    return Read();
  }
  if (ended_ || waiting_ != Waiting::kLinger) return Close();
  EndSending();
}

// The other side is told that nothing follows.
void Connection::EndSending() {
  if (tls_) {
    tls_->async_shutdown(
        [self = shared_from_this()](const error_code& /*error*/) { self->Close(); });
    return;
  }
  error_code error;
  socket_.shutdown(boost::asio::socket_base::shutdown_send, error);
}

// While nothing is read, only the system can tell.
bool Connection::ClientIsGone() {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  return info.tcpi_state != TCP_ESTABLISHED;
}

void Connection::Tick(double now) {
  if (!open_) return;
  const HttpOptions& options = shared_.options;
  if (unsent() > 0 && now - progress_ > options.write_s) {
    ++shared_.counters.dropped;
    return Close();
  }
  const double waited = now - since_;
  const bool has_head = waiting_ != Waiting::kRequest && waiting_ != Waiting::kHead;
  if (!has_head && waited > kSpareS && IsTooMany()) return RefuseAsTooMany();
  switch (waiting_) {
    case Waiting::kHandshake:
      if (waited <= options.header_s) return;
      ++shared_.counters.timeouts;
      return Close();
    case Waiting::kRequest:
      if (waited > options.idle_s && unsent() == 0) Close();
      return;
    case Waiting::kHead:
    case Waiting::kBody: {
      const bool head = waiting_ == Waiting::kHead;
      if (waited <= (head ? options.header_s : options.body_s)) return;
      ++shared_.counters.timeouts;
      return Refuse({.status = 408,
                     .message = fmt::format("the {} of the request did not come within {} s",
                                            head ? "head" : "body",
                                            head ? options.header_s : options.body_s)});
    }
    case Waiting::kAnswer:
      if (!reading_ && ClientIsGone()) Close();
      return;
    case Waiting::kLinger:
      if (waited > kLingerS && unsent() == 0) Close();
      return;
  }
}

void Connection::CloseWhenIdle() {
  if (waiting_ == Waiting::kHandshake) return Close();
  if (waiting_ == Waiting::kRequest) return Linger();
  // What is still being sent would be refused when it is here.
  if (waiting_ != Waiting::kHead && waiting_ != Waiting::kBody) return;
  Refuse({.status = 503,
          .message = "the server is stopping",
          .code = "stopping",
          .retry_after_s = kStoppingRetryS});
}

void Connection::Close() {
  if (!open_) return;
  open_ = false;
  --shared_.counters.connections;
  shared_.counters.body_bytes -= counted_body_;
  counted_body_ = 0;
  error_code error;
  socket_.close(error);
  if (const auto answer = answer_.lock()) answer->Gone();
}

}  // namespace nibble::server
