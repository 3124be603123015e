#pragma once

#include <vector>

#include "engine/executor.h"
#include "kv/storage/kv_storage.h"

namespace nibble {

class Decoder;

// Runs steps as forward passes of a decoder over the pages of a storage; both outlive it.
class CpuExecutor : public Executor {
 public:
  CpuExecutor(Decoder& decoder, KvStorage& storage) : decoder_(decoder), storage_(storage) {}

  int vocabulary() const override;
  Status Execute(const ExecuteInput& input, LogitsSink& sink) override;
  size_t WeightBytesPerStep() const override;
  double KvBytesRead(int position) const override;

 private:
  Decoder& decoder_;
  KvStorage& storage_;
  std::vector<KvTable> tables_;  // of all spans, group after group; reused
  std::vector<BatchSequence> sequences_;
};

}  // namespace nibble
