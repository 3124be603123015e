#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nibble {

class ModelFile;

// What a quantised model lost against its source on one text, and how fast both are here.
struct CardQuality {
  std::string text;  // file name, or "built-in"
  std::string text_sha256;
  int context = 0;
  int64_t tokens = 0;  // predictions
  std::string act;
  double ppl = 0, ppl_se = 0;
  double ppl_source = 0;
  double kld = 0, kld_se = 0;    // from the source at act=f32, kv=f32; nats a token
  double top1 = 0, top1_se = 0;  // share with the same most probable token
  std::string verdict;
};

// What the importance of the columns comes from.
struct CardImportance {
  std::string kind;  // "text" or "imatrix"
  std::string name;  // of the file, or "built-in"
  std::string sha256;
  int64_t tokens = 0;  // of the text; 0: an importance matrix that does not say
};

// What a calibrated method saw.
struct CardCalibration {
  std::string name;  // of the text's file, or "built-in"
  std::string sha256;
  int sequences = 0;
  int length = 0;
  std::optional<uint64_t> seed;  // none: from the start of the text
};

// Tokens a second on the machine that made the file.
struct CardSpeed {
  double prefill = 0;  // 512 tokens at once
  double decode = 0;   // one at a time
};

// What a file that nibble quantised says about itself; stored as JSON.
struct Card {
  std::string tool;  // "nibble 0.1.0"
  std::string source_name;
  uint64_t source_bytes = 0;
  std::string source_sha256;
  std::string to;          // format, mix or layout
  std::string method;      // "kquant"
  std::string parameters;  // of the method, in one line
  std::vector<std::string> rules;
  std::string budget;  // as given to --budget; or empty
  std::optional<CardImportance> importance;
  std::optional<CardCalibration> calibration;
  std::vector<std::string> notes;
  uint64_t bytes = 0;
  double bits_per_weight = 0;
  std::optional<CardQuality> quality;  // nothing: not measured
  std::optional<CardSpeed> speed;
  std::string machine;               // instruction set and threads
  uint64_t peak_resident_bytes = 0;  // while the tensors were made
  double seconds = 0;                // the same
  double cpu_seconds = 0;            // of all threads; hardly changes on a busy machine
};

std::string CardJson(const Card& card);

// The card of a model as it is stored: metadata of a GGUF file, a file of its own beside a folder's
// weights. Nothing: it has none.
std::optional<std::string> StoredCard(const ModelFile& file);

}  // namespace nibble
