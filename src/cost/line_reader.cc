#include "cost/line_reader.h"

namespace nibble {

Result<std::optional<std::string_view>> LineReader::Next() {
  constexpr size_t kChunk = size_t{64} << 10;
  size_t searched = begin_;
  size_t end = buffer_.find('\n', searched);
  while (end == buffer_.npos) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (searched > kMostBytes) {
      return BadInput("line {}: expected at most {} bytes in a line", number_ + 1, kMostBytes);
    }
    buffer_.resize(searched + kChunk);
    in_->read(buffer_.data() + searched, static_cast<std::streamsize>(kChunk));
    buffer_.resize(searched + static_cast<size_t>(in_->gcount()));
    if (in_->bad()) return IoError("line {}: reading failed", number_ + 1);
    if (buffer_.size() == searched) break;  // the end
    end = buffer_.find('\n', searched);
  }
  if (end == buffer_.npos && begin_ == buffer_.size()) return std::nullopt;
  std::string_view line(buffer_);
  line = line.substr(begin_, end == buffer_.npos ? buffer_.npos : end - begin_);
  begin_ = end == buffer_.npos ? buffer_.size() : end + 1;
  ++number_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace nibble
