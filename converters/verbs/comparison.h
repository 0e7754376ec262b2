// Comparison: which tensors of two checkpoints stand for each other, and what each is made of.
#ifndef CKPT_CONVERTERS_VERBS_COMPARISON_H_
#define CKPT_CONVERTERS_VERBS_COMPARISON_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/verbs/side_files.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "core/plan/conversion_plan.h"
#include "formats/registry/registry.h"

namespace ckpt {

// One tensor of a side. The nests of the recipe count in the index of that side's checkpoint; they
// make the tensor in its own dtype, or in one that holds the values of all its parts. What stands
// for a rounded copy on the other side is rounded to `dtype`.
struct TensorAsked {
  std::string key;  // what the side itself calls it, if it is compared as it is stored
  DType dtype = DType::kFloat32;
  Dims shape;
  TensorRecipe recipe;
};

// What people are told of a copy of a tensor or an object, counted from 0: "norm.weight",
// "norm.weight (copy 2)".
[[nodiscard]] std::string NameOfCopy(const std::string& key, std::size_t copy);

struct TensorPair {
  // In A's terms; of a copy that only B stores, in B's. What belongs to an optimizer is called what
  // it is stored as.
  std::string key;
  TensorAsked a;
  TensorAsked b;
  // Which copy of what a side stores several times, as tensor ranks do that have the same elements;
  // the first where it has fewer.
  std::size_t copy = 0;

  [[nodiscard]] std::string Name() const { return NameOfCopy(key, copy); }
};

// What one side has that takes no part.
struct SideRest {
  std::vector<TensorAsked> only;  // the other side lacks them; in byte order of the key
  // If models are compared: what is no weight of the model and takes no part, padding of
  // vocabularies among it. Not what both sides keep under one key, like random states of one
  // container.
  std::vector<LeftOutEntry> left_out;
  // Tensors that no reader may deliver, and why. They are in no other list.
  std::vector<Problem> unreadable;
  Status not_a_model;      // why it is not understood as a model, if that was tried
  bool holds_run = false;  // if models are compared: whether it holds anything of an optimizer
  Status not_a_run;        // why the tensors of its optimizer take no part, if it has some
  Status no_settings;      // why the settings of its run take no part, if its tensors do
  Status places_unknown;   // why it does not say itself where parameters lie in its buffers
};

// A setting of two runs that is not the same.
struct DifferentSetting {
  std::string name;  // "iteration"; of groups and of the schedule behind a prefix (run_settings.h)
  layout::Value a;
  layout::Value b;
  // Of the settings of groups: for how many weights they differ so, and what A keeps of the first.
  std::size_t num_tensors = 0;
  std::string first_tensor = {};
};

// How often the optimizer updated, what its groups, the schedule and the progress say.
struct RunComparison {
  std::vector<DifferentSetting> different;  // in byte order of the name
  std::vector<std::string> compared;        // names that both sides say, in byte order
  std::vector<std::string> only_a;          // names that one side says
  std::vector<std::string> only_b;
  Status groups_unknown;  // why those of groups are not compared
  // Whether both keep the arguments of the runs in objects of one key: these can be compared.
  bool has_same_arguments = false;
};

// A pure function of both checkpoints' metadata.
struct Comparison {
  bool is_of_models = false;
  // Whether buffers of optimizers, of checkpoints that are otherwise compared as they are stored,
  // are compared by the parameters in them.
  bool by_parameter = false;
  std::string naming;             // if models are compared: A's
  std::vector<TensorPair> pairs;  // in byte order of the key
  SideRest a;
  SideRest b;
  std::optional<RunComparison> run;  // if both are compared as training runs
};

struct CompareOptions {
  // Each of these compares models, whatever keys their tensors have.
  Path mapping = {};  // a layout table for both in place of the built-in ones
  Path assets = {};   // a directory whose config.json is that of a side that has none
};

// Whether their tensors have the same keys.
[[nodiscard]] bool HaveSameKeys(const OpenedCheckpoint& a, const OpenedCheckpoint& b);

// Checkpoints whose tensors have the same keys are compared as they are stored, but for the buffers
// of an optimizer: where parameters lie in them is looked up in the values, and each is compared as
// a tensor of its own, so that what lies in gaps takes no part. Others are compared as models if
// both are understood and have different namings, or forms of one: by weights, B in the names and
// shapes of A. Rows that pad a vocabulary are compared if both have as many, and are zeros on both
// sides else. Copies that a side stores of other tensors (a tied head) are pairs of their own, and
// so is what both keep beside the model under one key (random states). What is no model, or has A's
// own naming, is compared as it is stored, unless both keep an optimizer under other keys.
//
// What either side stores several times is one more pair for each copy.
//
// If both models are training runs, so is all that their optimizers keep: moments and exact
// weights, under A's names and shapes. Where one side has rounded copies beside its exact weights
// and the other does not, the exact weights of both are a pair, and each copy is one with the other
// side's weight rounded.
//
// Under different keys, an optimizer that lies in buffers takes part if the caller sees its
// parameters (SeeParameters).
//
// A side without a config.json takes that of `assets`, or of the other, or what the arguments of
// its run say.
//
// Errors: kChecksum (metadata or an object that says what model or run it is), kUsage (both sides
// have what `assets` would be for), those of the user's mapping; with a mapping or assets, all
// errors of UnderstandModel; those of ViewModel.
Result<Comparison> CompareCheckpoints(Storage& storage,
                                      const std::shared_ptr<const OpenedCheckpoint>& a,
                                      const std::shared_ptr<const OpenedCheckpoint>& b,
                                      const CompareOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_COMPARISON_H_
