#include "engine/candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/elementwise.h"
#include "kernels/sampling.h"
#include "kernels/scalar_math.h"

namespace nibble {
namespace {

double Information(const Candidate& candidate, double log_total) {
  return log_total - double{candidate.logit};
}

constexpr float kNever = -std::numeric_limits<float>::infinity();

Candidates WithIds(std::span<const float> logits, std::span<const int32_t> ids) {
  Candidates candidates;
  candidates.reserve(ids.size());
  for (int32_t id : ids) {
    if (logits[static_cast<size_t>(id)] > kNever) {
      candidates.push_back({TokenId{id}, logits[static_cast<size_t>(id)]});
    }
  }
  return candidates;
}

// Visits items in the order of less until done(item) is true, and returns how many were visited:
// these stand sorted in front. What is kept is nearly always a small part of a vocabulary, so the
// list is sorted piece by piece, each eight times longer than the one before.
template <class T, class Less, class Done>
size_t SortUntil(std::span<T> items, Less less, Done done) {
  size_t sorted = 0;
  for (size_t piece = 128; sorted < items.size(); piece *= 8) {
    const std::span<T> rest = items.subspan(sorted);
    const size_t size = std::min(piece, rest.size());
    const auto end = rest.begin() + static_cast<ptrdiff_t>(size);
    if (size < rest.size()) std::nth_element(rest.begin(), end - 1, rest.end(), less);
    std::sort(rest.begin(), end, less);
    for (size_t i = 0; i < size; ++i) {
      ++sorted;
      if (done(rest[i])) return sorted;
    }
  }
  return sorted;
}

}  // namespace

double LogTotal(const Candidates& candidates) {
  const double max = std::ranges::max_element(candidates, {}, &Candidate::logit)->logit;
  double total = 0;
  for (const Candidate& candidate : candidates) total += Exp(double{candidate.logit} - max);
  return max + Log(total);
}

Candidates TopOf(const KernelTable& kernels, std::span<const float> logits, int k) {
  Candidates top;
  if (k > 0 && static_cast<size_t>(k) < logits.size()) {
    std::vector<int32_t> ids;
    SelectTopK(kernels, logits, k, ids);
    return WithIds(logits, ids);
  }
  top.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kNever) top.push_back({TokenId{static_cast<int32_t>(i)}, logits[i]});
  }
  return top;
}

Logprobs LogprobsOf(const KernelTable& kernels, std::span<const float> logits, TokenId token,
                    int top) {
  const double total = ComputeLogSumExp(kernels, logits).log_sum_exp;
  const auto logprob = [&](float logit) { return static_cast<float>(double{logit} - total); };
  Logprobs logprobs{.own = logprob(logits[static_cast<size_t>(token.value())]), .top = {}};
  if (top <= 0) return logprobs;
  Candidates candidates = TopOf(kernels, logits, top);
  std::ranges::sort(candidates, MoreProbable);  // TopOf leaves a whole vocabulary in order of ids
  for (const Candidate& candidate : candidates) {
    logprobs.top.push_back({candidate.id, logprob(candidate.logit)});
  }
  return logprobs;
}

Candidates NucleusOf(const KernelTable& kernels, std::span<const float> logits, double p) {
  const double total = ComputeLogSumExp(kernels, logits).log_sum_exp;
  // The nucleus is nearly always small: ask for a little first, for more when it was not enough.
  constexpr int64_t kFirst = 256;
  for (int64_t k = kFirst;; k *= 8) {
    const bool all = k >= static_cast<int64_t>(logits.size());
    Candidates candidates = TopOf(kernels, logits, all ? 0 : static_cast<int>(k));
    if (KeepTopP(candidates, p, total) || all) return candidates;
  }
}

bool KeepTopP(Candidates& candidates, double p, double log_total) {
  if (p >= 1) return true;
  double reached = 0;
  const size_t kept =
      SortUntil(std::span(candidates), MoreProbable, [&](const Candidate& candidate) {
        reached += Exp(-Information(candidate, log_total));
        return reached >= p;
      });
  candidates.resize(kept);
  return reached >= p;
}

void KeepMinP(Candidates& candidates, double p) {
  if (p <= 0) return;
  const double max = std::ranges::max_element(candidates, {}, &Candidate::logit)->logit;
  const double least = max + std::min(0.0, Log(p));
  std::erase_if(candidates, [&](const Candidate& c) { return double{c.logit} < least; });
}

Candidates MinPOf(const KernelTable& kernels, std::span<const float> logits, double p) {
  const float max = MaxLogit(kernels, logits);
  // A little too low, so that rounding to float loses nobody; KeepMinP decides.
  const float least = static_cast<float>(double{max} + Log(p));
  std::vector<int32_t> ids;
  CollectAtLeast(kernels, logits, std::nextafter(least, kNever), ids);
  Candidates candidates = WithIds(logits, ids);
  KeepMinP(candidates, p);
  return candidates;
}

void KeepTypical(Candidates& candidates, double p, double log_total) {
  if (p >= 1) return;
  double entropy = 0;
  for (const Candidate& candidate : candidates) {
    const double information = Information(candidate, log_total);
    entropy += Exp(-information) * information;
  }
  struct Ranked {
    double distance;
    Candidate candidate;
  };
  std::vector<Ranked> ranked;
  ranked.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    const double difference = Information(candidate, log_total) - entropy;
    ranked.push_back({difference < 0 ? -difference : difference, candidate});
  }
  const auto closer = [](const Ranked& a, const Ranked& b) {
    return a.distance != b.distance ? a.distance < b.distance : a.candidate.id < b.candidate.id;
  };
  double reached = 0;
  const size_t kept = SortUntil(std::span(ranked), closer, [&](const Ranked& next) {
    reached += Exp(-Information(next.candidate, log_total));
    return reached > p;
  });
  candidates.resize(kept);
  for (size_t i = 0; i < kept; ++i) candidates[i] = ranked[i].candidate;
}

void KeepTopK(Candidates& candidates, int k) {
  if (k <= 0 || static_cast<size_t>(k) >= candidates.size()) return;
  std::ranges::nth_element(candidates, candidates.begin() + (k - 1), MoreProbable);
  candidates.resize(static_cast<size_t>(k));
}

Candidates NSigmaOf(const KernelTable& kernels, std::span<const float> logits, double n) {
  double sum = 0;
  int64_t count = 0;
  for (const float x : logits) {
    if (x <= kNever) continue;
    sum += double{x};
    ++count;
  }
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  for (const float x : logits) {
    if (x > kNever) squares += (double{x} - mean) * (double{x} - mean);
  }
  const double least =
      double{MaxLogit(kernels, logits)} - n * std::sqrt(squares / static_cast<double>(count));
  std::vector<int32_t> ids;
  CollectAtLeast(kernels, logits, std::nextafter(static_cast<float>(least), kNever), ids);
  Candidates candidates = WithIds(logits, ids);
  std::erase_if(candidates, [&](const Candidate& c) { return double{c.logit} < least; });
  return candidates;
}

void ExcludeTopChoices(Candidates& candidates, double threshold) {
  if (candidates.size() < 2) return;
  const double total = LogTotal(candidates);
  std::ranges::sort(candidates, MoreProbable);
  size_t choices = 0;
  while (choices < candidates.size() &&
         Exp(-Information(candidates[choices], total)) >= threshold) {
    ++choices;
  }
  if (choices < 2) return;
  candidates.erase(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(choices - 1));
}

double NormalizedEntropy(const Candidates& candidates) {
  if (candidates.size() < 2) return 0;
  const double total = LogTotal(candidates);
  double entropy = 0;
  for (const Candidate& candidate : candidates) {
    const double information = Information(candidate, total);
    entropy += Exp(-information) * information;
  }
  return std::clamp(entropy / Log(static_cast<double>(candidates.size())), 0.0, 1.0);
}

namespace {

// ln Σ exp(logit / temperature).
double LogTotalAt(const Candidates& candidates, double temperature) {
  const double max =
      double{std::ranges::max_element(candidates, {}, &Candidate::logit)->logit} / temperature;
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += Exp(double{candidate.logit} / temperature - max);
  }
  return max + Log(total);
}

constexpr double kBitsPerNat = 1.4426950408889634;

}  // namespace

void KeepUnsurprising(Candidates& candidates, double temperature, double target) {
  const double total = LogTotalAt(candidates, temperature);
  const size_t kept =
      SortUntil(std::span(candidates), MoreProbable, [&](const Candidate& candidate) {
        return (total - double{candidate.logit} / temperature) * kBitsPerNat > target;
      });
  const Candidate& last = candidates[kept - 1];
  const bool surprising = (total - double{last.logit} / temperature) * kBitsPerNat > target;
  candidates.resize(surprising ? std::max<size_t>(kept - 1, 1) : kept);
}

double SurpriseOf(const Candidates& candidates, double temperature, TokenId token) {
  const double total = LogTotalAt(candidates, temperature);
  const auto own = std::ranges::find(candidates, token, &Candidate::id);
  return (total - double{own->logit} / temperature) * kBitsPerNat;
}

TokenId DrawGumbelMax(const Candidates& candidates, double temperature, const DrawKey& key) {
  // A draw u gives noise above t only if -ln u < e^-t, and 1 - u <= -ln u: most candidates are
  // rejected by comparing 1 - u with a power of two, without a logarithm.
  const Candidate top = *std::ranges::min_element(candidates, MoreProbable);
  const double inverse = 1 / temperature;
  auto score = [&](const Candidate& candidate, double uniform) {
    return double{candidate.logit} * inverse - Log(-Log(uniform));
  };
  TokenId best = top.id;
  double best_score = score(top, DrawKey::Uniform(key.Bits(top.id)));
  for (const Candidate& candidate : candidates) {
    const double uniform = DrawKey::Uniform(key.Bits(candidate.id));
    const double needed = best_score - double{candidate.logit} * inverse;
    if (needed > 0) {
      // 2^-m >= e^-needed with m = floor(needed · log2 e) - 1; u has 53 bits.
      const double m = needed * 1.4426950408889634 - 1;
      if (m >= 54) continue;
      if (m > 0 && (1 - uniform) * static_cast<double>(uint64_t{1} << static_cast<int>(m)) >= 1) {
        continue;
      }
    }
    const double s = score(candidate, uniform);
    if (s > best_score || (s == best_score && candidate.id < best)) {
      best_score = s;
      best = candidate.id;
    }
  }
  return best;
}

}  // namespace nibble
