#include "trainer/device/cpu/reduce_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/tensor/cast.h"

namespace ckpt::trainer {
namespace {

// The blocks of all partial results along one path of the tree fit into the first-level cache
// together.
constexpr std::int64_t kBlockElems = 1024;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a > b || a != a ? a : b;  // a NaN is unequal to itself
  }
};

inline float Widen(std::uint16_t bf16_bits) {
  return std::bit_cast<float>(std::uint32_t{bf16_bits} << 16);
}
template <typename T>
T Widen(T value) {
  return value;
}

template <typename T>
void Store(const T* block, std::byte* out, std::size_t count, DType dtype) {
  const std::size_t bytes = count * sizeof(T);
  if (dtype == DType::kBfloat16) {
    CastElements(DType::kFloat32, std::as_bytes(std::span(block, count)), dtype, {out, bytes / 2});
  } else {
    std::memcpy(out, block, bytes);
  }
}

// Combines elements stored as `Stored` in `Wide` arithmetic.
template <typename Stored, typename Wide, typename Combine>
class Tree {
 public:
  explicit Tree(std::span<const std::byte* const> inputs)
      : inputs_(inputs),
        partials_(std::make_unique_for_overwrite<Wide[]>((std::bit_width(inputs.size()) + 1) *
                                                         kBlockElems)) {}

  void Reduce(DType dtype, std::byte* out, std::int64_t count) const {
    for (std::int64_t begin = 0; begin < count; begin += kBlockElems) {
      const std::int64_t elems = std::min(kBlockElems, count - begin);
      Wide* const result = partials_.get();
      ReduceBlock(0, inputs_.size(), begin, elems, result, result + kBlockElems);
      Store(result, out + static_cast<std::size_t>(begin) * sizeof(Stored),
            static_cast<std::size_t>(elems), dtype);
    }
  }

 private:
  const Stored* Input(std::size_t rank, std::int64_t begin) const {
    return reinterpret_cast<const Stored*>(inputs_[rank]) + begin;
  }

  // Reduces inputs [lo, hi) into `out`. `scratch` has room for partial results.
  void ReduceBlock(std::size_t lo, std::size_t hi, std::int64_t begin, std::int64_t elems,
                   Wide* __restrict__ out, Wide* __restrict__ scratch) const {
    const Combine combine;
    if (hi - lo == 1) {
      const Stored* __restrict__ in = Input(lo, begin);
      for (std::int64_t i = 0; i < elems; ++i) out[i] = Widen(in[i]);
    } else if (hi - lo == 2) {
      const Stored* __restrict__ left = Input(lo, begin);
      const Stored* __restrict__ right = Input(lo + 1, begin);
      for (std::int64_t i = 0; i < elems; ++i) out[i] = combine(Widen(left[i]), Widen(right[i]));
    } else {
      const std::size_t middle = lo + std::bit_ceil(hi - lo) / 2;
      ReduceBlock(lo, middle, begin, elems, out, scratch);
      ReduceBlock(middle, hi, begin, elems, scratch, scratch + kBlockElems);
      for (std::int64_t i = 0; i < elems; ++i) out[i] = combine(out[i], scratch[i]);
    }
  }

  const std::span<const std::byte* const> inputs_;
  const std::unique_ptr<Wide[]> partials_;
};

}  // namespace

void ReduceByTree(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                  std::byte* out, std::int64_t count) {
  CKPT_CHECK(!inputs.empty());
  const auto reduce = [&](const auto& tree) { tree.Reduce(dtype, out, count); };
  const bool is_sum = op == ReduceOp::kSum;
  if (dtype == DType::kFloat32) {
    is_sum ? reduce(Tree<float, float, Add>(inputs)) : reduce(Tree<float, float, Max>(inputs));
  } else if (dtype == DType::kFloat64) {
    is_sum ? reduce(Tree<double, double, Add>(inputs)) : reduce(Tree<double, double, Max>(inputs));
  } else if (dtype == DType::kInt32) {
    // Overflow is undefined for signed sums, but unsigned ones wrap; the bits are the same.
    is_sum ? reduce(Tree<std::uint32_t, std::uint32_t, Add>(inputs))
           : reduce(Tree<std::int32_t, std::int32_t, Max>(inputs));
  } else if (dtype == DType::kInt64) {
    is_sum ? reduce(Tree<std::uint64_t, std::uint64_t, Add>(inputs))
           : reduce(Tree<std::int64_t, std::int64_t, Max>(inputs));
  } else {
    CKPT_CHECK(dtype == DType::kBfloat16 && is_sum);
    reduce(Tree<std::uint16_t, float, Add>(inputs));
  }
}

}  // namespace ckpt::trainer
