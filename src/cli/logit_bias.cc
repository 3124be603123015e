#include "cli/logit_bias.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "engine/prepared_sampling.h"

namespace nibble::cli {
namespace {

std::optional<float> ReadFloat(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status ReadOne(const std::string& value, const Tokenizer& tokenizer, std::vector<LogitBias>& out) {
  const auto refuse = [&](std::string_view found) {
    return BadInput("--logit-bias '{}': expected ID+1, ID-1 or TEXT=1, found {}", value, found);
  };
  if (const size_t at = value.rfind('='); at != value.npos) {
    const auto bias = ReadFloat(std::string_view(value).substr(at + 1));
    if (!bias || std::isnan(*bias)) return refuse("no number behind the last =");
    NIBBLE_TRY(const std::vector<TokenId> ids,
               BiasedTokens(std::string_view(value).substr(0, at), tokenizer));
    for (const TokenId id : ids) out.push_back({id, *bias});
    return {};
  }
  int id = 0;
  const char* last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, id);
  if (error != std::errc() || end == last || (*end != '+' && *end != '-')) {
    return refuse("no token id and sign");
  }
  const auto bias = ReadFloat(std::string_view(end, static_cast<size_t>(last - end)));
  if (!bias || std::isnan(*bias)) return refuse("no number behind the id");
  out.push_back({TokenId{id}, *bias});
  return {};
}

}  // namespace

Result<std::vector<LogitBias>> ReadLogitBias(std::span<const std::string> values,
                                             const Tokenizer& tokenizer) {
  std::vector<LogitBias> out;
  for (const std::string& value : values) {
    NIBBLE_RETURN_IF_ERROR(ReadOne(value, tokenizer, out));
  }
  return out;
}

}  // namespace nibble::cli
