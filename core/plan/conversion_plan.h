// ConversionPlan: where every byte of a target comes from, as a value that can be printed and
// checked.
#ifndef CKPT_CORE_PLAN_CONVERSION_PLAN_H_
#define CKPT_CORE_PLAN_CONVERSION_PLAN_H_

#include <string>
#include <vector>

#include "core/checkpoint/write_plan.h"
#include "core/layout/affine.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// The executor's journal in the target's directory. No file of a plan may have this name.
inline constexpr char kJournalName[] = ".ckptkit-journal";

// The copies that fill one target tensor. `layout::Nest::source` is a position in the source's
// `index().tensors()`.
struct TensorRecipe {
  std::vector<layout::Nest> nests;  // disjoint; together they cover the tensor
  // The dtype in which elements are read: that of every nest's source, or one that holds the values
  // of all of them. Elements are cast if the target's dtype differs.
  DType source_dtype = DType::kFloat32;
};

// A pure function of the source's metadata, the layout tables and the options.
struct ConversionPlan {
  WritePlan write;
  std::vector<TensorRecipe> recipes;  // parallel to write.tensors
  // Identifies the state of the source, so that a changed source is noticed: names, sizes and
  // modification times of its files.
  std::string source_identity;
};

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_CONVERSION_PLAN_H_
