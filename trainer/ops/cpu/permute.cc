// Moves tokens to rows sorted by expert, and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops_impl.h"
#include "trainer/ops/cpu/numeric.h"
#include "trainer/ops/cpu/routing.h"
#include "trainer/ops/cpu/row_blocks.h"
#include "trainer/ops/cpu/vector_loop.h"

namespace ckpt::trainer {
namespace {

// The (token, slot) pairs of every expert in order, without those of padding: slots[begins[e] …
// begins[e + 1]).
struct SlotsByExpert {
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> begins;
};

SlotsByExpert GroupSlots(const std::int32_t* experts, std::int64_t num_slots,
                         std::int64_t num_experts) {
  SlotsByExpert groups;
  groups.begins.resize(static_cast<std::size_t>(num_experts) + 1);
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    if (experts[slot] == kNoExpert) continue;
    CKPT_CHECK(experts[slot] >= 0 && experts[slot] < num_experts);
    ++groups.begins[static_cast<std::size_t>(experts[slot]) + 1];
  }
  for (std::size_t e = 1; e < groups.begins.size(); ++e) groups.begins[e] += groups.begins[e - 1];
  std::vector<std::int32_t> next(groups.begins.begin(), groups.begins.end() - 1);
  groups.slots.resize(static_cast<std::size_t>(num_slots));
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    if (experts[slot] == kNoExpert) continue;
    std::int32_t& at = next[static_cast<std::size_t>(experts[slot])];
    groups.slots[static_cast<std::size_t>(at++)] = static_cast<std::int32_t>(slot);
  }
  return groups;
}

// Moves the `capacity` slots with the largest weights in [first, last) to the front, in order of
// slots. Of equal weights, the first wins.
template <typename S>
void KeepHeaviest(const S* weights, std::int64_t capacity, std::int32_t* first,
                  std::int32_t* last) {
  const auto weight_of = [=](std::int32_t slot) {
    // A NaN cannot be compared, so it counts as the smallest weight.
    return weights[slot] == weights[slot] ? weights[slot] : -std::numeric_limits<S>::infinity();
  };
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    const S weight_a = weight_of(a);
    const S weight_b = weight_of(b);
    return weight_a != weight_b ? weight_a > weight_b : a < b;
  };
  std::nth_element(first, first + capacity, last, is_before);
  std::sort(first, first + capacity);
}

struct SlotShape {
  std::int64_t tokens = 0;     // T
  std::int64_t topk = 0;       // K
  std::int64_t num_rows = 0;   // R
  std::int64_t row_elems = 0;  // H
};

// Shape of tokens [T, H] and rows [R, H] that `rows` [T, K] relates to each other.
SlotShape ShapeOf(const Tensor& rows, const Tensor& by_token, const Tensor& by_row) {
  CKPT_CHECK(rows.dtype == DType::kInt32 && rows.ndim == 2 && by_row.ndim > 0 && by_token.ndim > 0);
  CKPT_CHECK(by_token.dtype == by_row.dtype && by_token.dim(0) == rows.dim(0));
  const std::int64_t num_rows = by_row.dim(0);
  const std::int64_t row_elems = num_rows == 0 ? 0 : by_row.num_elems() / num_rows;
  CKPT_CHECK(num_rows == 0 || by_token.num_elems() == row_elems * rows.dim(0));
  return {rows.dim(0), rows.dim(1), num_rows, row_elems};
}

// The slot that goes to each row; -1 if there is none.
std::vector<std::int32_t> SlotOfRow(const Tensor& rows, std::int64_t num_rows) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(num_rows), -1);
  const auto* row = rows.as<const std::int32_t>();
  for (std::int64_t slot = 0; slot < rows.num_elems(); ++slot) {
    if (row[slot] < 0) continue;
    CKPT_CHECK(row[slot] < num_rows);
    slots[static_cast<std::size_t>(row[slot])] = static_cast<std::int32_t>(slot);
  }
  return slots;
}

// Rows of x and y, copied as bytes, and the permutation between them.
struct MovedRows {
  const std::byte* x = nullptr;
  std::byte* y = nullptr;
  const std::int32_t* index = nullptr;
  std::int64_t rows = 0;
  std::size_t row_bytes = 0;
};

MovedRows RowsToMove(const Tensor& x, const Tensor& index, const Tensor& y) {
  CKPT_CHECK(index.dtype == DType::kInt32 && x.dtype == y.dtype && x.num_elems() == y.num_elems());
  const std::int64_t rows = index.num_elems();
  CKPT_CHECK(rows == 0 || (x.ndim > 0 && x.dim(0) == rows && y.dim(0) == rows));
  const std::size_t row_bytes = rows == 0 ? 0 : x.size_bytes() / static_cast<std::size_t>(rows);
  return {x.bytes(), y.bytes(), index.as<const std::int32_t>(), rows, row_bytes};
}

std::size_t OffsetOf(const MovedRows& moved, std::int64_t row) {
  CKPT_CHECK(row >= 0 && row < moved.rows);
  return static_cast<std::size_t>(row) * moved.row_bytes;
}

}  // namespace

void HostOps::SortByExpert(Queue& queue, const DropForm& form, const Tensor& experts,
                           const Tensor& weights, const Tensor& rows, const Tensor& offsets) {
  CKPT_CHECK(experts.dtype == DType::kInt32 && rows.dtype == DType::kInt32);
  CKPT_CHECK(rows.num_elems() == experts.num_elems() && offsets.dtype == DType::kInt32);
  CKPT_CHECK(offsets.num_elems() == form.num_experts + 1);
  CKPT_CHECK(form.capacity >= 0 && (!form.pad || form.capacity > 0));
  const bool is_weighed = form.capacity > 0 && form.policy == DropPolicy::kProbability;
  CKPT_CHECK(!is_weighed || weights.num_elems() == experts.num_elems());
  RunOn(queue, [form, experts, weights, rows, offsets, is_weighed] {
    SlotsByExpert groups =
        GroupSlots(experts.as<const std::int32_t>(), experts.num_elems(), form.num_experts);
    auto* row_of = rows.as<std::int32_t>();
    auto* offset = offsets.as<std::int32_t>();
    std::fill(row_of, row_of + rows.num_elems(), -1);
    offset[0] = 0;
    for (std::int64_t e = 0; e < form.num_experts; ++e) {
      const auto expert = static_cast<std::size_t>(e);
      std::int32_t* const first = groups.slots.data() + groups.begins[expert];
      std::int32_t* const last = groups.slots.data() + groups.begins[expert + 1];
      std::int64_t kept = last - first;
      if (form.capacity > 0 && kept > form.capacity) {
        kept = form.capacity;
        if (is_weighed) {
          DispatchCompute(weights.dtype, [&](auto tag) {
            using S = Real<typename decltype(tag)::type>;
            CKPT_CHECK(weights.dtype != DType::kBfloat16);
            KeepHeaviest(weights.as<const S>(), kept, first, last);
          });
        }
      }
      for (std::int64_t i = 0; i < kept; ++i) {
        row_of[first[i]] = offset[e] + static_cast<std::int32_t>(i);
      }
      offset[e + 1] = offset[e] + static_cast<std::int32_t>(form.pad ? form.capacity : kept);
    }
  });
}

void HostOps::Permute(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) {
  const SlotShape shape = ShapeOf(rows, x, y);
  RunOn(queue, [this, x, rows, y, shape] {
    const std::vector<std::int32_t> slots = SlotOfRow(rows, shape.num_rows);
    const std::size_t row_bytes = static_cast<std::size_t>(shape.row_elems) * ElementBytes(y.dtype);
    parallel_.For(
        shape.num_rows, GrainRows(shape.row_elems), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            const std::int32_t slot = slots[static_cast<std::size_t>(row)];
            std::byte* const to = y.bytes() + static_cast<std::size_t>(row) * row_bytes;
            if (slot < 0) {
              std::memset(to, 0, row_bytes);
            } else {
              std::memcpy(to, x.bytes() + static_cast<std::size_t>(slot / shape.topk) * row_bytes,
                          row_bytes);
            }
          }
        });
  });
}

void HostOps::Unpermute(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) {
  const SlotShape shape = ShapeOf(rows, y, x);
  const std::int64_t columns = shape.tokens == 0 ? 0 : y.num_elems() / shape.tokens;
  RunOn(queue, [this, x, rows, y, shape, columns] {
    DispatchCompute(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      parallel_.For(
          shape.tokens, GrainRows(columns * shape.topk), [&](std::int64_t begin, std::int64_t end) {
            std::vector<S> sums(static_cast<std::size_t>(columns));
            WithWidestVectors([&, sum = sums.data()] {
              for (std::int64_t t = begin; t < end; ++t) {
                auto* out = y.as<T>() + t * columns;
                std::fill(sum, sum + columns, S{0});
                for (std::int64_t k = 0; k < shape.topk; ++k) {
                  const std::int32_t row = rows.as<const std::int32_t>()[t * shape.topk + k];
                  if (row < 0) continue;
                  CKPT_CHECK(row < shape.num_rows);
                  const auto* in = x.as<const T>() + row * columns;
                  ForEach(0, columns, [=](std::int64_t i) { sum[i] += Load(in[i]); });
                }
                ForEach(0, columns, [=](std::int64_t i) { out[i] = Store<T>(sum[i]); });
              }
            });
          });
    });
  });
}

void HostOps::PermuteWeights(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) {
  CKPT_CHECK(rows.dtype == DType::kInt32 && x.dtype == y.dtype);
  CKPT_CHECK(x.num_elems() == rows.num_elems());
  RunOn(queue, [x, rows, y] {
    DispatchCompute(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::vector<std::int32_t> slots = SlotOfRow(rows, y.num_elems());
      for (std::int64_t row = 0; row < y.num_elems(); ++row) {
        const std::int32_t slot = slots[static_cast<std::size_t>(row)];
        y.as<T>()[row] = slot < 0 ? T{} : x.as<const T>()[slot];
      }
    });
  });
}

void HostOps::UnpermuteWeights(Queue& queue, const Tensor& x, const Tensor& rows, const Tensor& y) {
  CKPT_CHECK(rows.dtype == DType::kInt32 && x.dtype == y.dtype);
  CKPT_CHECK(y.num_elems() == rows.num_elems());
  RunOn(queue, [x, rows, y] {
    DispatchCompute(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t slot = 0; slot < y.num_elems(); ++slot) {
        const std::int32_t row = rows.as<const std::int32_t>()[slot];
        CKPT_CHECK(row < x.num_elems());
        y.as<T>()[slot] = row < 0 ? T{} : x.as<const T>()[row];
      }
    });
  });
}

void HostOps::GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& y) {
  RunOn(queue, [this, moved = RowsToMove(x, index, y)] {
    parallel_.For(moved.rows, GrainRows(static_cast<std::int64_t>(moved.row_bytes)),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      std::memcpy(moved.y + OffsetOf(moved, i),
                                  moved.x + OffsetOf(moved, moved.index[i]), moved.row_bytes);
                    }
                  });
  });
}

void HostOps::ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& y) {
  RunOn(queue, [this, moved = RowsToMove(x, index, y)] {
    parallel_.For(moved.rows, GrainRows(static_cast<std::int64_t>(moved.row_bytes)),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i) {
                      std::memcpy(moved.y + OffsetOf(moved, moved.index[i]),
                                  moved.x + OffsetOf(moved, i), moved.row_bytes);
                    }
                  });
  });
}

}  // namespace ckpt::trainer
