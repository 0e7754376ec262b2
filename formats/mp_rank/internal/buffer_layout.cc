#include "formats/mp_rank/internal/buffer_layout.h"

#include <cstddef>
#include <utility>

namespace ckpt::mp_rank {
namespace {

constexpr std::int64_t kAlignmentElems = 64;

std::int64_t Aligned(std::int64_t position) {
  return (position + kAlignmentElems - 1) / kAlignmentElems * kAlignmentElems;
}

}  // namespace

BufferLayout LayOutBuffer(std::span<const InBuffer> parameters,
                          std::optional<std::int64_t> bucket_elems) {
  BufferLayout layout;
  layout.begins.resize(parameters.size());
  std::int64_t in_bucket = 0;  // where the bucket's last parameter ends, from the bucket's begin
  const auto end_bucket = [&] {
    layout.elems += in_bucket;
    in_bucket = 0;
  };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const InBuffer& parameter = parameters[i];
    in_bucket = Aligned(in_bucket);
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

}  // namespace ckpt::mp_rank
