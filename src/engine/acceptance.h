#pragma once

#include <algorithm>

namespace nibble {

// How often guesses of one kind have been right lately: counts that fade with every further one.
class Acceptance {
 public:
  void Count(bool right) {
    right_ = right_ * kFade + (right ? 1 : 0);
    tried_ = tried_ * kFade + 1;
  }
  // Nothing was guessed for a while: what is known of it grows old.
  void Age() {
    right_ *= kAge;
    tried_ *= kAge;
  }
  // With a prior of the weight of some guesses.
  double Chance(double prior) const {
    return std::clamp((right_ + kWeight * prior) / (tried_ + kWeight), 0.0, 1.0);
  }

 private:
  static constexpr double kFade = 0.96;  // half is forgotten after 17
  static constexpr double kAge = 0.99;
  static constexpr double kWeight = 3;
  double right_ = 0;
  double tried_ = 0;
};

}  // namespace nibble
