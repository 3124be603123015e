#include <algorithm>
#include <array>

#include "cost/plan_html.h"
#include "cost/plan_text.h"
#include "cost/svg_chart.h"

namespace nibble {
namespace {

constexpr size_t kMostBars = 24;  // of one chart
constexpr size_t kMostLines = 6;  // of one chart
constexpr std::array kColours = {"#3b72c4", "#e0a12b", "#3f9b62", "#b8483f", "#7a57b5", "#5b6770"};

double Milliseconds(Seconds time) { return 1e3 * time.value; }

std::string LabelOf(const PlanRequest& request, const PlanRow& row) {
  std::string label = fmt::format("W {} · KV {}", row.weights, row.kv);
  if (request.batches.size() > 1) label += fmt::format(" · b {}", row.point.batch);
  if (request.contexts.size() > 1) label += fmt::format(" · c {}", row.point.context);
  return label;
}

BarChart BytesChart(const Plan& plan) {
  BarChart chart{.title = "Bytes of a step: weights (blue), cache (amber); right: step time"};
  for (const PlanRow& row : plan.rows) {
    if (chart.bars.size() == kMostBars) break;
    chart.bars.push_back(
        {.label = LabelOf(plan.request, row),
         .parts = {{row.cost.weights.value, kWeightColour}, {row.cost.kv.value, kCacheColour}},
         .text = fmt::format("{:.2f} ms", Milliseconds(row.cost.step))});
  }
  return chart;
}

BarChart PairsChart(const Plan& plan) {
  BarChart chart{.title = "Step time of the six pairs of formats"};
  for (const PlanRow& row : plan.pairs) {
    chart.bars.push_back({.label = fmt::format("W {} · KV {}", row.weights, row.kv),
                          .parts = {{row.cost.step.value, kColours[2]}},
                          .text = fmt::format("{:.1f} ms, {} tok/s", Milliseconds(row.cost.step),
                                              RateText(row.rate()))});
  }
  return chart;
}

BarChart WeightsChart(const Plan& plan) {
  BarChart chart{.title = "Memory of the weights by format"};
  std::string last;
  for (const PlanRow& row : plan.rows) {
    if (row.weights == last || chart.bars.size() == kMostBars) continue;
    last = row.weights;
    chart.bars.push_back({.label = row.weights,
                          .parts = {{row.memory.weights.value, kWeightColour}},
                          .text = SumBytes(row.memory.weights)});
  }
  return chart;
}

// The model of the request's formats at these places; the plan has priced them all.
Result<CostModel> ModelOf(const PlanRequest& request, size_t weights, size_t kv) {
  return CostModel::Create({.shape = request.model,
                            .device = request.device,
                            .devices = request.devices,
                            .counting = request.counting,
                            .weight_only = request.weight_only},
                           request.weights[weights], request.kv[kv]);
}

LineChart ThroughputChart(const PlanRequest& request) {
  LineChart chart{
      .title = fmt::format("Throughput against latency, batch 1 to 512, context {}, KV {}",
                           request.contexts[0], request.kv[0].name),
      .x_name = "step time (ms): what each user waits for a token",
      .y_name = "tokens/s of all users",
      .marks = true};
  for (size_t i = 0; i < std::min(request.weights.size(), kMostLines); ++i) {
    const auto model = ModelOf(request, i, 0);
    if (!model) continue;
    LineChart::Line line{.name = request.weights[i].name, .colour = kColours[i]};
    for (int batch = 1; batch <= 512; batch *= 2) {
      const DecodeCost cost = model->Decode({.batch = batch, .context = request.contexts[0]});
      line.points.emplace_back(Milliseconds(cost.step), cost.rate(batch).value);
    }
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

LineChart MemoryChart(const PlanRequest& request) {
  const int batch = request.batches[0];
  LineChart chart{.title = fmt::format("Memory against context, batch {}, weights {}", batch,
                                       request.weights[0].name),
                  .x_name = "tokens of context per sequence",
                  .y_name = "GB"};
  // Far enough to see where the first format's line meets the device's.
  const auto first = ModelOf(request, 0, 0);
  const int fits = first ? first->MaxContext(batch).value_or(0) : 0;
  const int64_t wanted = std::max<int64_t>({1024, 2 * int64_t{request.contexts[0]} * (fits == 0),
                                            request.contexts[0], int64_t{fits} * 5 / 4});
  const int most = static_cast<int>(std::min<int64_t>(wanted, CostModel::kMostContext));
  double limit = 0;
  for (size_t i = 0; i < std::min(request.kv.size(), kMostLines - 1); ++i) {
    const auto model = ModelOf(request, 0, i);
    if (!model) continue;
    LineChart::Line line{.name = "KV " + request.kv[i].name, .colour = kColours[i + 1]};
    for (int part = 0; part <= 32; ++part) {
      const int context = static_cast<int>(int64_t{most} * part / 32);
      const MemoryCost memory = model->Memory({.batch = batch, .context = context});
      line.points.emplace_back(context, memory.total().value / 1e9);
      limit = memory.device.value / 1e9;
    }
    chart.lines.push_back(std::move(line));
  }
  chart.lines.push_back({.name = "the device",
                         .colour = "#222",
                         .points = {{0, limit}, {static_cast<double>(most), limit}},
                         .dashed = true});
  return chart;
}

LineChart CrossoverChart(const Plan& plan) {
  const PlanRow& row = plan.rows.front();
  LineChart chart{
      .title = fmt::format("Bytes of a step against all tokens of context, W {} · KV {}",
                           row.weights, row.kv),
      .x_name = "tokens of context in total",
      .y_name = "GB"};
  const auto model = ModelOf(plan.request, 0, 0);
  if (!model || !row.crossover) return chart;
  const double most = 2 * row.crossover->value;
  const int batch = row.point.batch;
  LineChart::Line weights{.name = "weights", .colour = kWeightColour};
  LineChart::Line cache{.name = "cache", .colour = kCacheColour};
  for (int part = 0; part <= 32; ++part) {
    const double each = std::min<double>(most * part / 32 / batch, CostModel::kMostContext);
    const DecodeCost cost = model->Decode({.batch = batch, .context = static_cast<int>(each)});
    weights.points.emplace_back(each * batch, cost.weights.value / 1e9);
    cache.points.emplace_back(each * batch, cost.kv.value / 1e9);
  }
  chart.lines = {std::move(weights), std::move(cache)};
  return chart;
}

}  // namespace

std::string PlanSvg(const Plan& plan) {
  std::vector<DrawnChart> charts = {Draw(BytesChart(plan)), Draw(PairsChart(plan)),
                                    Draw(ThroughputChart(plan.request)),
                                    Draw(MemoryChart(plan.request))};
  if (plan.rows.front().crossover) charts.push_back(Draw(CrossoverChart(plan)));
  charts.push_back(Draw(WeightsChart(plan)));
  return SvgDocument(PlanTitle(plan.request), charts);
}

}  // namespace nibble
