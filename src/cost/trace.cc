#include "cost/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/split_mix.h"
#include "container/json.h"

namespace nibble {
namespace {

// Where a format has what.
struct Columns {
  TraceFormat format;
  bool json;
  std::string_view arrival;
  double arrival_unit_s;  // 0: a date
  bool arrival_required;
  std::string_view input;
  std::string_view output;
};
constexpr std::array kColumns = {
    Columns{TraceFormat::kAzure, false, "TIMESTAMP", 0, true, "ContextTokens", "GeneratedTokens"},
    Columns{TraceFormat::kVidur, false, "arrived_at", 1, false, "num_prefill_tokens",
            "num_decode_tokens"},
    Columns{TraceFormat::kServingSim, false, "arrival_time_ns", 1e-9, true, "input_toks",
            "output_toks"},
    Columns{TraceFormat::kMooncake, true, "timestamp", 1e-3, true, "input_length", "output_length"},
    Columns{TraceFormat::kJsonl, true, "arrival_time_ns", 1e-9, false, "input_toks", "output_toks"},
    Columns{TraceFormat::kNibble, true, "arrival_time_ns", 1e-9, true, "input_toks", "output_toks"},
};

const Columns& ColumnsOf(TraceFormat format) { return kColumns[static_cast<size_t>(format)]; }

// The next line without its end, which may be \r\n.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

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

Result<double> ParseArrival(const Columns& columns, std::string_view text) {
  if (columns.arrival_unit_s == 0) {
    if (const auto date = ParseDate(text)) return *date;
    return BadInput("'{}': expected a time like 2023-11-16 18:17:03.98, found {}", columns.arrival,
                    Found(text));
  }
  auto value = ParseNumber<double>(text);
  if (value) *value *= columns.arrival_unit_s;
  return CheckArrival(columns.arrival, value, Found(text));
}

// Which fields of a CSV's lines are which; -1: the column is missing.
struct CsvHeader {
  int arrival = -1;
  int input = -1;
  int output = -1;
  size_t fields = 0;
};

CsvHeader FindColumns(const Columns& columns, std::string_view line) {
  CsvHeader header;
  for (const std::string_view name : SplitCsv(line)) {
    const int at = static_cast<int>(header.fields++);
    if (name == columns.arrival) header.arrival = at;
    if (name == columns.input) header.input = at;
    if (name == columns.output) header.output = at;
  }
  return header;
}

bool Complete(const Columns& columns, const CsvHeader& header) {
  return header.input >= 0 && header.output >= 0 &&
         (header.arrival >= 0 || !columns.arrival_required);
}

Result<TraceRequest> ParseCsvLine(const Columns& columns, const CsvHeader& header,
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

// has_arrival: whether this line has a time.
Result<TraceRequest> ParseJsonLine(const Columns& columns, std::string_view line,
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
  for (const Columns& columns : kColumns) {
    if (!columns.json && Complete(columns, FindColumns(columns, line))) return columns.format;
  }
  return BadInput(
      "line 1: expected the header of an Azure, Vidur or LLMServingSim CSV file, or a JSON object; "
      "found {}",
      Found(line));
}

// Times from the earliest one on, in order.
void SortByArrival(Trace& trace) {
  const double first =
      std::ranges::min_element(trace.requests, {}, &TraceRequest::arrival_s)->arrival_s;
  for (TraceRequest& request : trace.requests) request.arrival_s -= first;
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::arrival_s);
}

}  // namespace

std::string_view TraceFormatName(TraceFormat format) {
  return kTraceFormatNames[static_cast<size_t>(format)];
}

Result<Trace> ReadTrace(std::string_view text, const TraceOptions& options) {
  Trace trace;
  int number = 1;  // of the line
  const std::string_view first = text.substr(0, text.find('\n'));
  if (options.format) {
    trace.format = *options.format;
  } else {
    std::string_view rest = text;
    NIBBLE_TRY(trace.format, GuessFormat(TakeLine(rest)));
  }
  const Columns& columns = ColumnsOf(trace.format);
  CsvHeader header;
  if (!columns.json) {
    header = FindColumns(columns, TakeLine(text));
    if (!Complete(columns, header)) {
      return BadInput("line 1: expected the columns {}{}, {} and {}, found {}", columns.arrival,
                      columns.arrival_required ? "" : " (may be missing)", columns.input,
                      columns.output, Found(first));
    }
    trace.has_arrivals = header.arrival >= 0;
    ++number;
  }
  int block_tokens = kTraceBlockTokens;
  if (trace.format == TraceFormat::kNibble) {
    const auto head = ReadNibbleHead(TakeLine(text));
    if (!head) return Within("line 1", head.error());
    block_tokens = *head;
    ++number;
  }
  for (; !text.empty() && (options.limit == 0 || trace.requests.size() < options.limit); ++number) {
    const std::string_view line = TakeLine(text);
    if (Blank(line)) continue;
    bool has_arrival = trace.has_arrivals;
    auto request = columns.json ? ParseJsonLine(columns, line, has_arrival)
                                : ParseCsvLine(columns, header, line);
    if (!request) return Within(fmt::format("line {}", number), std::move(request).error());
    if (!trace.requests.empty() && has_arrival != trace.has_arrivals) {
      return BadInput("line {}: expected a time in every line or in none", number);
    }
    trace.has_arrivals = has_arrival;
    request->block_tokens = block_tokens;
    trace.requests.push_back(*std::move(request));
  }
  if (trace.requests.empty()) return BadInput("no requests");
  SortByArrival(trace);
  return trace;
}

void SetRate(Trace& trace, double rate, uint64_t seed) {
  std::vector<TraceRequest>& requests = trace.requests;
  const double span = requests.empty() ? 0 : requests.back().arrival_s;
  if (trace.has_arrivals && span > 0) {
    const double stretched = static_cast<double>(requests.size()) / rate;
    for (TraceRequest& request : requests) request.arrival_s *= stretched / span;
    return;
  }
  double now = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].arrival_s = now;
    now -= std::log(UniformOf(SplitMixAt(SplitMix(seed + kSplitMixStep), i))) / rate;
  }
  trace.has_arrivals = true;
}

Trace SharedPrefixTrace(int count, int prefix, int suffix, int output, uint64_t seed) {
  Trace trace;
  for (int i = 0; i < count; ++i) {
    const uint64_t bits = SplitMixAt(SplitMix(seed), static_cast<uint64_t>(i));
    const int own = 1 + static_cast<int>(bits % static_cast<uint64_t>(suffix));
    TraceRequest request{.input_tokens = prefix + own, .output_tokens = output};
    for (int block = 0; block < prefix / kTraceBlockTokens; ++block) {
      request.blocks.push_back(block);
    }
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

std::vector<TokenId> TracePrompt(const TraceRequest& request, size_t index, int vocabulary,
                                 uint64_t seed) {
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<size_t>(request.input_tokens));
  const uint64_t own = SplitMix(SplitMix(seed + kSplitMixStep) + index);
  for (int i = 0; i < request.input_tokens; ++i) {
    const auto block = static_cast<size_t>(i / request.block_tokens);
    const bool shared = block < request.blocks.size();
    const uint64_t stream =
        shared ? SplitMix(SplitMix(seed) ^ static_cast<uint64_t>(request.blocks[block])) : own;
    const int at = shared ? i % request.block_tokens : i;
    const uint64_t bits = SplitMixAt(stream, static_cast<uint64_t>(at));
    prompt.emplace_back(static_cast<int32_t>(bits % static_cast<uint64_t>(vocabulary)));
  }
  return prompt;
}

}  // namespace nibble
