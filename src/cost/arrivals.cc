#include "cost/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/split_mix.h"

namespace nibble {
namespace {

// The same stream of numbers as SetRate's.
uint64_t StreamOf(uint64_t seed) { return SplitMix(seed + kSplitMixStep); }

// Gamma with mean 1 by Marsaglia and Tsang (2000); a shape below 1 is one above, times a power.
double DrawGamma(double shape, uint64_t stream) {
  uint64_t drawn = 0;
  const auto uniform = [&] { return UniformOf(SplitMixAt(stream, drawn++)); };
  const double raised = shape < 1 ? shape + 1 : shape;
  const double boost = shape < 1 ? std::pow(uniform(), 1 / shape) : 1;
  const double d = raised - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform());
    const double base = 1 + c * normal;
    if (base <= 0) continue;
    const double v = base * base * base;
    const double square = normal * normal;
    if (std::log(uniform()) < square / 2 + d - d * v + d * std::log(v)) {
      return d * v * boost / shape;
    }
  }
}

bool Later(const Arrival& a, const Arrival& b) {
  return std::pair(a.key, a.line) > std::pair(b.key, b.line);
}

}  // namespace

double ArrivalTimes::Next() {
  const double time = now_;
  const uint64_t stream = StreamOf(options_.seed);
  if (options_.process == ArrivalProcess::kGamma) {
    const double shape = 1 / (options_.cv * options_.cv);
    now_ += DrawGamma(shape, SplitMixAt(stream, count_)) / options_.rate;
  } else {
    now_ -= std::log(UniformOf(SplitMixAt(stream, count_))) / options_.rate;
  }
  ++count_;
  return time;
}

Result<TraceSurvey> SurveyTrace(std::istream& in, const TraceOptions& options) {
  NIBBLE_TRY(TraceReader reader, TraceReader::Open(in, options));
  TraceSurvey survey{.format = reader.format(), .head = reader.head()};
  double before = 0;
  while (true) {
    NIBBLE_TRY(const auto request, reader.Next());
    if (!request) break;
    const double time = request->arrival_s;
    const bool first = survey.requests++ == 0;
    survey.first_s = first ? time : std::min(survey.first_s, time);
    survey.last_s = first ? time : std::max(survey.last_s, time);
    survey.in_order = survey.in_order && (first || time >= before);
    before = time;
  }
  if (survey.requests == 0) return BadInput("no requests");
  survey.has_arrivals = reader.has_arrivals();
  return survey;
}

TraceStream::TraceStream(TraceReader reader, TraceSurvey survey, const ArrivalOptions& arrivals)
    : reader_(std::move(reader)), survey_(std::move(survey)), as_queued_(arrivals.as_queued) {
  if (arrivals.rate <= 0) return;
  if (arrivals.process == ArrivalProcess::kFile && survey_.has_arrivals && survey_.span() > 0) {
    stretch_ = static_cast<double>(survey_.requests) / arrivals.rate / survey_.span();
  } else {
    times_.emplace(arrivals);
  }
}

Result<std::unique_ptr<TraceStream>> TraceStream::Open(std::istream& in, const TraceOptions& trace,
                                                       const TraceSurvey& survey,
                                                       const ArrivalOptions& arrivals) {
  NIBBLE_TRY(TraceReader reader, TraceReader::Open(in, trace));
  return std::unique_ptr<TraceStream>(new TraceStream(std::move(reader), survey, arrivals));
}

Status TraceStream::Fill() {
  const size_t wanted = survey_.in_order && !as_queued_ ? 1 : kReorder;
  while (!ended_ && heap_.size() < wanted) {
    auto request = reader_.Next();
    if (!request) return std::unexpected(std::move(request).error());
    ended_ = !request->has_value();
    if (ended_) break;
    Arrival arrival{.line = reader_.line(), .request = *std::move(*request)};
    arrival.key = arrival.request.arrival_s;
    if (as_queued_) {
      const auto& served = arrival.request.served;
      if (!served || served->order < 0 || served->queued_step < 0) {
        return BadInput("line {}: expected 'queued_order' and 'queued_step'", arrival.line);
      }
      arrival.key = static_cast<double>(served->order);
    }
    heap_.push_back(std::move(arrival));
    std::ranges::push_heap(heap_, Later);
  }
  return {};
}

Result<std::optional<Arrival>> TraceStream::Next() {
  NIBBLE_RETURN_IF_ERROR(Fill());
  if (heap_.empty()) return std::nullopt;
  std::ranges::pop_heap(heap_, Later);
  Arrival arrival = std::move(heap_.back());
  heap_.pop_back();
  const double time = arrival.request.arrival_s;
  if (given_ > 0 && arrival.key < given_key_) {
    return BadInput("line {}: expected a request at most {} lines behind those that came later",
                    arrival.line, kReorder);
  }
  given_key_ = arrival.key;
  arrival.index = given_++;
  arrival.request.arrival_s = times_ ? times_->Next() : (time - survey_.first_s) * stretch_;
  return arrival;
}

Result<std::optional<Arrival>> TraceArrivals::Next() {
  if (next_ == trace_.requests.size()) return std::nullopt;
  const size_t index = next_++;
  return Arrival{
      .index = index, .line = static_cast<int64_t>(index) + 1, .request = trace_.requests[index]};
}

}  // namespace nibble
