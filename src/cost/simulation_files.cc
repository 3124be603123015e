#include "cost/simulation_files.h"

#include <fmt/format.h>

#include <iterator>

namespace nibble {
namespace {

constexpr size_t kPendingBytes = size_t{256} << 10;

double Microseconds(double seconds) { return seconds * 1e6; }

void Flush(OutputFile& file, std::string& pending, Status& status) {
  if (status) status = file.Write(pending);
  pending.clear();
}

// One part of a request's life.
void AddSpan(std::string& out, size_t id, std::string_view name, double from, double to) {
  fmt::format_to(
      std::back_inserter(out),
      ",\n"
      R"({{"name":"{0}","cat":"request","ph":"b","id":{1},"pid":1,"tid":2,"ts":{2:.3f}}},)"
      "\n"
      R"({{"name":"{0}","cat":"request","ph":"e","id":{1},"pid":1,"tid":2,"ts":{3:.3f}}})",
      name, id, Microseconds(from), Microseconds(to));
}

}  // namespace

Result<EventFile> EventFile::Create(const std::filesystem::path& path) {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  EventFile events(std::move(file));
  events.pending_ = R"({"displayTimeUnit":"ms","traceEvents":[)"
                    "\n"
                    R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"nibble simulate"}},)"
                    "\n"
                    R"({"name":"thread_name","ph":"M","pid":1,"tid":1,"args":{"name":"steps"}})";
  return events;
}

void EventFile::OnStep(const SimulatedStep& step) {
  const double at = Microseconds(step.begin_s);
  fmt::format_to(std::back_inserter(pending_),
                 ",\n"
                 R"({{"name":"step","ph":"X","pid":1,"tid":1,"ts":{:.3f},"dur":{:.3f},"args":)"
                 R"({{"step":{},"rows":{},"prompt_rows":{},"sequences":{},"preempted":{}}}}},)"
                 "\n"
                 R"({{"name":"sequences","ph":"C","pid":1,"ts":{:.3f},"args":)"
                 R"({{"running":{},"waiting":{}}}}},)"
                 "\n"
                 R"({{"name":"KV pages","ph":"C","pid":1,"ts":{:.3f},"args":{{"used":{}}}}})",
                 at, Microseconds(step.seconds), step.number, step.rows, step.prompt_rows,
                 step.sequences, step.preempted, at, step.running, step.waiting, at, step.kv_pages);
  if (pending_.size() > kPendingBytes) Flush(file_, pending_, status_);
}

void EventFile::OnRequest(const SimulatedRequest& request) {
  if (!request.finished) return;
  AddSpan(pending_, request.index, "wait", request.arrival_s, request.begin_s);
  AddSpan(pending_, request.index, "prompt", request.begin_s, request.first_token_s);
  AddSpan(pending_, request.index, "answer", request.first_token_s, request.last_token_s);
}

Status EventFile::Finish() {
  pending_ += "\n]}\n";
  Flush(file_, pending_, status_);
  NIBBLE_RETURN_IF_ERROR(status_);
  return file_.Commit();
}

Result<RequestFile> RequestFile::Create(const std::filesystem::path& path) {
  NIBBLE_TRY(OutputFile file, OutputFile::Create(path));
  return RequestFile(std::move(file));
}

void RequestFile::OnRequest(const SimulatedRequest& r) {
  fmt::format_to(std::back_inserter(pending_),
                 R"({{"request":{},"line":{},"arrival_s":{:.9f},"input_toks":{},"output_toks":{},)"
                 R"("rejected":{})",
                 r.index, r.line, r.arrival_s, r.input_tokens, r.output_tokens, r.rejected);
  if (r.finished) {
    fmt::format_to(std::back_inserter(pending_),
                   R"(,"queue_s":{:.9f},"ttft_s":{:.9f},"e2e_s":{:.9f},"cached_toks":{},)"
                   R"("preemptions":{})",
                   r.begin_s - r.arrival_s, r.first_token_s - r.arrival_s,
                   r.last_token_s - r.arrival_s, r.cached_tokens, r.preemptions);
  }
  pending_ += "}\n";
  if (pending_.size() > kPendingBytes) Flush(file_, pending_, status_);
}

Status RequestFile::Finish() {
  Flush(file_, pending_, status_);
  NIBBLE_RETURN_IF_ERROR(status_);
  return file_.Commit();
}

}  // namespace nibble
