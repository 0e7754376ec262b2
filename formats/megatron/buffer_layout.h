// Where Megatron's distributed optimizer puts parameters in a buffer: the rules of
// `_ParamAndGradBuffer` of Megatron-Core.
#ifndef CKPT_FORMATS_MEGATRON_BUFFER_LAYOUT_H_
#define CKPT_FORMATS_MEGATRON_BUFFER_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ckpt::megatron {

// Where the next parameter of a bucket begins if `elem` is the first one that is free.
[[nodiscard]] std::int64_t ParameterBegin(std::int64_t elem);

// How many elements fill a bucket if nothing else is asked for and gradients are reduced while
// others are computed; `ranks` are data-parallel. REQUIRES: `ranks` is positive.
[[nodiscard]] std::int64_t UsualBucketElems(std::int64_t ranks);

// How long a bucket of `elems` elements is in memory, so that `ranks` data-parallel ranks have
// equal parts of it. `for_busbw`: with pad_buckets_for_high_nccl_busbw. REQUIRES: `ranks` is
// positive, and the result is no more than 2^62.
[[nodiscard]] std::int64_t PaddedBucketElems(std::int64_t elems, std::int64_t ranks,
                                             bool for_busbw);

struct InBuffer {
  std::int64_t elems = 0;
  bool has_own_bucket = false;
};

struct BufferLayout {
  std::vector<std::int64_t> begins;  // of every parameter's elements
  std::int64_t elems = 0;            // of the buffer, as it is stored: without room behind buckets
  std::vector<std::int64_t> bucket_elems = {};  // of its buckets, which follow one another
  // Where buckets are stored one by one: that of every parameter, in which it begins. Empty: all
  // are in one.
  std::vector<std::size_t> bucket_of = {};
};

// The last parameter first, each at a multiple of 64 elements of its bucket. A bucket ends with the
// parameter that brings it to `bucket_elems`; without that number, it takes all. REQUIRES: the sum
// of all elements is no more than 2^62, and `elems` and `bucket_elems` are not negative.
[[nodiscard]] BufferLayout LayOutBuffer(std::span<const InBuffer> parameters,
                                        std::optional<std::int64_t> bucket_elems);

// As Megatron-Core before 0.7 did: the last parameter first, without room between them, in buckets
// of so many elements. Nothing: these do not end where parameters do. REQUIRES: as above.
[[nodiscard]] std::optional<BufferLayout> LayOutBuckets(std::span<const InBuffer> parameters,
                                                        std::span<const std::int64_t> bucket_elems);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_BUFFER_LAYOUT_H_
