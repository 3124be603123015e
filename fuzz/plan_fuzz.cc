// deps: server
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "container/json.h"
#include "cost/plan.h"
#include "server/plan_route.h"

namespace {

void CheckRows(const nibble::server::Json& plan) {
  for (const auto& row : plan["rows"]) {
    const double step = row["step_s"].get<double>(), bytes = row["bytes"].get<double>();
    if (!std::isfinite(step) || step <= 0 || !std::isfinite(bytes) || bytes < 0) std::abort();
    if (row["fits"].get<bool>() != (row["max_batch"] >= row["batch"])) std::abort();
  }
}

// A SPEC.json of a device and one of a model, as files hold them.
nibble::PlanSources SourcesOf(std::string_view text) {
  nibble::PlanSources sources = nibble::TableSources();
  sources.model = [text](const std::string& name) -> nibble::Result<nibble::ModelShape> {
    if (name != "spec") return nibble::ModelShapeByName(name);
    NIBBLE_TRY(const auto document, nibble::JsonDocument::Parse(std::string(text)));
    return nibble::ReadModelShape(document.root(), "spec");
  };
  sources.device = [text](const std::string& name) -> nibble::Result<nibble::DeviceShape> {
    if (name != "spec") return nibble::DeviceShapeByName(name);
    NIBBLE_TRY(const auto document, nibble::JsonDocument::Parse(std::string(text)));
    return nibble::ReadDeviceShape(document.root());
  };
  return sources;
}

}  // namespace

// The first byte chooses: a query string of GET /plan, or the SPEC.json of a model or of a device
// that a plan is made for. An error with a message, or rows whose numbers are numbers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::string_view kQueries[] = {
      "", "model=spec&batch=1,70&context=0,5000&kv=bf16,kivi2&counting=true",
      "device=spec&devices=3&batch=1,70",
      // A file of nibble calibrate.
      "device=spec&batch=1,70&context=0,5000&weights=q4_k_m,f16&kv=f16,kivi2&counting=true"};
  const size_t kind = data[0] % std::size(kQueries);
  nibble::PlanSources sources = SourcesOf(text);
  sources.max_rows = 16;
  const auto plan = nibble::server::AnswerPlan(kind == 0 ? text : kQueries[kind], sources);
  if (plan) {
    CheckRows(*plan);
  } else if (plan.error().status != 400 || plan.error().message.empty()) {
    std::abort();
  }
  return 0;
}
