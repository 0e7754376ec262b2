// Comparison: which tensors of two checkpoints stand for each other, and what each is made of.
#ifndef CKPT_CONVERTERS_VERBS_COMPARISON_H_
#define CKPT_CONVERTERS_VERBS_COMPARISON_H_

#include <memory>
#include <string>
#include <vector>

#include "converters/verbs/side_files.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/plan/conversion_plan.h"
#include "formats/registry/registry.h"

namespace ckpt {

// One tensor of a side. The nests of the recipe count in the index of that side's checkpoint; they
// make the tensor in its own dtype, or in one that holds the values of all its parts.
struct TensorAsked {
  std::string key;  // what the side itself calls it, if it is compared as it is stored
  DType dtype = DType::kFloat32;
  Dims shape;
  TensorRecipe recipe;
};

struct TensorPair {
  std::string key;  // in A's terms; of a copy that only B stores, in B's
  TensorAsked a;
  TensorAsked b;
};

// What one side has that takes no part.
struct SideRest {
  std::vector<TensorAsked> only;       // the other side lacks them; in byte order of the key
  std::vector<LeftOutEntry> left_out;  // if models are compared: what is no weight of the model
  // Tensors that no reader may deliver, and why. They are in no other list.
  std::vector<Problem> unreadable;
  Status not_a_model;  // why it is not understood as a model, if that was tried
};

// A pure function of both checkpoints' metadata.
struct Comparison {
  bool is_of_models = false;
  std::string naming;             // if models are compared: A's
  std::vector<TensorPair> pairs;  // in byte order of the key
  SideRest a;
  SideRest b;
};

struct CompareOptions {
  Path mapping = {};  // a layout table for both in place of the built-in ones: compares models
};

// Checkpoints whose tensors have the same keys are compared as they are stored. Others are compared
// as models if both are understood and have different namings, or forms of one: by weights, B in
// the names and shapes of A. Rows that pad a vocabulary are zeros on both sides then, and copies
// that a side stores of other tensors (a tied head) are pairs of their own. What is no model, or
// has A's own naming, is compared as it is stored.
//
// A side without a config.json takes that of the other.
//
// Errors: kChecksum (metadata or an object that says what model it is), those of the user's mapping
// and, with one, all errors of UnderstandModel; those of ViewModel.
Result<Comparison> CompareCheckpoints(Storage& storage,
                                      const std::shared_ptr<const OpenedCheckpoint>& a,
                                      const std::shared_ptr<const OpenedCheckpoint>& b,
                                      const CompareOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_COMPARISON_H_
