#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"
#include "advise/kv_layers.h"

namespace nibble {

// What a cache costs at each depth of the window, beside f16 with the same weights.
struct KvDepthReport {
  std::string kv;
  std::string weights;
  struct Depth {
    int from = 0, to = 0;  // positions, [from, to)
    MeanError divergence;  // of the model with this cache
    MeanError plain;       // and with an f16 cache
  };
  std::vector<Depth> depths;
};

struct KvLayerReport {
  std::string kv;
  KvLayers costs;
  SkipChoice skip;
  double target = 0;
};

// All that `nibble advise` says.
struct AdviceReport {
  std::string model;
  std::string device;  // "this machine, 2 threads, avx512vnni"
  std::string text;    // "wiki.test.raw", or "built-in text (not your text)"
  int context = 0;
  int window = 0;   // tokens of a quality window
  int windows = 0;  // that the text has
  AdviceLimits limits;
  std::vector<AdviceRow> rows;
  std::optional<size_t> choice;
  std::string explanation;
  std::vector<std::string> commands;  // quantize, serve
  std::vector<KvDepthReport> kv_depths;
  std::vector<KvLayerReport> kv_layers;
  std::vector<std::string> notes;
};

// "smollm2-135m-f16 for 8 sequences of 2048 tokens on …".
std::string AdviceTitle(const AdviceReport& report);
// "within 400 MB and 0.1 nats: the most tokens a second".
std::string LimitsText(const AdviceLimits& limits);

// The rows in front and the one to take, for people. Figures with "~" are predicted.
std::string AdviceTable(const AdviceReport& report);

// What caches cost by depth, and which layers were kept in f16 for the target: a line each. Empty:
// nothing was measured.
std::string KvText(const AdviceReport& report);

// A page that needs nothing else: the table with every row, plots, commands.
std::string AdviceHtml(const AdviceReport& report);

}  // namespace nibble
