#include "server/service.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "platform/this_thread.h"
#include "server/http_server.h"
#include "server/step_meter.h"
#include "tests/support/test_data.h"

namespace nibble::server {
namespace {

// Sends one request and reads up to `most` bytes of the answer, or all of it.
std::string AskAt(int port, const std::string& method, const std::string& path,
                  const std::string& body, size_t most) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = method + " " + path +
                              " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " +
                              std::to_string(body.size()) + "\r\n\r\n" + body;
  EXPECT_EQ(send(client, request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::string answer;
  char chunk[4096];
  while (answer.size() < most) {
    const ssize_t bytes = recv(client, chunk, std::min(sizeof chunk, most - answer.size()), 0);
    if (bytes <= 0) break;
    answer.append(chunk, static_cast<size_t>(bytes));
  }
  close(client);
  return answer;
}

// The whole server in one process, with its engine, so that sanitizers see all of it, and clients
// on threads of their own.
class RunningServer {
 public:
  RunningServer() : service_(Options()) {
    HttpOptions http;
    http.port = 0;
    auto listening = HttpServer::Listen(http, service_);
    EXPECT_TRUE(listening) << listening.error().message;
    http_ = *std::move(listening);
    port_ = http_->port();
    service_.Attach(*http_);
    io_ = std::thread([this] { http_->Run(); });
    EngineOptions options;
    options.threads = 2;
    options.kv_memory = 4 << 20;
    options.max_running = 4;
    options.steps = &steps_;
    auto engine = Engine::Create(testing::SourcePath("models/shakespeare"), options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    service_.SetEngine(*engine_, nullptr);
  }
  ~RunningServer() {
    http_->Stop();
    io_.join();
    service_.StopWorkers();
    engine_.reset();
    service_.DropJobs();
  }

  std::string Ask(const std::string& method, const std::string& path, const std::string& body,
                  size_t most = std::string::npos) const {
    return AskAt(port_, method, path, body, most);
  }
  int port() const { return port_; }
  void Post(std::function<void()> call) const { http_->Post(std::move(call)); }
  void WaitUntilReady() const {
    while (Ask("GET", "/health", "").find("200 OK") == std::string::npos) std::this_thread::yield();
  }
  int64_t steps() const { return engine_->Stats().steps; }
  const StepMeter& meter() const { return steps_; }

 private:
  ServiceOptions Options() {
    ServiceOptions options;
    options.names = {"shakespeare"};
    options.steps = &steps_;
    options.log = EventLog::Form::kNone;
    return options;
  }

  int port_ = 0;
  StepMeter steps_;
  Service service_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Engine> engine_;
  std::thread io_;
};

TEST(Service, ManyThreadsOfClientsGetTheirOwnAnswers) {
  const RunningServer server;
  server.WaitUntilReady();
  const auto body = [](int i, bool stream) {
    return R"({"prompt":"ROMEO:","max_tokens":12,"ignore_eos":true,"seed":)" + std::to_string(i) +
           (stream ? R"(,"stream":true})" : "}");
  };
  const auto text = [](const std::string& answer) {
    const size_t begin = answer.find("\"text\":");
    return begin == answer.npos ? answer
                                : answer.substr(begin, answer.find("\"logprobs\"") - begin);
  };
  std::vector<std::string> alone;
  for (int i = 0; i < 4; ++i) {
    alone.push_back(text(server.Ask("POST", "/v1/completions", body(i, false))));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(text(server.Ask("POST", "/v1/completions", body(i, false))), alone[i]);
        EXPECT_NE(server.Ask("POST", "/v1/completions", body(i, true)).find("[DONE]"),
                  std::string::npos);
        server.Ask("POST", "/v1/completions", body(i, true), 300);  // and goes
        for (const char* path : {"/health", "/status", "/metrics"}) {
          EXPECT_NE(server.Ask("GET", path, "").find("200 OK"), std::string::npos);
        }
        EXPECT_NE(server.Ask("POST", "/tokenize", R"({"content":"abc"})").find("\"count\":3"),
                  std::string::npos);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(server.steps(), 12);
  EXPECT_GT(server.meter().histograms().seconds.count(), 12);
  EXPECT_LE(server.meter().Last(8).size(), 8U);
}

TEST(Service, ItsThreadOfSocketsGoesBeforeThoseThatCompute) {
  std::promise<uint64_t> slice;  // outlives the thread that keeps it
  const RunningServer server;
  server.Post([&] { slice.set_value(TimeSliceOfThisThread()); });
  const uint64_t found = slice.get_future().get();
  if (found == 0) GTEST_SKIP() << "this kernel tells no slices";
  EXPECT_LT(found, kComputeSliceNs);
}

TEST(Service, StopsWithRequestsUnderWay) {
  auto server = std::make_unique<RunningServer>();
  server->WaitUntilReady();
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([port = server->port()] {
      AskAt(port, "POST", "/v1/completions",
            R"({"prompt":"ROMEO:","max_tokens":200,"ignore_eos":true,"stream":true})", 1 << 20);
    });
  }
  while (server->steps() < 5) std::this_thread::yield();
  server.reset();  // its clients see their connections close
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nibble::server
