#include "trainer/device/cpu/internal/reduce_tree.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <type_traits>

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

// Where a block of results goes.
template <typename Wide, typename Out>
class Destination {
 public:
  Destination(std::byte* out, GradWrite write)
      : out_(reinterpret_cast<Out*>(out)), adds_(write == GradWrite::kAdd) {}

  // Changes `block`.
  void Put(Wide* __restrict__ block, std::int64_t begin, std::int64_t elems) const {
    Out* __restrict__ const out = out_ + begin;
    if constexpr (std::is_same_v<Out, std::uint16_t>) {  // bfloat16
      if (adds_) {
        for (std::int64_t i = 0; i < elems; ++i) block[i] += Widen(out[i]);
      }
      const auto count = static_cast<std::size_t>(elems);
      constexpr DType kWide = std::is_same_v<Wide, double> ? DType::kFloat64 : DType::kFloat32;
      CastElements(kWide, std::as_bytes(std::span(block, count)), DType::kBfloat16,
                   std::as_writable_bytes(std::span(out, count)));
    } else if (adds_) {
      for (std::int64_t i = 0; i < elems; ++i) out[i] += static_cast<Out>(block[i]);
    } else {
      for (std::int64_t i = 0; i < elems; ++i) out[i] = static_cast<Out>(block[i]);
    }
  }

 private:
  Out* const out_;
  const bool adds_;
};

// Combines elements stored as `Stored` in `Wide` arithmetic.
template <typename Stored, typename Wide, typename Combine>
class Tree {
 public:
  explicit Tree(std::span<const std::byte* const> inputs)
      : inputs_(inputs),
        partials_(std::make_unique_for_overwrite<Wide[]>((std::bit_width(inputs.size()) + 1) *
                                                         kBlockElems)) {}

  template <typename Out>
  void Reduce(const Destination<Wide, Out>& out, std::int64_t count) const {
    for (std::int64_t begin = 0; begin < count; begin += kBlockElems) {
      const std::int64_t elems = std::min(kBlockElems, count - begin);
      Wide* const result = partials_.get();
      ReduceBlock(0, inputs_.size(), begin, elems, result, result + kBlockElems);
      out.Put(result, begin, elems);
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

template <typename Stored, typename Wide>
void SumInto(std::span<const std::byte* const> inputs, DType sums, GradWrite write, std::byte* out,
             std::int64_t count) {
  const Tree<Stored, Wide, Add> tree(inputs);
  if (sums == DType::kFloat32) {
    tree.Reduce(Destination<Wide, float>(out, write), count);
  } else if (sums == DType::kFloat64) {
    tree.Reduce(Destination<Wide, double>(out, write), count);
  } else {
    CKPT_CHECK(sums == DType::kBfloat16);
    tree.Reduce(Destination<Wide, std::uint16_t>(out, write), count);
  }
}

// Overflow is undefined for signed sums, but unsigned ones wrap; the bits are the same.
template <typename Unsigned>
void SumIntegers(std::span<const std::byte* const> inputs, GradWrite write, std::byte* out,
                 std::int64_t count) {
  Tree<Unsigned, Unsigned, Add>(inputs).Reduce(Destination<Unsigned, Unsigned>(out, write), count);
}

template <typename T>
void FindMax(std::span<const std::byte* const> inputs, std::byte* out, std::int64_t count) {
  Tree<T, T, Max>(inputs).Reduce(Destination<T, T>(out, GradWrite::kStore), count);
}

}  // namespace

void ReduceByTree(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                  std::byte* out, std::int64_t count) {
  CKPT_CHECK(!inputs.empty());
  if (op == ReduceOp::kSum) {
    SumByTree(dtype, inputs, dtype, GradWrite::kStore, out, count);
  } else if (dtype == DType::kFloat32) {
    FindMax<float>(inputs, out, count);
  } else if (dtype == DType::kFloat64) {
    FindMax<double>(inputs, out, count);
  } else if (dtype == DType::kInt32) {
    FindMax<std::int32_t>(inputs, out, count);
  } else {
    CKPT_CHECK(dtype == DType::kInt64);
    FindMax<std::int64_t>(inputs, out, count);
  }
}

void SumByTree(DType wire, std::span<const std::byte* const> inputs, DType sums, GradWrite write,
               std::byte* out, std::int64_t count) {
  CKPT_CHECK(!inputs.empty());
  if (wire == DType::kFloat32) {
    SumInto<float, float>(inputs, sums, write, out, count);
  } else if (wire == DType::kBfloat16) {
    SumInto<std::uint16_t, float>(inputs, sums, write, out, count);
  } else if (wire == DType::kFloat64) {
    SumInto<double, double>(inputs, sums, write, out, count);
  } else if (wire == DType::kInt64) {
    CKPT_CHECK(sums == wire);
    SumIntegers<std::uint64_t>(inputs, write, out, count);
  } else {
    CKPT_CHECK(wire == DType::kInt32 && sums == wire);
    SumIntegers<std::uint32_t>(inputs, write, out, count);
  }
}

}  // namespace ckpt::trainer
