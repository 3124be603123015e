#include "advise/state_loop.h"

#include <cstring>
#include <random>

#include "advise/calibration_cases.h"
#include "platform/clock.h"
#include "platform/thread_pool.h"

namespace nibble {
namespace {

constexpr int kRowsPerThread = 224;  // of 2,048 weights in Q8_0: 0.5 MB, half a near cache
constexpr double kRoundSeconds = 3e-4;

}  // namespace

Result<StateLoop> StateLoop::Create(ThreadPool& pool, Isa isa) {
  using calibration_cases::kCols;
  StateLoop loop(pool, isa);
  const int rows = kRowsPerThread * pool.size();
  std::mt19937 engine(6);
  std::vector<std::byte> file(TraitsOf(kFormat).RowBytes(kCols) * static_cast<size_t>(rows));
  for (size_t at = 0; at + sizeof(uint32_t) <= file.size(); at += sizeof(uint32_t)) {
    const uint32_t word = static_cast<uint32_t>(engine()) & 0x3b3b3b3bU;  // finite scales
    std::memcpy(file.data() + at, &word, sizeof word);
  }
  NIBBLE_TRY(loop.packed_, AlignedBuffer::Allocate(PackedMatrix::Bytes(kFormat, rows, kCols)));
  loop.weights_ =
      PackedMatrix::Pack(kFormat, rows, kCols, file, loop.packed_.as<std::byte>(), pool);
  std::normal_distribution<float> normal;
  loop.x_.resize(size_t{kRows} * kCols);
  for (float& value : loop.x_) value = normal(engine);
  loop.y_.resize(static_cast<size_t>(kRows) * static_cast<size_t>(rows));
  const ActNeeds needs = loop.weights_.Needs(Act::kInt8);
  NIBBLE_RETURN_IF_ERROR(loop.block_.Reserve(kRows, kCols, needs));
  loop.block_.Prepare(*loop.kernels_, pool, DenseView<const float>(loop.x_.data(), kRows, kCols),
                      needs);
  while (loop.Seconds() * loop.calls_ < kRoundSeconds) loop.calls_ *= 2;
  return loop;
}

void StateLoop::Multiply() {
  const MatmulTask task = {.weights = &weights_, .y = DenseView(y_.data(), kRows, weights_.rows())};
  Matmul(*kernels_, *pool_, Act::kInt8, block_, std::span(&task, 1));
}

double StateLoop::Seconds() {
  const double started = MonotonicSeconds();
  for (int i = 0; i < calls_; ++i) Multiply();
  return (MonotonicSeconds() - started) / calls_;
}

}  // namespace nibble
