#include "formats/mp_rank/internal/buffer_layout.h"

#include <cstddef>

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

}  // namespace ckpt::mp_rank
