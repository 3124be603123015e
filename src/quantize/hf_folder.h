#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "container/hf_folder_writer.h"
#include "format/format.h"

namespace nibble {

class ModelFile;
class ThreadPool;
class Tokenizer;

// Of a folder's files, those beside the weights and config.json that a copy needs as well.
std::span<const std::string_view> HfFilesBeside();

struct HfFloatFolder {
  // Of matrices; nothing: what they are stored in, if that is f32, f16 or bf16, else f16.
  std::optional<Format> matrices = {};
  bool replace = false;
  std::string_view sample = {};  // a text that the tokenizer must cut as the source's does
  std::function<void(double done, std::string_view name)> progress = {};
};

// Writes a model as a Hugging Face folder of floats, under a temporary name: what remains is
// Commit(). From a GGUF file: the weights under transformers' names (HfTensors), a config.json
// that was read back and describes the same model, and a tokenizer.json that cuts the same; from a
// Hugging Face folder, whose linears may be quantised, its own files without
// quantization_config. Norms and biases stay f32. Piece by piece, read back and compared. Errors: a
// model or a tokenizer that has no such form, a weight that is NaN, infinite or beyond the type,
// the file system.
Result<HfFolderWriter> WriteHfFloatFolder(const ModelFile& model, const Tokenizer& tokenizer,
                                          const std::filesystem::path& folder,
                                          const HfFloatFolder& options, ThreadPool& pool);

}  // namespace nibble
