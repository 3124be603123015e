#include "advise/advise_journal.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "container/json.h"
#include "container/output_file.h"

namespace nibble {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr size_t kMostLines = 1 << 16;
constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMostLineBytes = size_t{64} << 10;

Json PlaceJson(const JournalPlace& place) {
  Json out = {{"weights", place.weights}, {"kv", place.kv}};
  if (!place.skip_layers.empty()) out["kv_skip_layers"] = place.skip_layers;
  return out;
}

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string HeadLine(std::string_view key) {
  return LineOf({{"nibble_advise", kVersion}, {"key", std::string(key)}});
}

Result<int> CountAt(const JsonValue& object, std::string_view key, int64_t least, int64_t most) {
  NIBBLE_TRY(const int64_t value, object.GetInt(key));
  if (value >= least && value <= most) return static_cast<int>(value);
  return BadInput("'{}': expected a whole number from {} to {}, found {}", key, least, most, value);
}

Result<double> NumberAt(const JsonValue& object, std::string_view key, double least) {
  NIBBLE_TRY(const double value, object.GetDouble(key));
  if (value >= least && value < 1e300) return value;
  return BadInput("'{}': expected a number of at least {}, found {}", key, least, value);
}

Result<JournalPlace> ReadPlace(const JsonValue& line) {
  JournalPlace place;
  NIBBLE_TRY(const std::string_view weights, line.GetString("weights"));
  NIBBLE_TRY(const std::string_view kv, line.GetString("kv"));
  place.weights = weights;
  place.kv = kv;
  if (!line.Find("kv_skip_layers")) return place;
  NIBBLE_TRY(const JsonValue list, line.Get("kv_skip_layers"));
  const auto array = list.AsArray();
  if (!array) return Within("'kv_skip_layers'", array.error());
  for (const JsonValue one : *array) {
    NIBBLE_TRY(const int64_t layer, one.AsInt());
    if (layer < 0 || layer > 4096) return BadInput("'kv_skip_layers': found layer {}", layer);
    place.skip_layers.push_back(static_cast<int>(layer));
  }
  return place;
}

Result<QualitySums> ReadSums(const JsonValue& line) {
  QualitySums sums;
  sums.windows = 1;
  NIBBLE_TRY(sums.tokens, CountAt(line, "tokens", 1, 1 << 24));
  NIBBLE_TRY(sums.divergence, NumberAt(line, "divergence", -1));
  NIBBLE_TRY(sums.divergence_squared, NumberAt(line, "divergence_squared", 0));
  NIBBLE_TRY(sums.loss, NumberAt(line, "loss", 0));
  NIBBLE_TRY(sums.loss_squared, NumberAt(line, "loss_squared", 0));
  NIBBLE_TRY(sums.base_loss, NumberAt(line, "base_loss", 0));
  NIBBLE_TRY(sums.same_top, CountAt(line, "same_top", 0, sums.tokens));
  NIBBLE_TRY(const JsonValue list, line.Get("depths"));
  const auto array = list.AsArray();
  if (!array) return Within("'depths'", array.error());
  if (array->size() != QualitySums::kDepths) {
    return BadInput("'depths': expected {}, found {}", int{QualitySums::kDepths}, array->size());
  }
  size_t part = 0;
  for (const JsonValue one : *array) {
    QualitySums::Depth& depth = sums.depths[part++];
    NIBBLE_TRY(depth.tokens, CountAt(one, "tokens", 0, sums.tokens));
    NIBBLE_TRY(depth.divergence, NumberAt(one, "divergence", -1));
    NIBBLE_TRY(depth.divergence_squared, NumberAt(one, "divergence_squared", 0));
  }
  return sums;
}

Status ReadLine(const JsonValue& line, AdviseJournal::Lines& lines) {
  NIBBLE_TRY(JournalPlace place, ReadPlace(line));
  NIBBLE_TRY(const std::string_view kind, line.GetString("measured"));
  NIBBLE_TRY(const int context, CountAt(line, "context", 1, 1 << 28));
  if (kind == "quality") {
    JournalQuality quality{.place = std::move(place), .context = context, .sums = {}};
    NIBBLE_TRY(quality.window, CountAt(line, "window", 0, 1 << 24));
    NIBBLE_TRY(quality.sums, ReadSums(line));
    lines.qualities.push_back(std::move(quality));
    return {};
  }
  if (kind != "speed") {
    return BadInput("'measured': expected quality or speed, found '{}'", kind.substr(0, 64));
  }
  JournalSpeed speed{.place = std::move(place), .context = context, .speed = {}};
  NIBBLE_TRY(speed.batch, CountAt(line, "batch", 1, 1 << 20));
  NIBBLE_TRY(speed.speed.tpot_s, NumberAt(line, "tpot_s", 1e-12));
  NIBBLE_TRY(speed.speed.tpot_error, NumberAt(line, "tpot_error", 0));
  NIBBLE_TRY(speed.speed.ttft_s, NumberAt(line, "ttft_s", 1e-12));
  NIBBLE_TRY(speed.speed.ttft_error, NumberAt(line, "ttft_error", 0));
  lines.speeds.push_back(std::move(speed));
  return {};
}

Status ReadHead(const JsonValue& line, std::string_view key) {
  NIBBLE_TRY(const int64_t version, line.GetInt("nibble_advise"));
  if (version != kVersion) {
    return BadInput("'nibble_advise': expected version {}, found {}", kVersion, version);
  }
  NIBBLE_TRY(const std::string_view found, line.GetString("key"));
  if (found == key) return {};
  return BadInput("'key': measurements of another model, text or machine");
}

}  // namespace

Result<AdviseJournal::Lines> AdviseJournal::Parse(std::string_view text, std::string_view key) {
  Lines lines;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    if (end == text.npos) break;  // cut off
    ++number;
    const std::string place = fmt::format("line {}", number);
    if (number > kMostLines || end - at > kMostLineBytes) {
      return BadInput("{}: expected at most {} lines of {} bytes", place, kMostLines,
                      kMostLineBytes);
    }
    const auto document = JsonDocument::Parse(std::string(text.substr(at, end - at)));
    if (!document) return Within(place, document.error());
    const Status read =
        number == 1 ? ReadHead(document->root(), key) : ReadLine(document->root(), lines);
    if (!read) return Within(place, read.error());
    at = end + 1;
    lines.complete = at;
  }
  if (number == 0) return BadInput("line 1: expected what the measurements are about");
  return lines;
}

Result<AdviseJournal> AdviseJournal::Open(const std::filesystem::path& path, std::string_view key) {
  AdviseJournal journal;
  journal.path_ = path;
  std::string text;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error) &&
      std::filesystem::file_size(path, error) <= kMostBytes) {
    std::ifstream file(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::string keep = HeadLine(key);
  if (!text.empty()) {
    auto lines = Parse(text, key);
    if (lines) {
      keep = text.substr(0, lines->complete);
      journal.qualities_ = std::move(lines->qualities);
      journal.speeds_ = std::move(lines->speeds);
      if (keep.size() == text.size()) return journal;
    } else {
      journal.complaint_ = path.string() + ": " + lines.error().message;
    }
  }
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  NIBBLE_RETURN_IF_ERROR(file.Write(keep));
  NIBBLE_RETURN_IF_ERROR(file.Commit());
  return journal;
}

Status AdviseJournal::Append(const std::string& line) const {
  // One write at the file's end: a killed run leaves whole lines and at most one cut off.
  FILE* file = std::fopen(path_.c_str(), "ab");
  if (file == nullptr) return IoError("{}: cannot be written", path_.string());
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  const bool closed = std::fclose(file) == 0;
  if (written && closed) return {};
  return IoError("{}: cannot be written", path_.string());
}

Status AdviseJournal::Add(const JournalQuality& quality) {
  const QualitySums& sums = quality.sums;
  Json line = PlaceJson(quality.place);
  line["measured"] = "quality";
  line["context"] = quality.context;
  line["window"] = quality.window;
  line["tokens"] = sums.tokens;
  line["divergence"] = sums.divergence;
  line["divergence_squared"] = sums.divergence_squared;
  line["loss"] = sums.loss;
  line["loss_squared"] = sums.loss_squared;
  line["base_loss"] = sums.base_loss;
  line["same_top"] = sums.same_top;
  line["depths"] = Json::array();
  for (const QualitySums::Depth& depth : sums.depths) {
    line["depths"].push_back({{"tokens", depth.tokens},
                              {"divergence", depth.divergence},
                              {"divergence_squared", depth.divergence_squared}});
  }
  qualities_.push_back(quality);
  return Append(LineOf(line));
}

Status AdviseJournal::Add(const JournalSpeed& speed) {
  Json line = PlaceJson(speed.place);
  line["measured"] = "speed";
  line["context"] = speed.context;
  line["batch"] = speed.batch;
  line["tpot_s"] = speed.speed.tpot_s;
  line["tpot_error"] = speed.speed.tpot_error;
  line["ttft_s"] = speed.speed.ttft_s;
  line["ttft_error"] = speed.speed.ttft_error;
  speeds_.push_back(speed);
  return Append(LineOf(line));
}

}  // namespace nibble
