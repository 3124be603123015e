// The engine as a library: ask MODEL TEXT prints the model's continuation of TEXT.
#include <fmt/core.h>

#include <cstdio>
#include <memory>

#include "engine/engine.h"
#include "engine/event_stream.h"
#include "tokenizer/tokenizer.h"

namespace {

nibble::Status Ask(const char* model, const char* text) {
  NIBBLE_TRY(auto engine, nibble::Engine::Create(model, {}));
  NIBBLE_TRY(auto prompt, engine->tokenizer().Encode(text));
  nibble::Request request{.prompt = std::move(prompt), .max_tokens = 64};
  request.sampling = {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F, .seed = 1};

  auto stream = std::make_shared<nibble::EventStream>();
  NIBBLE_RETURN_IF_ERROR(engine->Submit(std::move(request), stream));
  while (auto event = stream->Next()) {
    if (const auto* token = std::get_if<nibble::TokenEvent>(&*event)) {
      fmt::print("{}", token->text);
      std::fflush(stdout);
      continue;
    }
    const auto& finish = std::get<nibble::FinishEvent>(*event);
    if (finish.error) return std::unexpected(*finish.error);
    fmt::print("{}\n[{}, {} tokens]\n", finish.text, nibble::FinishReasonName(finish.reason),
               finish.usage.generated_tokens);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fmt::print(stderr, "use: ask MODEL TEXT\n"), 2;
  const nibble::Status status = Ask(argv[1], argv[2]);
  if (!status) fmt::print(stderr, "{}\n", status.error().message);
  return status ? 0 : 2;
}
