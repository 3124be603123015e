#include "cost/trace_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "container/json.h"

namespace nibble {

// Where a format has what.
struct TraceColumns {
  TraceFormat format;
  bool json;
  std::string_view arrival;
  double arrival_unit_s;  // 0: a date
  bool arrival_required;
  std::string_view input;
  std::string_view output;
};
namespace {

constexpr std::array kColumns = {
    TraceColumns{TraceFormat::kAzure, false, "TIMESTAMP", 0, true, "ContextTokens",
                 "GeneratedTokens"},
    TraceColumns{TraceFormat::kVidur, false, "arrived_at", 1, false, "num_prefill_tokens",
                 "num_decode_tokens"},
    TraceColumns{TraceFormat::kServingSim, false, "arrival_time_ns", 1e-9, true, "input_toks",
                 "output_toks"},
    TraceColumns{TraceFormat::kMooncake, true, "timestamp", 1e-3, true, "input_length",
                 "output_length"},
    TraceColumns{TraceFormat::kJsonl, true, "arrival_time_ns", 1e-9, false, "input_toks",
                 "output_toks"},
    TraceColumns{TraceFormat::kNibble, true, "arrival_time_ns", 1e-9, true, "input_toks",
                 "output_toks"},
};

const TraceColumns& ColumnsOf(TraceFormat format) { return kColumns[static_cast<size_t>(format)]; }

bool Blank(std::string_view line) { return line.find_first_not_of(" \t") == line.npos; }

// For messages: the beginning of what was found.
std::string Found(std::string_view text) {
  constexpr size_t kMost = 40;
  return text.size() <= kMost ? fmt::format("'{}'", text)
                              : fmt::format("'{}…'", text.substr(0, kMost));
}

std::vector<std::string_view> SplitCsv(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = std::min(line.find(','), line.size());
    fields.push_back(line.substr(0, comma));
    if (comma == line.size()) return fields;
    line.remove_prefix(comma + 1);
  }
}

template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || last != text.data() + text.size()) return std::nullopt;
  return value;
}

Result<int> CheckLength(std::string_view name, std::optional<int64_t> value,
                        const std::string& found) {
  if (value && *value >= 0 && *value <= kMostTraceTokens) return static_cast<int>(*value);
  return BadInput("'{}': expected a whole number from 0 to {}, found {}", name, kMostTraceTokens,
                  found);
}

// 2023-11-16 18:17:03.9799600 as seconds since 1970, without a time zone.
std::optional<double> ParseDate(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.size() < kShape.size()) return std::nullopt;
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    const bool separates = text[i] == kShape[i] || (kShape[i] == ' ' && text[i] == 'T');
    if (kShape[i] == 'd' ? !digit : !separates) return std::nullopt;
  }
  const auto number = [&](size_t at, size_t digits) {
    return *ParseNumber<int>(text.substr(at, digits));
  };
  const std::chrono::year_month_day day(std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2))));
  const int hour = number(11, 2), minute = number(14, 2);
  const auto second = ParseNumber<double>(text.substr(17));  // with its fraction
  if (!day.ok() || hour > 23 || minute > 59 || !second || !(*second < 61)) return std::nullopt;
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return 86400.0 * static_cast<double>(days) + 3600.0 * hour + 60.0 * minute + *second;
}

// Differences of times beyond this would be no exact seconds any more.
constexpr double kMostArrival = 1e12;

Result<double> CheckArrival(std::string_view name, std::optional<double> seconds,
                            const std::string& found) {
  if (seconds && std::abs(*seconds) <= kMostArrival) return *seconds;
  return BadInput("'{}': expected a time of at most {} seconds, found {}", name, kMostArrival,
                  found);
}

Result<double> ParseArrival(const TraceColumns& columns, std::string_view text) {
  if (columns.arrival_unit_s == 0) {
    if (const auto date = ParseDate(text)) return *date;
    return BadInput("'{}': expected a time like 2023-11-16 18:17:03.98, found {}", columns.arrival,
                    Found(text));
  }
  auto value = ParseNumber<double>(text);
  if (value) *value *= columns.arrival_unit_s;
  return CheckArrival(columns.arrival, value, Found(text));
}

TraceReader::CsvHeader FindColumns(const TraceColumns& columns, std::string_view line) {
  TraceReader::CsvHeader header;
  for (const std::string_view name : SplitCsv(line)) {
    const int at = static_cast<int>(header.fields++);
    if (name == columns.arrival) header.arrival = at;
    if (name == columns.input) header.input = at;
    if (name == columns.output) header.output = at;
  }
  return header;
}

bool Complete(const TraceColumns& columns, const TraceReader::CsvHeader& header) {
  return header.input >= 0 && header.output >= 0 &&
         (header.arrival >= 0 || !columns.arrival_required);
}

Result<TraceRequest> ParseCsvLine(const TraceColumns& columns, const TraceReader::CsvHeader& header,
                                  std::string_view line) {
  const std::vector<std::string_view> fields = SplitCsv(line);
  if (fields.size() != header.fields) {
    return BadInput("expected {} fields as in the first line, found {}", header.fields,
                    fields.size());
  }
  const auto length = [&](std::string_view name, int at) {
    const std::string_view field = fields[static_cast<size_t>(at)];
    return CheckLength(name, ParseNumber<int64_t>(field), Found(field));
  };
  TraceRequest request;
  NIBBLE_TRY(request.input_tokens, length(columns.input, header.input));
  NIBBLE_TRY(request.output_tokens, length(columns.output, header.output));
  if (header.arrival >= 0) {
    NIBBLE_TRY(request.arrival_s,
               ParseArrival(columns, fields[static_cast<size_t>(header.arrival)]));
  }
  return request;
}

Result<int> JsonLength(const JsonValue& object, std::string_view key) {
  NIBBLE_TRY(const JsonValue value, object.Get(key));
  const auto number = value.AsInt();
  return CheckLength(key, number ? std::optional(*number) : std::nullopt, value.ToString());
}

// A whole number from `least` on, or the fallback.
Result<int64_t> OptionalCount(const JsonValue& root, std::string_view key, int64_t least,
                              int64_t fallback) {
  constexpr int64_t kMost = int64_t{1} << 53;
  NIBBLE_TRY(const int64_t value, root.GetIntOr(key, fallback));
  if (value == fallback || (value >= least && value <= kMost)) return value;
  return BadInput("'{}': expected a whole number from {} to {}, found {}", key, least, kMost,
                  value);
}

Result<std::vector<int>> ReadChoices(const JsonValue& root, int longest) {
  constexpr size_t kMostChoices = 128;
  std::vector<int> lengths;
  const auto choices = root.Find("choices_toks");
  if (!choices || choices->is_null()) return lengths;
  const auto array = choices->AsArray();
  if (!array) return Within("'choices_toks'", array.error());
  for (const JsonValue choice : *array) {
    const auto number = choice.AsInt();
    NIBBLE_TRY(const int length,
               CheckLength("choices_toks", number ? std::optional(*number) : std::nullopt,
                           choice.ToString()));
    if (length > longest) {
      return BadInput("'choices_toks': expected at most the {} of 'output_toks', found {}", longest,
                      length);
    }
    lengths.push_back(length);
    if (lengths.size() > kMostChoices) {
      return BadInput("'choices_toks': expected at most {} answers", kMostChoices);
    }
  }
  return lengths;
}

// What only our own server knows of a request.
Status ReadServed(const JsonValue& root, TraceRequest& request) {
  ServedFacts served;
  NIBBLE_TRY(const int64_t priority, OptionalCount(root, "priority", 0, 0));
  served.priority = static_cast<int>(std::min<int64_t>(priority, kMostTraceTokens));
  NIBBLE_TRY(const int64_t most, OptionalCount(root, "max_tokens", 0, -1));
  served.max_tokens = static_cast<int>(std::min<int64_t>(most, kMostTraceTokens));
  NIBBLE_TRY(served.order, OptionalCount(root, "queued_order", 0, -1));
  NIBBLE_TRY(served.queued_step, OptionalCount(root, "queued_step", 0, -1));
  NIBBLE_TRY(served.ended_step, OptionalCount(root, "ended_step", 0, -1));
  NIBBLE_TRY(served.cancelled, root.GetBoolOr("cancelled", false));
  NIBBLE_TRY(served.choices, ReadChoices(root, request.output_tokens));
  request.served = std::move(served);
  return {};
}

// has_arrival: whether this line has a time.
Result<TraceRequest> ParseJsonLine(const TraceColumns& columns, std::string_view line,
                                   bool& has_arrival) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(line)));
  const JsonValue root = document.root();
  TraceRequest request;
  NIBBLE_TRY(request.input_tokens, JsonLength(root, columns.input));
  NIBBLE_TRY(request.output_tokens, JsonLength(root, columns.output));
  std::string_view key = columns.arrival;
  double unit = columns.arrival_unit_s;
  if (!columns.arrival_required && !root.Find(key)) {
    key = "arrival_time";
    unit = 1;
  }
  has_arrival = columns.arrival_required || root.Find(key).has_value();
  if (has_arrival) {
    NIBBLE_TRY(const double arrival, root.GetDouble(key));
    NIBBLE_TRY(request.arrival_s, CheckArrival(key, arrival * unit, fmt::format("{}", arrival)));
  }
  if (columns.format == TraceFormat::kNibble) NIBBLE_RETURN_IF_ERROR(ReadServed(root, request));
  if (const auto blocks = root.Find("hash_ids"); blocks && !blocks->is_null()) {
    const auto array = blocks->AsArray();
    if (!array) return Within("'hash_ids'", array.error());
    for (const JsonValue block : *array) {
      const auto id = block.AsInt();
      if (!id) return Within("'hash_ids'", id.error());
      request.blocks.push_back(*id);
    }
  }
  return request;
}

constexpr std::string_view kNibbleMark = "\"nibble_trace\"";

// The first line of `serve --trace-log`: how many tokens a block has.
Result<int> ReadNibbleHead(std::string_view line) {
  NIBBLE_TRY(const JsonDocument document, JsonDocument::Parse(std::string(line)));
  NIBBLE_TRY(const int64_t version, document.root().GetInt("nibble_trace"));
  if (version != 1) return BadInput("'nibble_trace': expected version 1, found {}", version);
  NIBBLE_TRY(const int64_t tokens, document.root().GetInt("block_tokens"));
  if (tokens < 1 || tokens > kMostTraceTokens) {
    return BadInput("'block_tokens': expected 1 to {}, found {}", kMostTraceTokens, tokens);
  }
  return static_cast<int>(tokens);
}

// The format of a file that begins with this line.
Result<TraceFormat> GuessFormat(std::string_view line) {
  if (line.starts_with('{')) {
    if (line.find(kNibbleMark) != line.npos) return TraceFormat::kNibble;
    return line.find("\"input_length\"") != line.npos ? TraceFormat::kMooncake
                                                      : TraceFormat::kJsonl;
  }
  for (const TraceColumns& columns : kColumns) {
    if (!columns.json && Complete(columns, FindColumns(columns, line))) return columns.format;
  }
  return BadInput(
      "line 1: expected the header of an Azure, Vidur or LLMServingSim CSV file, or a JSON object; "
      "found {}",
      Found(line));
}

}  // namespace

std::string_view TraceFormatName(TraceFormat format) {
  return kTraceFormatNames[static_cast<size_t>(format)];
}

Result<TraceReader> TraceReader::Open(std::istream& in, const TraceOptions& options) {
  TraceReader reader(in, options.limit);
  NIBBLE_RETURN_IF_ERROR(reader.ReadStart(options));
  return reader;
}

Status TraceReader::ReadStart(const TraceOptions& options) {
  NIBBLE_TRY(const auto line, lines_.Next());
  const std::string first(line.value_or(""));
  if (options.format) {
    format_ = *options.format;
  } else {
    NIBBLE_TRY(format_, GuessFormat(first));
  }
  columns_ = &ColumnsOf(format_);
  if (!columns_->json) {
    header_ = FindColumns(*columns_, first);
    if (!Complete(*columns_, header_)) {
      return BadInput("line 1: expected the columns {}{}, {} and {}, found {}", columns_->arrival,
                      columns_->arrival_required ? "" : " (may be missing)", columns_->input,
                      columns_->output, Found(first));
    }
    has_arrivals_ = header_.arrival >= 0;
  } else if (format_ == TraceFormat::kNibble) {
    const auto head = ReadNibbleHead(first);
    if (!head) return Within("line 1", head.error());
    block_tokens_ = *head;
    head_ = first;
  } else {
    first_ = first;
  }
  return {};
}

Result<std::optional<TraceRequest>> TraceReader::Next() {
  if (limit_ != 0 && count_ == limit_) return std::nullopt;
  std::string own;
  std::optional<std::string_view> line;
  do {
    if (first_) {
      own = *std::exchange(first_, std::nullopt);
      line = own;
      continue;
    }
    NIBBLE_TRY(line, lines_.Next());
    if (!line) return std::nullopt;
  } while (Blank(*line));
  bool has_arrival = has_arrivals_;
  auto request = columns_->json ? ParseJsonLine(*columns_, *line, has_arrival)
                                : ParseCsvLine(*columns_, header_, *line);
  if (!request) {
    return Within(fmt::format("line {}", lines_.number()), std::move(request).error());
  }
  if (count_ > 0 && has_arrival != has_arrivals_) {
    return BadInput("line {}: expected a time in every line or in none", lines_.number());
  }
  has_arrivals_ = has_arrival;
  request->block_tokens = block_tokens_;
  ++count_;
  return *std::move(request);
}

}  // namespace nibble
