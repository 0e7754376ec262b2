#include "core/tensor/strided_copy.h"

#include <numeric>
#include <random>

#include <gmock/gmock.h>

#include "core/base/bytes.h"

namespace ckpt {
namespace {

Bytes Numbered(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

TEST(StridedCopy, NormalizeMakesAContiguousBoxOneRun) {
  const StridedCopy copy = MakeBoxCopy(Dims{4, 1, 6}, 2, 0, Dims{6, 6, 1}, 0, Dims{6, 6, 1});
  EXPECT_TRUE(copy.loops.empty());
  EXPECT_EQ(copy.run_bytes, 48U);
}

TEST(StridedCopy, NormalizeKeepsAColumnAsLoop) {
  const StridedCopy copy = MakeBoxCopy(Dims{4, 1}, 2, 0, Dims{6, 1}, 0, Dims{1, 1});
  ASSERT_EQ(copy.loops.size(), 1U);
  EXPECT_EQ(copy.loops[0], (StrideLoop{.extent = 4, .src_step = 12, .dst_step = 2}));
  EXPECT_EQ(copy.run_bytes, 2U);
  EXPECT_EQ(copy.SourceSpan(), 38U);
}

TEST(StridedCopy, AnEmptyBoxMovesNothing) {
  const StridedCopy copy = MakeBoxCopy(Dims{4, 0}, 2, 0, Dims{6, 1}, 0, Dims{1, 1});
  EXPECT_EQ(copy.SizeBytes(), 0U);
  EXPECT_EQ(copy.SourceSpan(), 0U);
}

TEST(StridedCopy, AnyPermutationMovesEveryElement) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t ndim = 1 + rng() % 4;
    Dims shape(ndim);
    for (auto& dim : shape) dim = static_cast<std::int64_t>(1 + rng() % 5);
    std::vector<std::size_t> order(ndim);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    // Source strides of the permuted storage order, destination in C order.
    Dims src_strides(ndim);
    std::int64_t step = 1;
    for (std::size_t i = ndim; i-- > 0;) {
      src_strides[order[i]] = step;
      step *= shape[order[i]];
    }
    const Dims dst_strides = ContiguousStrides(shape);
    const std::uint64_t element = std::uint64_t{1} << (rng() % 5);
    const Bytes src = Numbered(static_cast<std::size_t>(step) * element);
    Bytes dst(src.size());
    CopyStrided(MakeBoxCopy(shape, element, 0, src_strides, 0, dst_strides), src.data(),
                dst.data());
    for (std::int64_t i = 0; i < step; ++i) {
      std::int64_t from = 0;
      for (std::size_t d = 0; d < ndim; ++d) from += i / dst_strides[d] % shape[d] * src_strides[d];
      for (std::uint64_t b = 0; b < element; ++b) {
        ASSERT_EQ(dst[static_cast<std::size_t>(i) * element + b],
                  src[static_cast<std::size_t>(from) * element + b])
            << "shape " << FormatDims(shape) << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ckpt
