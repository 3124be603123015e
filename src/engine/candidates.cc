#include "engine/candidates.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/scalar_math.h"

namespace nibble {
namespace {

double Information(const Candidate& candidate, double log_total) {
  return log_total - double{candidate.logit};
}

// Leaves the k best (all, if there are fewer); the k-th is the last.
void KeepBest(Candidates& candidates, size_t k) {
  if (candidates.size() <= k) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(k) - 1,
                   candidates.end(), MoreProbable);
  candidates.resize(k);
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

Candidates TopOf(std::span<const float> logits, int k) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  Candidates best;
  const bool all = k <= 0 || static_cast<size_t>(k) >= logits.size();
  const size_t keep = all ? logits.size() : static_cast<size_t>(k);
  const size_t room = all ? logits.size() + 1 : 2 * keep + 64;
  best.reserve(std::min(room, logits.size()));
  float threshold = kNever;  // of the k-th best so far; an equal one comes later and loses
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    best.push_back({TokenId{static_cast<int32_t>(i)}, logits[i]});
    if (best.size() < room) continue;
    KeepBest(best, keep);
    threshold = best[keep - 1].logit;
  }
  if (!all) KeepTopK(best, k);
  return best;
}

void KeepTopK(Candidates& candidates, int k) {
  if (k <= 0) return;
  KeepBest(candidates, static_cast<size_t>(k));
  std::ranges::sort(candidates, MoreProbable);
}

void KeepTopP(Candidates& candidates, double p, double log_total) {
  if (p >= 1) return;
  double reached = 0;
  const size_t kept =
      SortUntil(std::span(candidates), MoreProbable, [&](const Candidate& candidate) {
        reached += Exp(-Information(candidate, log_total));
        return reached >= p;
      });
  candidates.resize(kept);
}

void KeepMinP(Candidates& candidates, double p) {
  if (p <= 0) return;
  const double max = std::ranges::max_element(candidates, {}, &Candidate::logit)->logit;
  const double least = max + std::min(0.0, Log(p));
  std::erase_if(candidates, [&](const Candidate& c) { return double{c.logit} < least; });
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
