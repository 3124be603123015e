#pragma once

#include "base/result.h"
#include "server/json_text.h"

namespace nibble {
class ModelFile;
class Tokenizer;
}  // namespace nibble

namespace nibble::server {

// Real numbers of the model that is served, for the page's animations.

// {tensor, type, layer, row, rows, cols, first, values[], ratio}: part of the row of the middle
// layer's down projection that has, of the first 512, the largest weight against its own median.
Result<Json> WeightRowJson(const ModelFile& file);

// {layer, head, tile, text, tokens[], scores[], channel, values[], output}:
// engine/attention_probe.h on a fixed text.
Result<Json> AttentionJson(const ModelFile& file, const Tokenizer& tokenizer);

}  // namespace nibble::server
