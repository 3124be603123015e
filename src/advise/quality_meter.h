#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <vector>

#include "advise/base_rows.h"
#include "advise/quality_sums.h"
#include "advise/window_run.h"
#include "eval/windows.h"

namespace nibble {

class ModelFile;
class ThreadPool;
class Tokenizer;
struct KernelTable;

// Divergence of any number of models from one base over the windows of a text, with one model in
// memory at a time: the base's logits of a window are kept and every candidate's are compared with
// them. The figures are those of `eval --base` over the same windows, bit for bit.
class QualityMeter {
 public:
  struct Setup {
    const ModelFile& base;  // at act=f32, kv=f32
    const Tokenizer& tokenizer;
    std::vector<TokenId> ids;  // the whole text, with BOS in front where the tokenizer adds one
    int context = 512;         // tokens of a window
    ThreadPool& pool;
    const KernelTable& kernels;
    std::filesystem::path folder;           // for logits
    std::function<bool()> keep_going = {};  // false: stop
    double most_kept_bytes = 2e9;           // of logits
  };
  // Errors: a text of less than two windows (both numbers), a context beyond the model's.
  static Result<QualityMeter> Create(Setup setup);

  int windows() const { return windows_.count(); }
  int context() const { return setup_.context; }
  std::vector<TokenId> Ids(int window) const { return windows_.Ids(window); }
  bool HasBase(int window) const { return bases_.contains(window); }
  // Loads the base, computes the window, and lets the base go. The oldest windows go where there
  // would be too many bytes.
  Status ComputeBase(int window);
  // Of a window whose base is there.
  Result<QualitySums> Measure(Decoder& candidate, const KvFormats& kv, int window);

 private:
  QualityMeter(Setup setup, TextWindows windows)
      : setup_(std::move(setup)), windows_(std::move(windows)) {}

  Setup setup_;
  TextWindows windows_;
  std::map<int, BaseRows> bases_;
};

}  // namespace nibble
