#include "advise/window_run.h"

#include <algorithm>
#include <vector>

#include "base/math.h"
#include "kv/storage/kv_storage.h"
#include "model/batch.h"

namespace nibble {
namespace {

// Counts rows over the chunks.
class ShiftedSink : public LogitsSink {
 public:
  ShiftedSink(LogitsSink& sink, int by) : sink_(sink), by_(by) {}
  void Rows(int first, MatrixView<float> logits) override { sink_.Rows(by_ + first, logits); }

 private:
  LogitsSink& sink_;
  int by_;
};

}  // namespace

Status RunWindow(Decoder& decoder, const WindowRun& run, LogitsSink& sink) {
  const auto size = static_cast<int>(run.ids.size());
  NIBBLE_TRY(std::vector<KvGroup> groups, MakeKvGroups(decoder.config(), run.kv));
  std::vector<PageId> pages;
  for (int p = 0; p < CeilDiv(size, kPageTokens); ++p) pages.emplace_back(p);
  const std::vector<int> counts(groups.size(), static_cast<int>(pages.size()));
  NIBBLE_TRY(KvStorage storage, KvStorage::Create(std::move(groups), counts, counts));
  std::vector<KvTable> tables;
  for (size_t g = 0; g < storage.groups().size(); ++g) {
    const bool two_forms = storage.groups()[g].two_forms();
    tables.push_back(
        storage.Table(static_cast<int>(g), pages,
                      two_forms ? std::span<const PageId>(pages) : std::span<const PageId>()));
  }
  int scored = 0;
  for (int first = 0; first < size; first += decoder.max_rows()) {
    if (run.keep_going && !run.keep_going()) return Fail(ErrorKind::kCancelled, "stopped");
    const int rows = std::min(decoder.max_rows(), size - first);
    const BatchSequence sequence{
        .row_begin = 0, .rows = rows, .first = Position{first}, .tables = tables};
    std::vector<int> wanted;
    for (int i = std::max(run.score_from - first, 0); i < std::min(rows, size - 1 - first); ++i) {
      wanted.push_back(i);
    }
    ShiftedSink shifted(sink, scored);
    decoder.Forward(
        {.tokens = run.ids.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
         .sequences = {&sequence, 1},
         .logit_rows = wanted},
        storage.groups(), shifted);
    scored += static_cast<int>(wanted.size());
  }
  return {};
}

}  // namespace nibble
