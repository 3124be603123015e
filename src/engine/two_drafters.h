#pragma once

#include <memory>
#include <vector>

#include "engine/drafter.h"

namespace nibble {

// Asks one drafter, and another where the first has no guess that is likely right.
class TwoDrafters : public Drafter {
 public:
  TwoDrafters(std::unique_ptr<Drafter> first, std::unique_ptr<Drafter> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  void Propose(std::span<const DraftQuery> queries, std::vector<Draft>& drafts) override;
  void Forget(RequestId sequence) override;
  std::vector<FormPages> Touched() const override { return second_->Touched(); }

 private:
  static constexpr double kLikely = 0.7;
  std::unique_ptr<Drafter> first_;
  std::unique_ptr<Drafter> second_;
  std::vector<DraftQuery> rest_;
  std::vector<size_t> places_;  // of these in the queries
  std::vector<Draft> more_;
};

}  // namespace nibble
