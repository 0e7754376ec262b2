#include "formats/megatron/buffer_layout.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "core/base/checked_math.h"

namespace ckpt::megatron {

std::int64_t ParameterBegin(std::int64_t elem) { return AlignUp<std::int64_t>(elem, 64); }

std::int64_t UsualBucketElems(std::int64_t ranks) {
  constexpr std::int64_t kElems = 40'000'000;
  constexpr std::int64_t kElemsPerRank = 1'000'000;
  return std::max(kElems, kElemsPerRank * ranks);
}

std::int64_t PaddedBucketElems(std::int64_t elems, std::int64_t ranks, bool for_busbw) {
  return AlignUp(elems, std::lcm<std::int64_t>(ranks, for_busbw ? 1 << 16 : 128));
}

BufferLayout LayOutBuffer(std::span<const InBuffer> parameters,
                          std::optional<std::int64_t> bucket_elems) {
  BufferLayout layout;
  layout.begins.resize(parameters.size());
  std::int64_t in_bucket = 0;  // where the bucket's last parameter ends, from the bucket's begin
  const auto end_bucket = [&] {
    if (in_bucket > 0) layout.bucket_elems.push_back(in_bucket);
    layout.elems += in_bucket;
    in_bucket = 0;
  };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const InBuffer& parameter = parameters[i];
    in_bucket = ParameterBegin(in_bucket);
    if (parameter.has_own_bucket) end_bucket();
    layout.begins[i] = layout.elems + in_bucket;
    in_bucket += parameter.elems;
    const bool is_full = bucket_elems && in_bucket >= *bucket_elems;
    if (is_full || parameter.has_own_bucket) end_bucket();
  }
  end_bucket();
  return layout;
}

std::optional<BufferLayout> LayOutBuckets(std::span<const InBuffer> parameters,
                                          std::span<const std::int64_t> bucket_elems) {
  BufferLayout layout;
  layout.begins.resize(parameters.size());
  layout.bucket_of.resize(parameters.size());
  std::size_t bucket = 0;
  std::int64_t in_bucket = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (bucket < bucket_elems.size() && in_bucket == bucket_elems[bucket]) {
      ++bucket;
      in_bucket = 0;
    }
    if (bucket == bucket_elems.size()) return std::nullopt;
    layout.begins[i] = in_bucket;
    layout.bucket_of[i] = bucket;
    in_bucket += parameters[i].elems;
    layout.elems += parameters[i].elems;
    if (in_bucket > bucket_elems[bucket]) return std::nullopt;
  }
  const bool is_filled = bucket_elems.empty() ||
                         (bucket + 1 == bucket_elems.size() && in_bucket == bucket_elems[bucket]);
  return is_filled ? std::optional(std::move(layout)) : std::nullopt;
}

}  // namespace ckpt::megatron
