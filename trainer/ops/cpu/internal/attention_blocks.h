// Attention by blocks of query rows, and the keys that they see.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_BLOCKS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_BLOCKS_H_

#include <algorithm>
#include <cstdint>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// Query rows of a block. With fewer, the matrix products are too small. With more, many scores are
// computed for keys after the query, which it does not see.
inline constexpr std::int64_t kBlockRows = 64;

// Queries [begin, end) of an example, and the keys [first_key, end) that any of them sees.
struct Block {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_key = 0;

  [[nodiscard]] std::int64_t rows() const { return end - begin; }
  [[nodiscard]] std::int64_t keys() const { return end - first_key; }
};

inline std::int64_t FirstKey(const AttentionShape& shape, std::int64_t query) {
  return shape.window > 0 ? std::max<std::int64_t>(0, query - shape.window + 1) : 0;
}

template <typename Body>
void ForBlocks(const AttentionShape& shape, const Body& body) {
  for (std::int64_t begin = 0; begin < shape.seq; begin += kBlockRows) {
    body(Block{begin, std::min(begin + kBlockRows, shape.seq), FirstKey(shape, begin)});
  }
}

// The keys that one query of a block sees, as a range of columns of the block's scores.
struct Seen {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

inline Seen SeenBy(const AttentionShape& shape, const Block& block, std::int64_t row) {
  const std::int64_t query = block.begin + row;
  return {FirstKey(shape, query) - block.first_key, query + 1 - block.first_key};
}

// Zeroes the scores of keys that the row's query does not see.
template <typename R>
void ClearUnseen(const Seen& seen, std::int64_t keys, R* row) {
  std::fill(row, row + seen.begin, R{0});
  std::fill(row + seen.end, row + keys, R{0});
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_BLOCKS_H_
