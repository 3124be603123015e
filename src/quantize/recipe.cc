#include "quantize/recipe.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace nibble {
namespace {

constexpr std::pair<std::string_view, Rounding> kRoundings[] = {{"rtn", Rounding::kRtn},
                                                                {"kquant", Rounding::kKquant},
                                                                {"gptq", Rounding::kGptq},
                                                                {"hqq", Rounding::kHqq},
                                                                {"llm-int8", Rounding::kLlmInt8}};
constexpr std::pair<std::string_view, Scaling> kScalings[] = {
    {"awq", Scaling::kAwq}, {"smoothquant", Scaling::kSmoothQuant}};

template <class T, size_t N>
std::optional<T> Find(const std::pair<std::string_view, T> (&rows)[N], std::string_view name) {
  for (const auto& [known, value] : rows) {
    if (known == name) return value;
  }
  return std::nullopt;
}

template <class T, size_t N>
std::string_view NameIn(const std::pair<std::string_view, T> (&rows)[N], T value) {
  for (const auto& [known, of] : rows) {
    if (of == value) return known;
  }
  return {};
}

}  // namespace

Result<Recipe> Recipe::FromMethod(std::string_view method, Rounding plain) {
  Recipe recipe;
  recipe.rounding = plain;
  bool rounding = false;
  for (std::string_view rest = method; !rest.empty() || method.empty();) {
    const size_t plus = rest.find('+');
    const std::string_view name = rest.substr(0, plus);
    rest = plus == std::string_view::npos ? std::string_view() : rest.substr(plus + 1);
    const auto rounds = Find(kRoundings, name);
    const auto scales = Find(kScalings, name);
    if (!rounds && !scales) {
      return BadInput(
          "--method: unknown method '{}'; known: rtn, kquant, gptq, hqq, llm-int8, awq, "
          "smoothquant, and awq or smoothquant with one of the others behind a '+'",
          name);
    }
    if ((rounds && rounding) || (scales && recipe.scaling != Scaling::kNone)) {
      return BadInput("--method: '{}' names two methods of one kind", method);
    }
    if (scales) recipe.scaling = *scales;
    if (rounds) recipe.rounding = *rounds;
    rounding = rounding || rounds.has_value();
  }
  return recipe;
}

std::string Recipe::Describe() const {
  std::string text(NameIn(kRoundings, rounding));
  if (rounding == Rounding::kGptq) {
    text += fmt::format(" damp={}", damping);
    if (act_order) text += " act-order";
    if (static_groups) text += " static-groups";
  }
  if (mse) text += " mse";
  if (rounding == Rounding::kLlmInt8) text += fmt::format(" threshold={}", threshold);
  if (scaling == Scaling::kAwq) text = "awq+" + text;
  if (scaling == Scaling::kSmoothQuant) text = fmt::format("smoothquant(alpha={})+{}", alpha, text);
  if (clip) text += " clip";
  if (rotate) text = "rotation+" + text;
  return text;
}

}  // namespace nibble
