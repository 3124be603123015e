#include "tokenizer/decoder.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace nibble {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string out;
  size_t previous = 0;
  for (size_t at; (at = text.find(from, previous)) != std::string_view::npos;) {
    out += text.substr(previous, at - previous);
    out += to;
    previous = at + from.size();
  }
  out += text.substr(previous);
  return out;
}

// BERT's clean_up_tokenization.
std::string CleanUp(std::string text) {
  static constexpr std::array<std::array<std::string_view, 2>, 11> kRules = {{{" .", "."},
                                                                              {" ?", "?"},
                                                                              {" !", "!"},
                                                                              {" ,", ","},
                                                                              {" ' ", "'"},
                                                                              {" n't", "n't"},
                                                                              {" 'm", "'m"},
                                                                              {" do not", " don't"},
                                                                              {" 's", "'s"},
                                                                              {" 've", "'ve"},
                                                                              {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) text = ReplaceAll(text, from, to);
  return text;
}

// Steps that treat every token alike.
class PerToken : public DecoderStep {
 public:
  void Apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = Middle(std::move(token));
  }
};

class ByteLevel final : public PerToken {
 public:
  std::string Middle(std::string token) const override {
    if (auto bytes = ByteLevelToBytes(token)) return *std::move(bytes);
    return token;
  }
};

class MetaspaceDecoder final : public DecoderStep {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void Apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = ReplaceAll(tokens[i], replacement_, i == 0 && drop_first_ ? "" : " ");
    }
  }
  std::string Middle(std::string token) const override {
    return ReplaceAll(token, replacement_, " ");
  }
  bool DropsLeadingSpace() const override { return drop_first_; }

 private:
  std::string replacement_;
  bool drop_first_;
};

class WordPieceDecoder final : public DecoderStep {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup)
      : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void Apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        tokens[i] = Middle(std::move(tokens[i]));
      } else if (cleanup_) {
        tokens[i] = CleanUp(std::move(tokens[i]));
      }
    }
  }
  std::string Middle(std::string token) const override {
    if (!prefix_.empty() && token.starts_with(prefix_)) {
      token.erase(0, prefix_.size());
    } else {
      token.insert(0, " ");
    }
    return cleanup_ ? CleanUp(std::move(token)) : token;
  }
  bool DropsLeadingSpace() const override { return true; }

 private:
  std::string prefix_;
  bool cleanup_;
};

class BpeDecoder final : public DecoderStep {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void Apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = ReplaceAll(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }
  std::string Middle(std::string token) const override { return ReplaceAll(token, suffix_, " "); }

 private:
  std::string suffix_;
};

class ByteFallback final : public DecoderStep {
 public:
  void Apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (IsValidUtf8(run)) {
        out.push_back(run);
      } else {
        out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = ByteOfToken(token); byte >= 0) {
        run += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
  std::string Middle(std::string token) const override {
    const int byte = ByteOfToken(token);
    return byte >= 0 ? std::string(1, static_cast<char>(byte)) : token;
  }
};

class Fuse final : public DecoderStep {
 public:
  void Apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, all);
  }
  std::string Middle(std::string token) const override { return token; }
};

class StripDecoder final : public DecoderStep {
 public:
  StripDecoder(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(std::vector<std::string>& tokens) const override {
    if (content_.empty()) return;
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      token = std::string(rest);
    }
  }
  std::string Middle(std::string token) const override { return token; }
  bool DropsLeadingSpace() const override { return start_ > 0 && content_ == " "; }

 private:
  std::string content_;
  size_t start_, stop_;
};

class ReplaceDecoder final : public PerToken {
 public:
  ReplaceDecoder(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Middle(std::string token) const override {
    return ReplaceAll(token, pattern_, content_);
  }

 private:
  std::string pattern_, content_;
};

class RegexReplaceDecoder final : public PerToken {
 public:
  RegexReplaceDecoder(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Middle(std::string token) const override {
    RegexMatcher matcher(pattern_, token.size());
    std::vector<MatchRange> matches;
    if (!matcher.FindAll(token, matches)) return token;  // too slow an expression: left as it is
    std::string out;
    size_t previous = 0;
    for (const MatchRange& m : matches) {
      out.append(token, previous, m.begin - previous);
      out += content_;
      previous = m.end;
    }
    out.append(token, previous);
    return out;
  }

 private:
  Regex pattern_;
  std::string content_;
};

class CtcDecoder final : public DecoderStep {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void Apply(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) token = Middle(std::move(token));
    std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
  }
  std::string Middle(std::string token) const override {
    token = ReplaceAll(token, pad_, "");
    return cleanup_ ? ReplaceAll(CleanUp(std::move(token)), delimiter_, " ") : token;
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::unique_ptr<DecoderStep> MakeByteLevelDecoder() { return std::make_unique<ByteLevel>(); }
std::unique_ptr<DecoderStep> MakeMetaspaceDecoder(std::string replacement, bool drop_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), drop_first);
}
std::unique_ptr<DecoderStep> MakeWordPieceDecoder(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}
std::unique_ptr<DecoderStep> MakeBpeDecoder(std::string suffix) {
  return std::make_unique<BpeDecoder>(std::move(suffix));
}
std::unique_ptr<DecoderStep> MakeByteFallbackDecoder() { return std::make_unique<ByteFallback>(); }
std::unique_ptr<DecoderStep> MakeFuseDecoder() { return std::make_unique<Fuse>(); }
std::unique_ptr<DecoderStep> MakeStripDecoder(std::string content, size_t start, size_t stop) {
  return std::make_unique<StripDecoder>(std::move(content), start, stop);
}
std::unique_ptr<DecoderStep> MakeReplaceDecoder(std::string pattern, std::string content) {
  return std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content));
}
std::unique_ptr<DecoderStep> MakeRegexReplaceDecoder(Regex pattern, std::string content) {
  return std::make_unique<RegexReplaceDecoder>(std::move(pattern), std::move(content));
}
std::unique_ptr<DecoderStep> MakeCtcDecoder(std::string pad, std::string delimiter, bool cleanup) {
  return std::make_unique<CtcDecoder>(std::move(pad), std::move(delimiter), cleanup);
}

}  // namespace nibble
