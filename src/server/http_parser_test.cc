#include "server/http_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nibble::server {
namespace {

using Event = HttpParser::Event;

struct Seen {
  std::vector<HttpRequest> requests;
  int error = 0;  // status
};

// The text in pieces of one size.
Seen Read(std::string_view text, size_t piece, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  Seen seen;
  std::string in;
  for (size_t at = 0; at < text.size(); at += piece) {
    in += text.substr(at, piece);
    while (!in.empty() || parser.has_head()) {
      const HttpParser::Fed fed = parser.Feed(in);
      in.erase(0, fed.consumed);
      if (fed.event == Event::kError) {
        seen.error = parser.error().status;
        return seen;
      }
      if (fed.event == Event::kDone) {
        seen.requests.push_back(parser.Take());
      } else if (fed.event == Event::kMore && (fed.consumed == 0 || in.empty())) {
        break;
      }
    }
  }
  return seen;
}

TEST(HttpParserTest, RequestsOfAnyPieces) {
  const std::string text =
      "POST /a%20b?c=d HTTP/1.1\r\nHost: x\r\nX-Key:  v \r\nContent-Length: 5\r\n\r\nhello"
      "GET /health HTTP/1.0\r\n\r\n"
      "PUT http://host/c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
      "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Seen seen = Read(text, piece);
    ASSERT_EQ(seen.requests.size(), 3) << piece;
    EXPECT_EQ(seen.requests[0].method, "POST");
    EXPECT_EQ(seen.requests[0].path, "/a b");
    EXPECT_EQ(seen.requests[0].Header("x-key"), "v");
    EXPECT_EQ(seen.requests[0].Header("absent"), "");
    EXPECT_EQ(seen.requests[0].body, "hello");
    EXPECT_TRUE(seen.requests[0].keep_alive);
    EXPECT_TRUE(seen.requests[1].version_1_0);
    EXPECT_FALSE(seen.requests[1].keep_alive);
    EXPECT_EQ(seen.requests[2].path, "/c");
    EXPECT_EQ(seen.requests[2].body, "abcde");
    EXPECT_FALSE(seen.requests[2].keep_alive);
  }
}

TEST(HttpParserTest, WhatIsNoRequestHasAStatus) {
  const HttpLimits limits{.max_header_bytes = 200, .max_body_bytes = 10};
  struct Case {
    std::string text;
    int status;
  };
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  for (const Case& one : std::vector<Case>{
           {"hello\r\n\r\n", 400},
           {"GET / HTTP/3.0\r\n\r\n", 505},
           {"GET / HTTP/1.1\r\n\r\n", 400},
           {"GET / HTTP/1.1\nHost: x\n\n", 400},
           {"GET / HTTP/1.1\r\nA: " + std::string(300, 'a') + "\r\n\r\n", 431},
           {post + "Content-Length: 11\r\n\r\n", 413},
           {post + "Transfer-Encoding: chunked\r\n\r\nb\r\n12345678901\r\n0\r\n\r\n", 413},
           {post + "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n", 400},
           {post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400},
           {post + "Transfer-Encoding: chunked\r\n\r\n0\r\nhello\r\n0\rT\r\n\r\n", 400},
           {post + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(300, 'a'), 431},
           {post + "Transfer-Encoding: chunked\r\n\r\n1;x=" + std::string(300, 'a'), 431},
           {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
           {post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\na", 400},
           {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
           {post + "Expect: other\r\n\r\n", 417}}) {
    for (const size_t piece : {size_t{1}, size_t{7}, one.text.size()}) {
      const Seen seen = Read(one.text, piece, limits);
      EXPECT_EQ(seen.error, one.status) << one.text;
      EXPECT_TRUE(seen.requests.empty());
    }
  }
}

TEST(HttpParserTest, EmptyLinesBeforeARequestAreNothing) {
  const std::string get = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t piece = 1; piece <= get.size(); ++piece) {
    const Seen seen = Read("\r\n" + get + "\r\n\r\n" + get + "\r\n", piece);
    EXPECT_EQ(seen.error, 0) << piece;
    EXPECT_EQ(seen.requests.size(), 2) << piece;
  }
  EXPECT_EQ(Read("\n" + get, 1000).error, 400);
  EXPECT_EQ(Read("\r" + get, 1000).error, 400);
}

TEST(HttpParserTest, TellsOfTheHeadBeforeTheBody) {
  HttpParser parser({});
  const std::string head =
      "POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
  const HttpParser::Fed fed = parser.Feed(head + "ab");
  EXPECT_EQ(fed.event, Event::kHead);
  EXPECT_EQ(fed.consumed, head.size());
  EXPECT_TRUE(parser.has_body());
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(parser.Feed("ab").event, Event::kMore);
  EXPECT_EQ(parser.body_bytes(), 2);
  EXPECT_EQ(parser.Feed("c").event, Event::kDone);
  EXPECT_EQ(parser.Take().body, "abc");
  EXPECT_FALSE(parser.has_head());
}

TEST(HttpTest, NoValueBreaksALine) {
  HttpResponse response{.body = "abc"};
  response.headers.emplace_back("X-Name", "a\r\nInjected: b");
  const std::string head = SerializeHead(response, {});
  EXPECT_EQ(head.find("\r\nInjected"), head.npos);
  EXPECT_NE(head.find("Content-Length: 3\r\n"), head.npos);
}

}  // namespace
}  // namespace nibble::server
