// Moves tokens to rows sorted by expert, and back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/routing.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// The choices of each of the form's experts in order: choices[begins[e] … begins[e + 1]).
struct ChoicesByExpert {
  std::vector<std::int32_t> choices;
  std::vector<std::int32_t> begins;
};

ChoicesByExpert GroupChoices(const SortForm& form, const std::int32_t* experts,
                             std::int64_t num_choices) {
  const auto index_of = [&](std::int64_t choice) -> std::int64_t {
    CKPT_CHECK(experts[choice] >= kNoExpert);
    const std::int64_t index = experts[choice] - form.first_expert;
    return experts[choice] == kNoExpert || index >= form.num_experts ? -1 : index;
  };
  ChoicesByExpert groups;
  groups.begins.resize(static_cast<std::size_t>(form.num_experts) + 1);
  for (std::int64_t choice = 0; choice < num_choices; ++choice) {
    const std::int64_t index = index_of(choice);
    if (index >= 0) ++groups.begins[static_cast<std::size_t>(index) + 1];
  }
  for (std::size_t e = 1; e < groups.begins.size(); ++e) groups.begins[e] += groups.begins[e - 1];
  std::vector<std::int32_t> next(groups.begins.begin(), groups.begins.end() - 1);
  groups.choices.resize(static_cast<std::size_t>(num_choices));
  for (std::int64_t choice = 0; choice < num_choices; ++choice) {
    const std::int64_t index = index_of(choice);
    if (index < 0) continue;
    std::int32_t& at = next[static_cast<std::size_t>(index)];
    groups.choices[static_cast<std::size_t>(at++)] = static_cast<std::int32_t>(choice);
  }
  return groups;
}

// Moves the `capacity` choices with the largest weights in [first, last) to the front, in their
// order. Of equal weights, the first wins.
template <typename S>
void KeepHeaviest(const S* weights, std::int64_t capacity, std::int32_t* first,
                  std::int32_t* last) {
  const auto weight_of = [=](std::int32_t choice) {
    // A NaN cannot be compared, so it counts as the smallest weight.
    return weights[choice] == weights[choice] ? weights[choice]
                                              : -std::numeric_limits<S>::infinity();
  };
  const auto is_before = [&](std::int32_t a, std::int32_t b) {
    const S weight_a = weight_of(a);
    const S weight_b = weight_of(b);
    return weight_a != weight_b ? weight_a > weight_b : a < b;
  };
  std::nth_element(first, first + capacity, last, is_before);
  std::sort(first, first + capacity);
}

// How many choices of each expert get a row.
std::vector<std::int32_t> CountKept(const SortForm& form, const ChoicesByExpert& groups) {
  std::vector<std::int32_t> kept;
  for (std::size_t e = 0; e + 1 < groups.begins.size(); ++e) {
    const std::int32_t chosen = groups.begins[e + 1] - groups.begins[e];
    const bool is_full = form.capacity > 0 && chosen > form.capacity;
    kept.push_back(is_full ? static_cast<std::int32_t>(form.capacity) : chosen);
  }
  return kept;
}

void AddTo(const Tensor& count, std::int64_t more) {
  if (count) *count.as<std::int64_t>() += more;
}

void CheckCount(const Tensor& count) {
  CKPT_CHECK(!count || (count.dtype == DType::kInt64 && count.num_elems() == 1));
}

struct SortedShape {
  std::int64_t tokens = 0;    // T
  std::int64_t topk = 0;      // K
  std::int64_t max_rows = 0;  // R
  std::int64_t columns = 0;   // H
};

// Shape of tokens [T, H] and rows [R, H], and of what goes with them: weights [T, K] and
// row_weights [R], or neither.
SortedShape ShapeOf(const ExpertRows& sorted, const Tensor& by_token, const Tensor& by_row,
                    const Tensor& weights, const Tensor& row_weights) {
  const auto& [rows, choices, offsets] = sorted;
  CKPT_CHECK(rows.dtype == DType::kInt32 && rows.ndim == 2 && choices.dtype == DType::kInt32);
  CKPT_CHECK(offsets.dtype == DType::kInt32 && by_row.ndim == 2 && by_token.ndim == 2);
  const SortedShape shape{rows.dim(0), rows.dim(1), choices.num_elems(), by_row.dim(1)};
  CKPT_CHECK(by_token.dtype == by_row.dtype && by_token.dim(1) == shape.columns);
  CKPT_CHECK(by_token.dim(0) == shape.tokens && by_row.dim(0) == shape.max_rows);
  CKPT_CHECK(static_cast<bool>(weights) == static_cast<bool>(row_weights));
  if (weights) {
    CKPT_CHECK(weights.dtype == row_weights.dtype && weights.dtype != DType::kBfloat16);
    CKPT_CHECK(weights.num_elems() == rows.num_elems());
    CKPT_CHECK(row_weights.num_elems() == shape.max_rows);
  }
  return shape;
}

}  // namespace

void HostOps::SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                           const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                           const Tensor& overflows) {
  CKPT_CHECK(experts.dtype == DType::kInt32 && sorted.rows.dtype == DType::kInt32);
  CKPT_CHECK(sorted.choices.dtype == DType::kInt32 && sorted.offsets.dtype == DType::kInt32);
  CKPT_CHECK(sorted.rows.num_elems() == experts.num_elems());
  CKPT_CHECK(sorted.offsets.num_elems() == form.num_experts + 1);
  CKPT_CHECK(form.capacity >= 0 && (!form.pad || form.capacity > 0));
  const bool is_weighed = form.capacity > 0 && form.policy == DropPolicy::kProbability;
  CKPT_CHECK(!is_weighed || weights.num_elems() == experts.num_elems());
  CheckCount(dropped);
  CheckCount(overflows);
  RunOn(queue, [=] {
    ChoicesByExpert groups =
        GroupChoices(form, experts.as<const std::int32_t>(), experts.num_elems());
    const std::vector<std::int32_t> kept = CountKept(form, groups);
    auto* row_of = sorted.rows.as<std::int32_t>();
    auto* choice_of = sorted.choices.as<std::int32_t>();
    auto* offset = sorted.offsets.as<std::int32_t>();
    std::fill_n(row_of, sorted.rows.num_elems(), -1);
    offset[0] = 0;
    for (std::size_t e = 0; e < kept.size(); ++e) {
      offset[e + 1] = offset[e] + (form.pad ? static_cast<std::int32_t>(form.capacity) : kept[e]);
    }
    if (offset[kept.size()] > sorted.choices.num_elems()) {
      std::fill_n(offset, kept.size() + 1, 0);
      AddTo(overflows, 1);
      return;
    }
    for (std::size_t e = 0; e < kept.size(); ++e) {
      std::int32_t* const first = groups.choices.data() + groups.begins[e];
      std::int32_t* const last = groups.choices.data() + groups.begins[e + 1];
      if (is_weighed && last - first > kept[e]) {
        DispatchStatistics(weights.dtype, [&](auto tag) {
          using S = typename decltype(tag)::type;
          KeepHeaviest(weights.as<const S>(), kept[e], first, last);
        });
      }
      for (std::int32_t i = 0; i < kept[e]; ++i) {
        row_of[first[i]] = offset[e] + i;
        choice_of[offset[e] + i] = first[i];
      }
      std::fill(choice_of + offset[e] + kept[e], choice_of + offset[e + 1], -1);
      AddTo(dropped, last - first - kept[e]);
    }
  });
}

void HostOps::Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                      const Tensor& weights, const Tensor& y, const Tensor& row_weights) {
  const SortedShape shape = ShapeOf(sorted, x, y, weights, row_weights);
  RunOn(queue, [=, this] {
    const auto* choices = sorted.choices.as<const std::int32_t>();
    const std::size_t row_bytes = static_cast<std::size_t>(shape.columns) * ElementBytes(y.dtype);
    const std::size_t weight_bytes = weights ? ElementBytes(weights.dtype) : 0;
    // Row `to` becomes element `from` of an array of bytes, or zeros.
    const auto move = [](const Tensor& source, std::int64_t from, const Tensor& target,
                         std::int64_t to, std::size_t bytes) {
      std::byte* const at = target.bytes() + static_cast<std::size_t>(to) * bytes;
      if (from < 0) {
        std::memset(at, 0, bytes);
      } else {
        std::memcpy(at, source.bytes() + static_cast<std::size_t>(from) * bytes, bytes);
      }
    };
    parallel_.For(RowsInUse(sorted.count(), shape.max_rows), GrainRows(shape.columns),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row) {
                      const std::int32_t choice = choices[row];
                      const std::int64_t token = choice < 0 ? -1 : choice / shape.topk;
                      move(x, token, y, row, row_bytes);
                      if (weights) move(weights, choice, row_weights, row, weight_bytes);
                    }
                  });
  });
}

void HostOps::Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                        const Tensor& row_weights, const Tensor& y, const Tensor& weights) {
  const SortedShape shape = ShapeOf(sorted, y, x, weights, row_weights);
  RunOn(queue, [=, this] {
    const auto* row_of = sorted.rows.as<const std::int32_t>();
    DispatchCompute(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t columns = shape.columns;
      parallel_.For(shape.tokens, GrainRows(columns * shape.topk),
                    [&](std::int64_t begin, std::int64_t end) {
                      std::vector<S> sums(static_cast<std::size_t>(columns));
                      WithWidestVectors([&, sum = sums.data()] {
                        for (std::int64_t t = begin; t < end; ++t) {
                          auto* out = y.as<T>() + t * columns;
                          std::fill(sum, sum + columns, S{0});
                          for (std::int64_t k = 0; k < shape.topk; ++k) {
                            const std::int32_t row = row_of[t * shape.topk + k];
                            if (row < 0) continue;
                            CKPT_CHECK(row < shape.max_rows);
                            const auto* in = x.as<const T>() + row * columns;
                            ForEach(0, columns, [=](std::int64_t i) { sum[i] += Load(in[i]); });
                          }
                          ForEach(0, columns, [=](std::int64_t i) { out[i] = Store<T>(sum[i]); });
                        }
                      });
                    });
    });
    if (!weights) return;
    DispatchStatistics(weights.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      for (std::int64_t choice = 0; choice < weights.num_elems(); ++choice) {
        const std::int32_t row = row_of[choice];
        weights.as<S>()[choice] = row < 0 ? S{0} : row_weights.as<const S>()[row];
      }
    });
  });
}

}  // namespace ckpt::trainer
