#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::cli {

// The finished lines of a batch in the order in which they were finished, in the file OUT.journal
// beside OUT, so that a killed run goes on where it was. Its first line names the run; then each
// record is "INDEX LENGTH LINE\n". A record that was cut off is dropped when it is opened again.
// At the end the lines are written to OUT in the order of their indices, under another name and
// renamed, and the journal is removed.
class BatchJournal {
 public:
  // run: everything that the lines depend on. Errors: a journal of another run is there; another
  // process has it open.
  static Result<BatchJournal> Open(const std::filesystem::path& out, std::string_view run,
                                   int lines);
  BatchJournal(BatchJournal&& other) noexcept;
  BatchJournal& operator=(BatchJournal&&) = delete;
  BatchJournal(const BatchJournal&) = delete;
  ~BatchJournal();

  bool done(int index) const { return places_[static_cast<size_t>(index)].length > 0; }
  int count() const { return count_; }

  // line: without a newline, not empty. It survives the end of this process at once, and that of
  // the machine after the next Sync.
  Status Append(int index, std::string_view line);
  Status Sync();
  // All lines are there: writes OUT.
  Status Finish();

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t length = 0;
  };
  BatchJournal(std::filesystem::path out, int descriptor, int lines);
  std::unexpected<Error> Failed(std::string_view what) const;
  Status Start(std::string_view header);
  Status Replay(std::string_view text, std::string_view header);
  Status Write(std::string_view text);
  std::filesystem::path path() const;

  std::filesystem::path out_;
  int descriptor_;
  uint64_t size_ = 0;
  int count_ = 0;
  std::vector<Place> places_;  // by index
};

}  // namespace nibble::cli
