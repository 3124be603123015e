#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "advise/advice.h"
#include "base/result.h"

namespace nibble {

// What one run measured, so that another takes it up: lines of JSON, the first of which says what
// they are about. Formats go by their names, since two runs may have other grids.
struct JournalPlace {
  std::string weights;
  std::string kv;
  std::vector<int> skip_layers = {};
  bool operator==(const JournalPlace&) const = default;
};
struct JournalQuality {
  JournalPlace place;
  int context = 0;  // tokens of a window
  int window = 0;   // its number
  QualitySums sums;
};
struct JournalSpeed {
  JournalPlace place;
  int batch = 1;
  int context = 0;
  SpeedMeasurement speed;
};

class AdviseJournal {
 public:
  // key: hash of everything that measurements depend on beside what their lines say. A file of
  // another key, or one that is broken, is replaced; a last line that was cut off is dropped.
  // Errors: the file system.
  static Result<AdviseJournal> Open(const std::filesystem::path& path, std::string_view key);

  Status Add(const JournalQuality& quality);
  Status Add(const JournalSpeed& speed);

  const std::vector<JournalQuality>& qualities() const { return qualities_; }
  const std::vector<JournalSpeed>& speeds() const { return speeds_; }
  const std::filesystem::path& path() const { return path_; }
  // What was wrong with the file that was there; empty: nothing.
  const std::string& complaint() const { return complaint_; }

  // The lines of a file. Errors name the line, what was expected and what was found.
  struct Lines {
    std::vector<JournalQuality> qualities;
    std::vector<JournalSpeed> speeds;
    size_t complete = 0;  // bytes up to the end of the last whole line
  };
  static Result<Lines> Parse(std::string_view text, std::string_view key);

 private:
  Status Append(const std::string& line) const;

  std::filesystem::path path_;
  std::string complaint_;
  std::vector<JournalQuality> qualities_;
  std::vector<JournalSpeed> speeds_;
};

}  // namespace nibble
