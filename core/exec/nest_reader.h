// Reads through a layout: fills boxes of target tensors from source chunks by loop nests.
#ifndef CKPT_CORE_EXEC_NEST_READER_H_
#define CKPT_CORE_EXEC_NEST_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/result.h"
#include "core/base/scratch.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/source.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// Fills boxes of target tensors. It remembers where the chunks of the current target's sources lie.
// For one thread.
class NestReader {
 public:
  // A quarter of `budget_bytes` limits decoded items, an eighth what is widened from other dtypes,
  // and another eighth, but no more than a cache holds, the reads that serve several runs; each at
  // least some KiB. What is left, half or more, limits what is read ahead. `copy`: of boxes that
  // are stored several times (ForEachStoredPart).
  NestReader(const CheckpointSource& source, std::uint64_t budget_bytes, std::size_t copy = 0);

  // The largest read that serves several runs, under this budget (PlanReads).
  [[nodiscard]] static std::uint64_t ScratchBytes(std::uint64_t budget_bytes);

  // Starts another target tensor: forgets where the chunks of earlier sources lie, and what was
  // read ahead.
  void Reset() {
    chunks_.Clear();
    ahead_box_.reset();
  }

  // Writes the elements of `box` of the target into `out`, in C order and in the recipe's source
  // dtype. Errors: those of TensorReader; kInternal if the recipe does not fill the box.
  Status Read(const TensorRecipe& recipe, const Box& box, MutableByteSpan out);

  // The same for a box of `whole`, all of which is asked for in order, as ForEachBlock cuts it.
  // Where the source lies in another order, as that of a transpose does, the bytes of a box lie
  // scattered among those of many others. Then the boxes that lie together are read ahead, as far
  // as the budget allows, so that the source is read about once. Returns the elements: `out`, or
  // where they lie in what was read ahead, until the next call.
  Result<ByteSpan> ReadInOrder(const TensorRecipe& recipe, const Box& whole, const Box& box,
                               MutableByteSpan out);

  // The budget with which ReadInOrder reads about every byte of the source once, if `whole` is
  // asked for in boxes as large as `box`, its first; 0 if any will do. Reads nothing. Errors:
  // kCoverage.
  static Result<std::uint64_t> BudgetToReadOnce(const CheckpointSource& source,
                                                const TensorRecipe& recipe, const Box& whole,
                                                const Box& box);

  [[nodiscard]] std::uint64_t bytes_read() const { return gatherer_.bytes_read(); }

 private:
  // Whether the nest reads from a tensor of `dtype`.
  [[nodiscard]] bool IsOf(DType dtype, const layout::Nest& nest) const;
  // Adds the elements of all nests that read from tensors of `dtype` to `out`, widened to the
  // recipe's dtype.
  Status AddOfDtype(const TensorRecipe& recipe, DType dtype, const Box& box, MutableByteSpan out);
  Status ReadNest(const layout::Nest& nest, const Box& box, MutableByteSpan out);

  // The most that is read ahead.
  [[nodiscard]] std::uint64_t AheadBytes() const;
  // What to read where `box` is asked for: itself, or as much of `whole` behind it as makes the
  // reads cheaper.
  Result<Box> BoxToRead(const TensorRecipe& recipe, const Box& whole, const Box& box) const;
  // The bytes that reading a box takes from files.
  Result<std::uint64_t> BytesToRead(const TensorRecipe& recipe, const Box& box) const;

  // One block of AddOfDtype.
  Status AddBlockOfDtype(const TensorRecipe& recipe, DType dtype, const Box& block,
                         MutableByteSpan out);

  std::uint64_t budget_bytes_;
  std::size_t copy_;
  Bytes stored_;                  // a block in the source's dtype
  Bytes widened_;                 // the same in the recipe's dtype
  Scratch ahead_;                 // what was read ahead
  std::optional<Box> ahead_box_;  // of the current target
  Gatherer gatherer_;
  LocatedChunks chunks_;
};

// Passes the bytes of a tensor, as the recipe makes it from `source`, to `sink` in blocks: in C
// order and in the source's dtype. Digests under another layout are computed from them.
Status StreamRecipe(const CheckpointSource& source, const TensorRecipe& recipe, DimsView shape,
                    std::uint64_t budget_bytes, const std::function<Status(ByteSpan)>& sink);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_NEST_READER_H_
