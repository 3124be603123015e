#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "container/safetensors.h"
#include "format/format.h"
#include "model/config.h"

namespace nibble::testing {

// Chooses the format of a matrix by its GGUF name; vectors stay F32.
using FormatOf = std::function<Format(std::string_view)>;

// Writes a Hugging Face model as the GGUF file that llama.cpp's converter would make of it: its
// names and keys, Q and K of llama and smollm3 permuted for pairs (2i, 2i + 1), 1 added to Gemma's
// norms, gpt2's weights transposed. Covers what ../shared/data/models/hf-320 holds.
void WriteGguf(const SafetensorsModel& model, const ModelConfig& config,
               const std::filesystem::path& path, const FormatOf& format_of);

}  // namespace nibble::testing
