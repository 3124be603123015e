#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace nibble::testing {

struct TestRequest {
  std::string path;     // with the query
  std::string headers;  // as sent, names in lower case
  // The value of a header; empty: absent.
  std::string Header(const std::string& name) const {
    const size_t at = headers.find("\n" + name + ": ");
    if (at == headers.npos) return "";
    const size_t begin = at + name.size() + 3;
    return headers.substr(begin, headers.find('\r', begin) - begin);
  }
  size_t RangeBegin() const {
    const std::string range = Header("range");
    return range.empty() ? 0 : size_t(std::stoul(range.substr(6)));
  }
};

// An HTTP server on a free local port for tests. The handler gets each request and a function that
// sends raw bytes (status line and headers included; false when the client has gone); the
// connection closes when it returns, so servers that lie are as easy as honest ones.
class TestServer {
 public:
  using Send = std::function<bool(const std::string&)>;
  using Handler = std::function<void(const TestRequest&, const Send&)>;

  explicit TestServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 16);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~TestServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<TestRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string Response(const std::string& status, const std::string& headers,
                              const std::string& body) {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n" + headers + "\r\n" + body;
  }

 private:
  void Serve() {
    for (int client; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      Answer(client);
      ::shutdown(client, SHUT_WR);
      char rest[256];
      while (::recv(client, rest, sizeof rest, MSG_DONTWAIT) > 0) {
      }
      ::close(client);
    }
  }

  void Answer(int client) {
    std::string text;
    while (text.find("\r\n\r\n") == text.npos) {
      char buffer[4096];
      const ssize_t n = ::recv(client, buffer, sizeof buffer, 0);
      if (n <= 0) return;
      text.append(buffer, size_t(n));
    }
    TestRequest request;
    const size_t space = text.find(' ');
    request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    request.headers = text.substr(text.find('\n'));
    bool in_name = true;
    for (char& c : request.headers) {
      if (c == '\n') in_name = true;
      if (c == ':') in_name = false;
      if (in_name) c = char(std::tolower(static_cast<unsigned char>(c)));
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    handler_(request, [client](const std::string& data) {
      for (size_t sent = 0; sent < data.size();) {
        const ssize_t n = ::send(client, data.data() + sent, data.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += size_t(n);
      }
      return true;
    });
  }

  Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::thread thread_;
};

}  // namespace nibble::testing
