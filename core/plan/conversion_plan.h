// ConversionPlan: what fills every byte of a target, as a value that can be printed and checked.
#ifndef CKPT_CORE_PLAN_CONVERSION_PLAN_H_
#define CKPT_CORE_PLAN_CONVERSION_PLAN_H_

#include <string>
#include <vector>

#include "core/checkpoint/write_plan.h"
#include "core/layout/affine.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// The executor's journal in the target's directory; no file of a plan may have the name.
inline constexpr char kJournalName[] = ".ckptkit-journal";

// What fills one target tensor. `layout::Nest::source` is a position in the source's
// `index().tensors()`.
struct TensorRecipe {
  std::vector<layout::Nest> nests;  // disjoint; together they cover the tensor
  // What elements are read as: the dtype of every nest's source, or one that holds the values of all of them. They are cast
  // where the target's differs.
  DType source_dtype = DType::kFloat32;
};

// A pure function of the source's metadata, the layout tables and the options.
struct ConversionPlan {
  WritePlan write;
  std::vector<TensorRecipe> recipes;  // parallel to write.tensors
  // Distinguishes this source from one that has changed since: names, sizes and modification times
  // of its files.
  std::string source_identity;
};

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_CONVERSION_PLAN_H_
