#include "fetch/download.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/sha256.h"
#include "fetch/part_file.h"
#include "fetch/test_server.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using testing::TestRequest;
using testing::TestServer;

std::string Body(size_t size = 100'000) {
  std::string out(size, 0);
  for (size_t i = 0; i < size; ++i) out[i] = char(i * 7919 >> 5);
  return out;
}

// Serves the body, with ranges.
void Honest(const std::string& body, const TestRequest& request, const TestServer::Send& send,
            const std::string& headers = "ETag: \"v1\"\r\n") {
  if (request.Header("range").empty()) {
    send(TestServer::Response("200 OK", headers, body));
    return;
  }
  const size_t begin = request.RangeBegin();
  const std::string total = std::to_string(body.size());
  if (begin >= body.size()) {
    send(TestServer::Response("416 Range Not Satisfiable",
                              "Content-Range: bytes */" + total + "\r\n", ""));
    return;
  }
  const std::string range = "Content-Range: bytes " + std::to_string(begin) + "-" +
                            std::to_string(body.size() - 1) + "/" + total + "\r\n";
  send(TestServer::Response("206 Partial Content", range + headers, body.substr(begin)));
}

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() {
    options_.backoff = std::chrono::milliseconds(1);
    options_.attempts = 3;
  }

  Result<DownloadResult> Get(const TestServer& server, const std::string& path = "/model.gguf") {
    return Download(server.url() + path, target_, options_);
  }

  // A failed download must leave nothing under the final name.
  std::string Failure(const TestServer& server) {
    const auto result = Get(server);
    EXPECT_FALSE(result);
    EXPECT_FALSE(fs::exists(target_));
    return result ? "" : result.error().message;
  }

  void ExpectWhole(const Result<DownloadResult>& result, const std::string& body) {
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->bytes, body.size());
    EXPECT_EQ(result->sha256, Sha256Hex(body));
    EXPECT_EQ(testing::ReadFile(target_), body);
    EXPECT_FALSE(fs::exists(part_));
    EXPECT_FALSE(fs::exists(part_.string() + ".from"));
  }

  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  testing::TempDir folder_;
  const fs::path target_ = folder_.path() / "sub" / "model.gguf";
  const fs::path part_ = folder_.path() / "sub" / "model.gguf.part";
  DownloadOptions options_;
};

TEST_F(DownloadTest, FetchesAFile) {
  const std::string body = Body();
  const TestServer server(
      [&](const auto& request, const auto& send) { Honest(body, request, send); });
  uint64_t last = 0;
  options_.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_TRUE(total == 0 || total == body.size());
    last = done;
    return true;
  };
  ExpectWhole(Get(server), body);
}

TEST_F(DownloadTest, ResumesAfterBrokenTransfers) {
  const std::string body = Body();
  const TestServer server([&](const auto& request, const auto& send) {
    // Promises the rest and breaks off after 30,000 bytes.
    const size_t begin = request.RangeBegin();
    const std::string total = std::to_string(body.size());
    const std::string range = begin == 0
                                  ? ""
                                  : "Content-Range: bytes " + std::to_string(begin) + "-" +
                                        std::to_string(body.size() - 1) + "/" + total + "\r\n";
    send("HTTP/1.1 " + std::string(begin ? "206 Partial Content" : "200 OK") +
         "\r\nETag: \"v1\"\r\n" + range + "Content-Length: " + std::to_string(body.size() - begin) +
         "\r\n\r\n" + body.substr(begin, 30'000));
  });
  ExpectWhole(Get(server), body);
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[3].Header("range"), "bytes=90000-");
  EXPECT_EQ(requests[3].Header("if-range"), "\"v1\"");
}

TEST_F(DownloadTest, ALaterCallResumesAnEarlierOne) {
  const std::string body = Body();
  const TestServer server(
      [&](const auto& request, const auto& send) { Honest(body, request, send); });
  // Says stop once, as an interrupted program does.
  options_.progress = [said = false](uint64_t done, uint64_t) mutable {
    const bool stop = done > 0 && !said;
    said = said || stop;
    return !stop;
  };
  const auto stopped = Get(server);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
  EXPECT_FALSE(fs::exists(target_));
  ASSERT_TRUE(fs::exists(part_));
  const uint64_t kept = fs::file_size(part_);
  ASSERT_GT(kept, 0u);
  options_.progress = nullptr;
  ExpectWhole(Get(server), body);
  if (kept < body.size()) {
    EXPECT_EQ(server.requests().back().RangeBegin(), kept);
  }
}

TEST_F(DownloadTest, ACompletePartNeedsNoRequest) {
  const std::string body = Body();
  const TestServer server(
      [&](const auto& request, const auto& send) { Honest(body, request, send); });
  fs::create_directories(part_.parent_path());
  std::ofstream(part_) << body;
  std::ofstream(part_.string() + ".from") << server.url() << "/model.gguf\n\"v1\"\n\n"
                                          << body.size() << "\n";
  ExpectWhole(Get(server), body);
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(DownloadTest, AChangedFileStartsAnew) {
  const std::string old_body = Body(), body(120'000, 'n');
  const TestServer server([&](const auto& request, const auto& send) {
    // The tag no longer matches, so the answer is the whole new file.
    TestRequest whole = request;
    if (request.Header("if-range") != "\"v2\"") whole.headers = "\n";
    Honest(body, whole, send, "ETag: \"v2\"\r\n");
  });
  fs::create_directories(part_.parent_path());
  std::ofstream(part_) << old_body.substr(0, 5000);
  std::ofstream(part_.string() + ".from") << server.url() << "/model.gguf\n\"v1\"\n\n"
                                          << old_body.size() << "\n";
  ExpectWhole(Get(server), body);
}

// Two versions of the same length, and no checksum to tell a mixture of them.
TEST_F(DownloadTest, VersionsOfOneLengthAreNotMixed) {
  const std::string old_body = Body(), body(old_body.size(), 'n');
  std::string headers;
  const TestServer server(
      [&](const auto& request, const auto& send) { Honest(body, request, send, headers); });
  const auto leave_part = [&](const std::string& etag, const std::string& sha256) {
    fs::create_directories(part_.parent_path());
    std::ofstream(part_) << old_body.substr(0, 5000);
    std::ofstream(part_.string() + ".from") << server.url() << "/model.gguf\n"
                                            << etag << "\n"
                                            << sha256 << "\n"
                                            << old_body.size() << "\n";
  };
  for (const char* etag : {"", "W/\"v1\"", "v1"}) {
    leave_part(etag, "");
    headers = *etag ? "ETag: " + std::string(etag) + "\r\n" : "";
    ExpectWhole(Get(server), body);
    EXPECT_EQ(server.requests().back().Header("range"), "");
    fs::remove(target_);
  }
  // A server that knows tags and does not heed If-Range.
  leave_part("\"v1\"", "");
  headers = "ETag: \"v2\"\r\n";
  EXPECT_TRUE(Has(Failure(server), "has changed"));
  ExpectWhole(Get(server), body);
  fs::remove(target_);
  // A checksum tells a mixture, so the rest alone may be fetched.
  leave_part("", Sha256Hex(body));
  EXPECT_TRUE(Has(Failure(server), "wrong checksum"));
  EXPECT_EQ(server.requests().back().RangeBegin(), 5000u);
  EXPECT_FALSE(fs::exists(part_));
}

TEST_F(DownloadTest, WithoutATagABrokenTransferStartsOver) {
  const std::string body = Body();
  int calls = 0;
  const TestServer server([&](const auto& request, const auto& send) {
    EXPECT_EQ(request.Header("range"), "");
    ++calls;
    // Comes no further in every second answer: that is no progress, however often it happens.
    send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body.substr(0, calls % 2 ? 50'000 : 20'000));
  });
  EXPECT_TRUE(Has(Failure(server), "3 attempts"));
  EXPECT_EQ(calls, 4);
}

TEST_F(DownloadTest, AFileFinishedBetweenOpeningAndLockingIsLeftAlone) {
  fs::create_directories(part_.parent_path());
  std::ofstream(part_) << "finished by another";
  PartFile part;
  ASSERT_TRUE(part.OpenUnlocked(part_));
  fs::rename(part_, target_);
  ASSERT_TRUE(part.Lock());
  ASSERT_TRUE(part.Clear());
  ASSERT_TRUE(part.Append("new"));
  EXPECT_EQ(testing::ReadFile(target_), "finished by another");
  EXPECT_EQ(testing::ReadFile(part_), "new");
  // The same where a third one has begun anew at the path, and it has the lock.
  PartFile late;
  ASSERT_TRUE(late.OpenUnlocked(part_));
  fs::remove(part_);
  PartFile third;
  ASSERT_TRUE(third.Open(part_));
  EXPECT_FALSE(late.Lock());
}

TEST_F(DownloadTest, OneProcessAtATime) {
  fs::create_directories(part_.parent_path());
  PartFile other;
  ASSERT_TRUE(other.Open(part_));
  ASSERT_TRUE(other.Append("theirs"));
  const TestServer server([](const auto&, const auto&) {});
  EXPECT_TRUE(Has(Failure(server), "another process"));
  EXPECT_EQ(testing::ReadFile(part_), "theirs");
}

TEST_F(DownloadTest, APartOfAnotherUrlIsDropped) {
  const std::string body = Body();
  const TestServer server(
      [&](const auto& request, const auto& send) { Honest(body, request, send); });
  fs::create_directories(part_.parent_path());
  std::ofstream(part_) << "something else";
  std::ofstream(part_.string() + ".from") << "http://elsewhere/x\n\"v1\"\n\n99\n";
  ExpectWhole(Get(server), body);
  EXPECT_EQ(server.requests().front().Header("range"), "");
}

TEST_F(DownloadTest, FollowsRedirectsWithoutTheToken) {
  const std::string body = Body();
  const TestServer storage(
      [&](const auto& request, const auto& send) { Honest(body, request, send); });
  const TestServer hub([&](const auto&, const auto& send) {
    send(TestServer::Response("302 Found",
                              "Location: " + storage.url() + "/blob\r\nX-Linked-Etag: \"" +
                                  Sha256Hex(body) + "\"\r\nX-Linked-Size: 100000\r\n",
                              ""));
  });
  options_.bearer_token = "secret";
  ExpectWhole(Get(hub), body);
  EXPECT_EQ(hub.requests().front().Header("authorization"), "Bearer secret");
  EXPECT_EQ(storage.requests().front().Header("authorization"), "");
}

TEST_F(DownloadTest, ARedirectToTheSameHostKeepsTheToken) {
  const std::string body = Body();
  const TestServer server([&](const auto& request, const auto& send) {
    if (request.path != "/blob") {
      send(TestServer::Response("307 Temporary Redirect", "Location: /blob\r\n", ""));
    } else {
      Honest(body, request, send);
    }
  });
  options_.bearer_token = "secret";
  ExpectWhole(Get(server), body);
  EXPECT_EQ(server.requests().back().Header("authorization"), "Bearer secret");
}

TEST_F(DownloadTest, EndlessRedirectsAndOtherProtocolsAreErrors) {
  const TestServer server([&](const auto& request, const auto& send) {
    const bool file = request.path.starts_with("/file");
    send(TestServer::Response(
        "302 Found", file ? "Location: file:///etc/passwd\r\n" : "Location: /again\r\n", ""));
  });
  EXPECT_TRUE(Has(Failure(server), "redirects"));
  EXPECT_FALSE(Get(server, "/file"));
  EXPECT_FALSE(fs::exists(target_));
  EXPECT_FALSE(Download("file:///etc/passwd", target_, options_));
}

TEST_F(DownloadTest, WrongChecksums) {
  const std::string body = Body();
  const TestServer server([&](const auto& request, const auto& send) {
    Honest(body, request, send, "X-Linked-Etag: \"" + std::string(64, 'a') + "\"\r\n");
  });
  EXPECT_TRUE(Has(Failure(server), "wrong checksum"));
  EXPECT_FALSE(fs::exists(part_));
  options_.expected_sha256 = Sha256Hex("another");
  const std::string message = Failure(server);
  EXPECT_TRUE(Has(message, Sha256Hex("another")) && Has(message, Sha256Hex(body))) << message;
  options_.expected_sha256 = Sha256Hex(body);  // what the caller knows counts
  ExpectWhole(Get(server), body);
}

TEST_F(DownloadTest, LengthsThatLie) {
  const std::string body = Body();
  std::string announced;
  const TestServer server([&](const auto&, const auto& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: " + announced + "\r\n\r\n" + body);
  });
  announced = "200000";  // more than ever comes
  EXPECT_TRUE(Has(Failure(server), "of 200000 bytes")) << Failure(server);
  options_.expected_bytes = body.size();
  fs::remove(part_);
  EXPECT_TRUE(Has(Failure(server), "announces 200000 bytes, the file has 100000"));
  announced = "50000";  // less than the file has
  EXPECT_TRUE(Has(Failure(server), "announces 50000 bytes, the file has 100000"));
  options_.expected_bytes.reset();
  options_.expected_sha256 = Sha256Hex(body);
  EXPECT_TRUE(Has(Failure(server), "wrong checksum"));
}

TEST_F(DownloadTest, AnEndlessBodyEnds) {
  const TestServer server([&](const auto&, const auto& send) {
    if (!send("HTTP/1.1 200 OK\r\n\r\n")) return;
    const std::string block(1 << 16, 'x');
    while (send(block)) {
    }
  });
  options_.expected_bytes = 1'000'000;
  EXPECT_TRUE(Has(Failure(server), "more than the 1000000 bytes"));
  options_.expected_bytes.reset();
  options_.max_bytes = 2'000'000;
  EXPECT_TRUE(Has(Failure(server), "more than the 2000000 bytes"));
  EXPECT_FALSE(fs::exists(part_));
}

TEST_F(DownloadTest, StatusesThatAreNoSuccess) {
  std::string status = "404 Not Found";
  const TestServer server([&](const auto&, const auto& send) {
    send(TestServer::Response(status, "", "<html>a page</html>"));
  });
  EXPECT_TRUE(Has(Failure(server), "not found (status 404)"));
  EXPECT_EQ(server.requests().size(), 1u);
  status = "401 Unauthorized";
  EXPECT_TRUE(Has(Failure(server), "needs a token in HF_TOKEN"));
  status = "500 Internal Server Error";
  const std::string message = Failure(server);
  EXPECT_TRUE(Has(message, "status 500") && Has(message, "3 attempts")) << message;
  EXPECT_EQ(server.requests().size(), 5u);
  EXPECT_FALSE(fs::exists(part_));
}

TEST_F(DownloadTest, TriesAgainAfterServerErrors) {
  const std::string body = Body();
  int calls = 0;
  const TestServer server([&](const auto& request, const auto& send) {
    if (++calls < 3) {
      send(TestServer::Response("503 Service Unavailable", "", "busy"));
    } else {
      Honest(body, request, send);
    }
  });
  ExpectWhole(Get(server), body);
}

TEST_F(DownloadTest, ARangeThatWasNotAskedForIsRefused) {
  const std::string body = Body();
  const TestServer server([&](const auto&, const auto& send) {
    send(TestServer::Response("206 Partial Content", "Content-Range: bytes 5-99999/100000\r\n",
                              body.substr(5)));
  });
  EXPECT_TRUE(Has(Failure(server), "asked for bytes from 0 on"));
}

TEST_F(DownloadTest, MoreThanTheDiskHolds) {
  const TestServer server([&](const auto&, const auto& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 4000000000000\r\n\r\nabc");
  });
  const auto result = Get(server);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kNoRoom) << result.error().message;
  EXPECT_TRUE(Has(result.error().message, "4.00 TB")) << result.error().message;
}

TEST_F(DownloadTest, NobodyListens) {
  std::string url;
  {
    const TestServer server([](const auto&, const auto&) {});
    url = server.url();
  }
  const auto result = Download(url + "/x", target_, options_);
  ASSERT_FALSE(result);
  EXPECT_TRUE(Has(result.error().message, "3 attempts")) << result.error().message;
}

}  // namespace
}  // namespace nibble
