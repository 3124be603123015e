#include "engine/cpu_executor.h"

#include "model/decoder.h"

namespace nibble {

int CpuExecutor::vocabulary() const { return decoder_.config().vocabulary; }

Status CpuExecutor::Execute(const ExecuteInput& input, LogitsSink& sink) {
  const size_t groups = storage_.groups().size();
  for (const PageCopy& copy : input.copies) {
    storage_.CopyOpenPage(copy.group, copy.from, copy.to, copy.filled);
  }
  tables_.clear();
  sequences_.clear();
  tables_.reserve(input.spans.size() * groups);  // sequences_ point into it
  int row = 0;
  for (const ExecuteSpan& span : input.spans) {
    const size_t begin = tables_.size();
    for (size_t g = 0; g < groups; ++g) {
      const int group = static_cast<int>(g);
      const SequencePages& pages = *span.pages;
      tables_.push_back(storage_.groups()[g].two_forms()
                            ? storage_.Table(group, pages.open_table(group), pages.table(group))
                            : storage_.Table(group, pages.table(group)));
    }
    sequences_.push_back({.row_begin = row,
                          .rows = span.rows,
                          .first = Position{span.first},
                          .tables = std::span(tables_).subspan(begin, groups)});
    row += span.rows;
  }
  decoder_.Forward({input.tokens, sequences_, input.logit_rows}, storage_.groups(), sink);
  return {};
}

size_t CpuExecutor::WeightBytesPerStep() const { return decoder_.WeightBytesPerStep(); }

double CpuExecutor::KvBytesRead(int position) const {
  return nibble::KvBytesRead(storage_.groups(), position);
}

}  // namespace nibble
