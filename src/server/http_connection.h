#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <functional>
#include <memory>
#include <string>

#include "server/http_server.h"

namespace nibble::server {

// What connections of one server share. For the I/O thread only.
struct HttpShared {
  HttpOptions options;
  HttpHandler* handler = nullptr;
  HttpCounters counters = {};
  bool closing = false;                                      // no further requests
  std::unique_ptr<boost::asio::ssl::context> tls = nullptr;  // null: plain
};

// One client. It reads ahead while a request is answered, to see that the client goes and to take
// what it sends early, and answers one request after the other.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // spare: one beyond max_connections, for /health. Other requests are answered when connections
  // have been closed by then, and refused else.
  Connection(boost::asio::ip::tcp::socket socket, HttpShared& shared, bool spare);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Begin();
  void Tick(double now);
  // Closes as soon as no request is being answered.
  void CloseWhenIdle();
  void Close();
  bool open() const { return open_; }

 private:
  class Answer;  // the Responder of the request at hand
  enum class Waiting { kHandshake, kRequest, kHead, kBody, kAnswer, kLinger };

  void Listen();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  void OnEnd();
  void Process();
  bool Step();  // one event of the parser; false: nothing more can be done now
  bool OnHead();
  bool IsTooMany() const;
  void RefuseAsTooMany();
  void Refuse(const ApiError& error);
  void CountBody();
  bool WithinBodies();
  void WaitFor(Waiting what);
  void Finish();  // the request at hand is answered
  void Queue(std::string_view bytes);
  void WriteMore();
  void OnWritten(const boost::system::error_code& error, size_t bytes);
  void Linger();
  bool ClientIsGone();
  void EndSending();
  size_t unsent() const { return out_.size() + writing_.size() - written_; }

  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  HttpShared& shared_;
  HttpParser parser_;
  bool spare_;
  bool open_ = true;
  std::array<char, 16384> chunk_;
  std::string in_;  // not yet parsed
  bool reading_ = false;
  bool ended_ = false;  // the client sends no more
  Waiting waiting_ = Waiting::kRequest;
  double since_ = 0;  // waiting_ began
  bool processing_ = false;
  bool last_ = false;  // close behind the answer at hand
  size_t counted_body_ = 0;

  std::string out_;      // to be written behind writing_
  std::string writing_;  // being written
  size_t written_ = 0;
  bool write_runs_ = false;
  double progress_ = 0;  // when the client last took a byte
  bool close_after_write_ = false;
  std::weak_ptr<Answer> answer_;
};

}  // namespace nibble::server
