// OptimizerGroups: to which of a run's parameter groups a tensor belongs, under any naming.
#ifndef CKPT_CONVERTERS_VERBS_OPTIMIZER_GROUPS_H_
#define CKPT_CONVERTERS_VERBS_OPTIMIZER_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "converters/verbs/model_source.h"
#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/base/status.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"

namespace ckpt {

// Parameters whose groups are not as they must be: the first are named, the others counted.
class OtherParameters {
 public:
  void Add(Status difference);
  // All of them; OK if there are none.
  [[nodiscard]] Status Finish() &&;

 private:
  Status named_;
  std::size_t count_ = 0;
};

// Names of parameters, without wrappers, and where each is in a list of groups.
using NamedGroups = std::map<std::string, std::size_t>;

// The parameter that a stored tensor is, or a part of: the parts have its name and one more word.
// Null if it is none of these.
[[nodiscard]] const NamedGroups::value_type* FindNamed(const NamedGroups& named,
                                                       const std::string& tensor);

// What becomes of groups with the same settings.
enum class EqualGroups : std::uint8_t {
  kOne,    // so that a tensor may be made of parameters of several
  kApart,  // as the run has them, where it names their parameters
};

// Groups that differ only in whether their parameters are experts are one.
class OptimizerGroups {
 public:
  // Parameters whose groups the run does not name are in those that Megatron puts them in: biases
  // and all other vectors decay less than matrices. Errors: kUnsupported (more groups than can be
  // told apart in this way).
  static Result<OptimizerGroups> Of(const TrainingState& state,
                                    EqualGroups equal = EqualGroups::kOne);

  // What a reader takes for them once `format` has stored `run`, which names all parameters by
  // their names there. Errors: kUnsupported (as above).
  static Result<OptimizerGroups> KnownToReaders(TrainingRun run, const RunFormat& format);

  [[nodiscard]] const std::vector<ParamGroup>& groups() const { return groups_; }

  // Whether the run says of each parameter to which group it belongs.
  [[nodiscard]] bool are_all_named() const { return are_all_named_; }

  // The position in groups() of a tensor, by how it is made of TrainingState::updated.
  //
  // Errors: kMissing (what it is made of is in no group), kUnsupported (it is made of weights of
  // several groups).
  [[nodiscard]] Result<std::optional<std::size_t>> Find(const TargetTensor& tensor,
                                                        const TensorRecipe& updated) const;

  // That of a frozen parameter, by how it is made of the weights; nothing if it is in none, or is
  // made of such of several groups.
  [[nodiscard]] std::optional<std::size_t> FindFrozen(const TensorRecipe& weight) const;

  // That of a parameter with `num_dims` dims.
  [[nodiscard]] std::size_t Find(const std::string& name, std::size_t num_dims) const;

 private:
  OptimizerGroups(const TrainingRun& run, EqualGroups equal);
  // The groups of all that is not named.
  Status TellApartByDecay();
  // The group of a stored tensor.
  [[nodiscard]] std::optional<std::size_t> Named(const std::string& name) const;
  // The group of one that is not named.
  [[nodiscard]] std::size_t ByDecay(std::string_view name, std::size_t num_dims) const;

  std::vector<ParamGroup> groups_;
  NamedGroups named_;                             // by the source's names
  std::map<std::uint32_t, std::string> name_at_;  // by position in the source's index
  NamedGroups frozen_names_;                      // as named_
  std::map<std::uint32_t, std::size_t> frozen_;   // as name_at_, of weights
  bool are_all_named_ = false;
  std::size_t of_matrices_ = 0;
  std::size_t of_vectors_ = 0;
};

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_OPTIMIZER_GROUPS_H_
