// deps: server tokenizer
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/openai_request.h"
#include "server/text_routes.h"
#include "tokenizer/load.h"

namespace {

nibble::Tokenizer MakeTokenizer() {
  auto tokenizer = nibble::ParseTokenizerJson(
      R"({"model":{"type":"BPE","unk_token":"?","vocab":{"?":0,"a":1,"b":2,"ab":3},)"
      R"("merges":["a b"]}})");
  if (!tokenizer) std::abort();
  return *std::move(tokenizer);
}

}  // namespace

// The first byte chooses the path, the rest is the body of a request: an answer that names a status
// from 400 on, or a request within the limits. No engine.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nibble;
  using namespace nibble::server;
  if (size == 0) return 0;
  static const Tokenizer tokenizer = MakeTokenizer();
  static const auto chat = ChatTemplate::Create(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}", SpecialTokens());
  OpenAiContext context{.tokenizer = &tokenizer, .chat = &*chat, .live = (data[0] & 1) != 0};
  context.limits = {
      .max_context = 64, .max_choices = 4, .max_logprobs = 5, .max_stops = 3, .max_logit_bias = 3};
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 2) != 0) {
    constexpr std::string_view kPaths[] = {"/tokenize", "/detokenize", "/apply-template"};
    const auto json = AnswerText(kPaths[data[0] / 4 % 3], body, context);
    if (!json && json.error().status < 400) std::abort();
    return 0;
  }
  const auto document = ParseBody(body);
  if (!document) return 0;
  const auto endpoint = (data[0] & 4) != 0 ? Endpoint::kChatCompletions : Endpoint::kCompletions;
  const auto read = ReadOpenAiRequest(endpoint, document->root(), context);
  if (!read) {
    if (read.error().status < 400 || read.error().message.empty()) std::abort();
    return 0;
  }
  const bool within = read->request.n <= 4 && read->request.stop.size() <= 3 &&
                      read->request.logprobs <= 5 && read->more_prompts.size() < 4 &&
                      read->request.sampling.logit_bias.size() <= 3;
  if (!within) std::abort();
  return 0;
}
