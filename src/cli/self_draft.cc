#include "cli/self_draft.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "cli/output.h"
#include "engine/model_tokenizer.h"
#include "eval/builtin_text.h"
#include "model/config/model_file.h"
#include "platform/cpu.h"
#include "platform/thread_pool.h"
#include "quantize/gguf_output.h"
#include "quantize/gguf_tokenizer.h"

namespace nibble::cli {
namespace {

Result<std::shared_ptr<const std::filesystem::path>> TemporaryFolder() {
  std::error_code error;
  std::string name = (std::filesystem::temp_directory_path(error) / "nibble-draft-XXXXXX").string();
  if (error || mkdtemp(name.data()) == nullptr) {
    return Fail(ErrorKind::kIo, "{}: no folder can be made there: {}", name,
                error ? error.message() : std::strerror(errno));
  }
  return std::shared_ptr<const std::filesystem::path>(new std::filesystem::path(name),
                                                      [](const std::filesystem::path* path) {
                                                        std::error_code ignored;
                                                        std::filesystem::remove_all(*path, ignored);
                                                        delete path;
                                                      });
}

}  // namespace

Result<SelfDraft> MakeSelfDraft(const GlobalFlags& flags, const ModelFile& model,
                                std::string_view format) {
  NIBBLE_TRY(const FormatMix mix, FormatMix::FromName(format));
  NIBBLE_TRY(const auto choices, ChooseFormats(model, {.mix = mix, .requantize = true}));
  NIBBLE_TRY(const Tokenizer tokenizer, LoadModelTokenizer(model));
  NIBBLE_TRY(const auto folder, TemporaryFolder());
  SelfDraft draft{.path = *folder / "draft.gguf", .folder = folder};
  ThreadPool pool(flags.threads > 0 ? flags.threads : ReadTopology().threads);
  NIBBLE_TRY(TensorStore store, TensorStore::Open(draft.path, "draft"));
  Progress progress("draft", !flags.quiet);
  NIBBLE_RETURN_IF_ERROR(EncodeTensors(
      model, choices,
      {.progress = [&](double done, std::string_view name) { progress.Update(done, name); }}, pool,
      store));
  const auto tokens = [&](GgufWriter& writer) {
    return WriteGgufTokenizer(model.path(), tokenizer, model.config().vocabulary, kBuiltinText,
                              draft.path, writer);
  };
  NIBBLE_TRY(QuantizedGguf file,
             AssembleGguf(model, choices, draft.path, mix.name(), tokens, store));
  NIBBLE_RETURN_IF_ERROR(file.Commit("{}"));
  return draft;
}

}  // namespace nibble::cli
