#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cost/trace.h"
#include "cost/trace_reader.h"

namespace nibble {

// When requests come.
enum class ArrivalProcess : uint8_t {
  kFile,     // as the file says, stretched to a rate; where it does not say: kPoisson
  kPoisson,  // times between arrivals are exponential
  kGamma,    // they are gamma distributed, with a coefficient of variation
};

struct ArrivalOptions {
  ArrivalProcess process = ArrivalProcess::kFile;
  double rate = 0;  // requests a second; 0: the file's, or all at once
  double cv = 1;    // kGamma: standard deviation over mean of the times between; 1 is kPoisson
  uint64_t seed = 0;
  // In the order in which the server whose log this is queued them, not by arrival.
  bool as_queued = false;
};

// One after another at random, by a rule. Number i depends on the seed and on i alone.
class ArrivalTimes {
 public:
  // rate > 0, cv > 0.
  explicit ArrivalTimes(const ArrivalOptions& options) : options_(options) {}
  double Next();  // of the first one 0

 private:
  ArrivalOptions options_;
  uint64_t count_ = 0;
  double now_ = 0;
};

struct Arrival {
  size_t index = 0;  // from 0, by arrival
  int64_t line = 0;  // of the file
  double key = 0;    // what they are ordered by
  TraceRequest request;
};

class ArrivalSource {
 public:
  virtual ~ArrivalSource() = default;
  // The next one by arrival; none: nobody else comes.
  virtual Result<std::optional<Arrival>> Next() = 0;
};

// What a pass over a trace finds out.
struct TraceSurvey {
  TraceFormat format = TraceFormat::kJsonl;
  bool has_arrivals = false;
  bool in_order = true;  // each comes after the one before
  int64_t requests = 0;  // at least 1
  double first_s = 0;    // the earliest
  double last_s = 0;
  std::string head;  // TraceReader::head
  double span() const { return last_s - first_s; }
};
// Errors: the trace's; no requests.
Result<TraceSurvey> SurveyTrace(std::istream& in, const TraceOptions& options);

// The requests of a trace by arrival, from a stream that is read once more behind the survey, in
// memory that does not depend on the trace's length: a file that is not in order, as logs are that
// tell of requests when they end, is put in order kReorder requests at a time.
class TraceStream : public ArrivalSource {
 public:
  static constexpr size_t kReorder = 1 << 16;

  // in: at its beginning; outlives this.
  static Result<std::unique_ptr<TraceStream>> Open(std::istream& in, const TraceOptions& trace,
                                                   const TraceSurvey& survey,
                                                   const ArrivalOptions& arrivals);
  // Errors: the trace's; out of order by more than kReorder requests.
  Result<std::optional<Arrival>> Next() override;

 private:
  TraceStream(TraceReader reader, TraceSurvey survey, const ArrivalOptions& arrivals);
  Status Fill();

  TraceReader reader_;
  TraceSurvey survey_;
  double stretch_ = 1;  // of the file's times
  std::optional<ArrivalTimes> times_;
  std::vector<Arrival> heap_;  // the earliest in front
  size_t given_ = 0;
  bool as_queued_ = false;
  double given_key_ = 0;  // of the last one
  bool ended_ = false;
};

// All of a trace that is in memory.
class TraceArrivals : public ArrivalSource {
 public:
  explicit TraceArrivals(const Trace& trace) : trace_(trace) {}
  Result<std::optional<Arrival>> Next() override;

 private:
  const Trace& trace_;
  size_t next_ = 0;
};

}  // namespace nibble
