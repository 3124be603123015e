#include "quantize/card.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "container/gguf.h"
#include "model/config/model_file.h"
#include "quantize/gguf_output.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

Json QualityJson(const CardQuality& quality) {
  Json out;
  out["text"] = quality.text;
  out["text_sha256"] = quality.text_sha256;
  out["ctx"] = quality.context;
  out["tokens"] = quality.tokens;
  out["act"] = quality.act;
  out["ppl"] = quality.ppl;
  out["ppl_se"] = quality.ppl_se;
  out["ppl_source"] = quality.ppl_source;
  out["kld"] = quality.kld;
  out["kld_se"] = quality.kld_se;
  out["top1"] = quality.top1;
  out["top1_se"] = quality.top1_se;
  out["verdict"] = quality.verdict;
  return out;
}

Json RecipeJson(const Card& card) {
  Json out = {{"to", card.to},
              {"method", card.method},
              {"parameters", card.parameters},
              {"tensor_types", card.rules}};
  if (!card.budget.empty()) out["budget"] = card.budget;
  if (card.importance) {
    out["importance"] = {{"from", card.importance->kind},
                         {"name", card.importance->name},
                         {"sha256", card.importance->sha256},
                         {"tokens", card.importance->tokens}};
  }
  if (card.calibration) {
    const CardCalibration& calibration = *card.calibration;
    out["calibration"] = {{"name", calibration.name},
                          {"sha256", calibration.sha256},
                          {"sequences", calibration.sequences},
                          {"length", calibration.length}};
    if (calibration.seed) out["calibration"]["seed"] = *calibration.seed;
  }
  if (!card.notes.empty()) out["notes"] = card.notes;
  return out;
}

}  // namespace

std::string CardJson(const Card& card) {
  Json out;
  out["version"] = 1;
  out["tool"] = card.tool;
  out["source"] = {
      {"name", card.source_name}, {"bytes", card.source_bytes}, {"sha256", card.source_sha256}};
  out["recipe"] = RecipeJson(card);
  out["bytes"] = card.bytes;
  out["bits_per_weight"] = card.bits_per_weight;
  out["quality"] = card.quality ? QualityJson(*card.quality) : Json("not measured");
  if (card.speed) {
    out["speed"] = {{"prefill_tok_s", card.speed->prefill}, {"decode_tok_s", card.speed->decode}};
  }
  out["machine"] = card.machine;
  out["peak_resident_bytes"] = card.peak_resident_bytes;
  out["seconds"] = card.seconds;
  out["cpu_seconds"] = card.cpu_seconds;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> StoredCard(const ModelFile& file) {
  if (file.gguf() != nullptr) {
    const auto text = file.gguf()->GetString(kCardKey);
    return text ? std::optional<std::string>(*text) : std::nullopt;
  }
  std::error_code ignored;
  const auto folder =
      std::filesystem::is_directory(file.path(), ignored) ? file.path() : file.path().parent_path();
  constexpr size_t kMostBytes = size_t{1} << 20;
  const auto path = folder / kFolderCard;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::string text(kMostBytes + 1, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty() || text.size() > kMostBytes) return std::nullopt;
  return text;
}

}  // namespace nibble
