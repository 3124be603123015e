#include "server/http_server.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <vector>

#include "platform/clock.h"
#include "platform/this_thread.h"
#include "server/http_connection.h"

namespace nibble::server {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr std::chrono::milliseconds kTick{100};
constexpr int kSpareConnections = 16;  // beyond the limit: for /health, and while others close

Result<std::unique_ptr<ssl::context>> MakeTls(const HttpOptions& options) {
  auto tls = std::make_unique<ssl::context>(ssl::context::tls_server);
  error_code error;
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                       ssl::context::no_sslv3 | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1,
                   error);
  tls->use_certificate_chain_file(options.tls_cert, error);
  if (error) {
    return BadInput("--tls-cert: {}: no chain of certificates in PEM: {}", options.tls_cert,
                    error.message());
  }
  tls->use_private_key_file(options.tls_key, ssl::context::pem, error);
  // A key of another kind than the certificate's is taken without a word.
  if (!error && SSL_CTX_check_private_key(tls->native_handle()) != 1) {
    error = error_code(static_cast<int>(ERR_get_error()), asio::error::get_ssl_category());
  }
  if (error) {
    return BadInput("--tls-key: {}: no private key in PEM that fits {}: {}", options.tls_key,
                    options.tls_cert, error.message());
  }
  return tls;
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(HttpOptions options, HttpHandler& handler) {
    shared.options = std::move(options);
    shared.handler = &handler;
  }

  void Accept();
  void OnAccept(const error_code& error, tcp::socket socket);
  void RefuseConnection(tcp::socket socket);
  void Tick();
  void WaitForSignal();

  // Connections refer to `shared`, and the context's handlers to them: they go first.
  HttpShared shared;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer timer{context};
  asio::signal_set signals{context};
  std::vector<std::weak_ptr<Connection>> connections;
  int signal_count = 0;
  bool accept_failed = false;  // no descriptor is left: try again with the next tick
};

void HttpServer::Impl::Accept() {
  acceptor.async_accept(
      [this](const error_code& error, tcp::socket socket) { OnAccept(error, std::move(socket)); });
}

void HttpServer::Impl::OnAccept(const error_code& error, tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {
    accept_failed = true;
    return;
  }
  ++shared.counters.accepted;
  const int beyond = shared.counters.connections - shared.options.max_connections;
  if (beyond >= kSpareConnections) {
    RefuseConnection(std::move(socket));
  } else {
    const auto connection = std::make_shared<Connection>(std::move(socket), shared, beyond >= 0);
    connections.push_back(connection);
    connection->Begin();
  }
  Accept();
}

void HttpServer::Impl::RefuseConnection(tcp::socket socket) {
  ++shared.counters.refused;
  const HttpResponse response = shared.handler->Refusal(
      {.status = 503, .message = "too many connections", .retry_after_s = 1});
  const std::string bytes = SerializeHead(response, {.keep_alive = false}) + response.body;
  error_code error;
  if (shared.tls) return;  // there is no saying anything before a handshake
  socket.non_blocking(true, error);
  socket.write_some(asio::buffer(bytes), error);  // fits, or there is nothing to be done
  socket.shutdown(tcp::socket::shutdown_send, error);
}

void HttpServer::Impl::Tick() {
  timer.expires_after(kTick);
  timer.async_wait([this](const error_code& error) {
    if (error) return;
    const double now = MonotonicSeconds();
    std::erase_if(connections, [](const auto& weak) {
      const auto connection = weak.lock();
      return !connection || !connection->open();
    });
    const auto all = connections;  // they may change the list
    for (const auto& weak : all) {
      if (const auto connection = weak.lock()) connection->Tick(now);
    }
    if (std::exchange(accept_failed, false) && acceptor.is_open()) Accept();
    shared.handler->Tick();
    Tick();
  });
}

void HttpServer::Impl::WaitForSignal() {
  signals.async_wait([this](const error_code& error, int /*signal*/) {
    if (error) return;
    shared.handler->OnSignal(++signal_count);
    WaitForSignal();
  });
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                       HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(options, handler);
  if (!options.tls_cert.empty()) {
    NIBBLE_TRY(impl->shared.tls, MakeTls(options));
  }
  error_code error;
  tcp::resolver resolver(impl->context);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return BadInput("--host: {} is no address of this machine: {}", options.host, error.message());
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = impl->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return IoError("--port {}: in use on {}; stop that program or choose another port",
                   options.port, options.host);
  }
  if (error) {
    return IoError("cannot listen on {} port {}: {}", options.host, options.port, error.message());
  }
  impl->signals.add(SIGINT, error);
  impl->signals.add(SIGTERM, error);
  impl->WaitForSignal();
  impl->Accept();
  impl->Tick();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  for (const auto& weak : impl_->connections) {
    if (const auto connection = weak.lock()) connection->Close();
  }
}

std::string HttpServer::address() const {
  error_code error;
  return impl_->acceptor.local_endpoint(error).address().to_string();
}

bool HttpServer::is_loopback() const {
  error_code error;
  return impl_->acceptor.local_endpoint(error).address().is_loopback();
}

int HttpServer::port() const {
  error_code error;
  return impl_->acceptor.local_endpoint(error).port();
}

void HttpServer::Run() {
  RequestTimeSlice(kShortSliceNs);
  while (true) {
    try {
      impl_->context.run();
      return;
    } catch (const std::exception& error) {
      // Out of memory for one client: the others go on.
      fmt::print(stderr, "nibble: a request failed: {}\n", error.what());
    }
  }
}

void HttpServer::Stop() { impl_->context.stop(); }

void HttpServer::Post(std::function<void()> call) { asio::post(impl_->context, std::move(call)); }

void HttpServer::StopAccepting() {
  impl_->shared.closing = true;
  error_code error;
  impl_->acceptor.close(error);
  const auto all = impl_->connections;
  for (const auto& weak : all) {
    if (const auto connection = weak.lock()) connection->CloseWhenIdle();
  }
}

const HttpCounters& HttpServer::counters() const { return impl_->shared.counters; }

}  // namespace nibble::server
