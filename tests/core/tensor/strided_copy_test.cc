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

// Copies a tensor whose dims are stored in the order `order` to C order, elements `spread` apart,
// and looks at each.
void CheckPermutation(const Dims& shape, const std::vector<std::size_t>& order,
                      std::uint64_t element, std::int64_t spread) {
  Dims src_strides(shape.size());
  std::int64_t count = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    src_strides[order[i]] = count;
    count *= shape[order[i]];
  }
  const Dims c_strides = ContiguousStrides(shape);
  Dims dst_strides = c_strides;
  for (std::int64_t& stride : dst_strides) stride *= spread;
  const Bytes src = Numbered(static_cast<std::size_t>(count) * element);
  Bytes dst(src.size() * static_cast<std::size_t>(spread));
  CopyStrided(MakeBoxCopy(shape, element, 0, src_strides, 0, dst_strides), src.data(), dst.data());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t from = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      from += i / c_strides[d] % shape[d] * src_strides[d];
    }
    for (std::uint64_t b = 0; b < element; ++b) {
      ASSERT_EQ(dst[static_cast<std::size_t>(i * spread) * element + b],
                src[static_cast<std::size_t>(from) * element + b])
          << "shape " << FormatDims(shape) << " element " << i << " of " << element << " bytes";
    }
  }
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
    CheckPermutation(shape, order, std::uint64_t{1} << (rng() % 5), 1 + round % 2);
  }
}

// Of more elements than a tile has, whole vectors and what is left of them.
TEST(StridedCopy, TransposesTileByTile) {
  for (const std::uint64_t element : {1U, 2U, 4U, 8U}) {
    for (const std::int64_t spread : {1, 2}) {
      CheckPermutation({517, 131}, {1, 0}, element, spread);
      CheckPermutation({64, 512}, {1, 0}, element, spread);
      CheckPermutation({3, 40, 2, 37}, {1, 3, 2, 0}, element, spread);
      CheckPermutation({2, 300, 70}, {2, 1, 0}, element, spread);
      CheckPermutation({700, 3}, {1, 0}, element, spread);
      CheckPermutation({3, 700}, {1, 0}, element, spread);
    }
  }
}

}  // namespace
}  // namespace ckpt
