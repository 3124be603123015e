#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"
#include "server/http_parser.h"

namespace nibble::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;            // 0: any free one
  std::string tls_cert = {};  // PEM files: of the chain and of its key; empty: no TLS
  std::string tls_key = {};
  int max_connections = 1024;  // and a few that only /health is answered on
  HttpLimits limits = {};
  size_t max_all_bodies = 256'000'000;  // of all connections together
  size_t max_unread = 1'000'000;        // bytes of a stream that its client has not read
  double header_s = 10;                 // from a request's first byte to the end of its head
  double body_s = 60;                   // from there to the end of its body
  double idle_s = 75;                   // without a request
  double write_s = 30;                  // without the client taking a byte of what waits for it
};

// Answers one request. For the I/O thread only. After the last call the connection goes on with its
// next request; what is called when the client is gone does nothing.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void Send(HttpResponse response) = 0;

  // A response in pieces, chunked where the client knows that. Write never blocks: a client that
  // leaves more than HttpOptions::max_unread unread is dropped.
  virtual void Start(HttpResponse head) = 0;
  virtual void Write(std::string_view data) = 0;
  virtual void End() = 0;

  virtual bool gone() const = 0;
  // Called once if the client goes before the last call of the above.
  virtual void OnGone(std::function<void()> call) = 0;
};

// All calls are on the I/O thread and must be short.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Before the body is read: an answer refuses it.
  virtual std::optional<HttpResponse> CheckHead(const HttpRequest& head) = 0;
  virtual void Handle(HttpRequest request, std::shared_ptr<Responder> responder) = 0;
  // The body of a response that the server itself makes: wrong HTTP, a timeout, no room.
  virtual HttpResponse Refusal(const ApiError& error) = 0;
  virtual void Tick() = 0;  // ten times a second
  // SIGINT or SIGTERM came for the count-th time.
  virtual void OnSignal(int count) = 0;
};

struct HttpCounters {
  int connections = 0;
  int64_t accepted = 0;
  int64_t refused = 0;    // too many connections
  int64_t dropped = 0;    // clients that did not read
  int64_t timeouts = 0;   // heads and bodies that did not come
  size_t body_bytes = 0;  // held now
};

// Listens, and runs all connections on the thread that calls Run. (Asio; kept out of this header.)
class HttpServer {
 public:
  // Errors: an address that is none, a port in use.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options,
                                                    HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  // that it listens at, in numbers
  bool is_loopback() const;     // which only this machine reaches
  int port() const;

  void Run();   // until Stop
  void Stop();  // any thread; unfinished responses are cut off
  // Any thread: calls on the I/O thread.
  void Post(std::function<void()> call);

  // For the I/O thread.
  void StopAccepting();  // and closes connections as soon as they have no request
  const HttpCounters& counters() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble::server
