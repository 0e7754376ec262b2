#include "converters/verbs/optimizer_groups.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/internal/offered_tensors.h"

namespace ckpt {
namespace {

constexpr std::size_t kMostDiffering = 10;

}  // namespace

void OtherParameters::Add(Status difference) {
  if (++count_ <= kMostDiffering) named_.Add(std::move(difference));
}

Status OtherParameters::Finish() && {
  if (count_ > kMostDiffering) {
    named_.Add(Error(ErrorKind::kUnsupported,
                     fmt::format("{} more parameters differ so", count_ - kMostDiffering)));
  }
  return std::move(named_);
}

const NamedGroups::value_type* FindNamed(const NamedGroups& named, const std::string& tensor) {
  auto found = named.find(tensor);
  if (found == named.end()) found = named.find(tensor.substr(0, tensor.rfind('_')));
  return found == named.end() ? nullptr : &*found;
}

OptimizerGroups::OptimizerGroups(const TrainingRun& run, EqualGroups equal)
    : are_all_named_(!run.group_of.empty() && !run.others_by_decay) {
  std::vector<std::size_t> position_of;  // parallel to the run's groups
  for (const ParamGroup& group : run.groups) {
    const auto known = std::ranges::find_if(groups_, [&](const ParamGroup& other) {
      const bool stays = are_all_named_ && equal == EqualGroups::kApart && group == other;
      return !stays && AreOneWithoutExperts(group, other);
    });
    position_of.push_back(static_cast<std::size_t>(known - groups_.begin()));
    if (known == groups_.end()) groups_.push_back(group);
  }
  for (const auto& [name, group] : run.group_of) {
    named_[WithoutWrappers(name)] = position_of.at(group);
  }
  for (const auto& [name, group] : run.frozen_of) {
    frozen_names_[WithoutWrappers(name)] = position_of.at(group);
  }
}

Result<OptimizerGroups> OptimizerGroups::Of(const TrainingState& state, EqualGroups equal) {
  OptimizerGroups groups(state.run, equal);
  const layout::SourceMatch& weights = state.weights.match;
  for (std::size_t t = 0; t < weights.positions.size(); ++t) {
    const auto frozen = groups.frozen_names_.find(weights.layout.tensors[t].name);
    if (frozen == groups.frozen_names_.end()) continue;
    if (weights.positions[t] == layout::SourceMatch::kAbsent) continue;
    groups.frozen_[weights.positions[t]] = frozen->second;
  }
  if (!groups.named_.empty()) {
    const layout::SourceMatch& match = state.updated.match;
    for (std::size_t t = 0; t < match.positions.size(); ++t) {
      if (match.positions[t] == layout::SourceMatch::kAbsent) continue;
      groups.name_at_[match.positions[t]] = match.layout.tensors[t].name;
    }
  }
  if (!groups.are_all_named_) CKPT_RETURN_IF_ERROR(groups.TellApartByDecay());
  return groups;
}

Result<OptimizerGroups> OptimizerGroups::KnownToReaders(TrainingRun run, const RunFormat& format) {
  if (format.forget_groups != nullptr) format.forget_groups(run);
  OptimizerGroups groups(run, EqualGroups::kOne);
  if (!groups.are_all_named_) CKPT_RETURN_IF_ERROR(groups.TellApartByDecay());
  return groups;
}

Status OptimizerGroups::TellApartByDecay() {
  // Others are in the same group as some that are named, but not beside those of another rate.
  std::set<std::size_t> told;
  for (const auto& [name, group] : named_) {
    if (groups_[group].has_own_rate()) told.insert(group);
  }
  std::vector<std::size_t> of_matrices;
  std::vector<std::size_t> of_vectors;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!told.contains(g)) (groups_[g].wd_mult != 0 ? of_matrices : of_vectors).push_back(g);
  }
  if (of_matrices.empty()) of_matrices = of_vectors;
  if (of_vectors.empty()) of_vectors = of_matrices;
  if (of_matrices.size() != 1 || of_vectors.size() != 1) {
    return Error(ErrorKind::kUnsupported,
                 "the checkpoint does not say which parameters belong to which of its groups")
        .Expected("one group that decays and one that does not, at most")
        .Actual(fmt::format("{} groups", groups_.size()))
        .Hint(std::string(kTakeWeightsAlone));
  }
  of_matrices_ = of_matrices.front();
  of_vectors_ = of_vectors.front();
  return OkStatus();
}

std::optional<std::size_t> OptimizerGroups::Named(const std::string& name) const {
  const NamedGroups::value_type* const found = FindNamed(named_, name);
  return found == nullptr ? std::nullopt : std::optional(found->second);
}

Result<std::optional<std::size_t>> OptimizerGroups::Find(const TargetTensor& tensor,
                                                         const TensorRecipe& updated) const {
  std::optional<std::size_t> group;
  if (!name_at_.empty()) {
    for (const layout::Nest& nest : updated.nests) {
      if (nest.is_zero_fill()) continue;
      const std::string& from = name_at_.at(nest.source);
      const std::optional<std::size_t> own = Named(from);
      if (!own && !are_all_named_) continue;
      if (!own) {
        return Error(ErrorKind::kMissing, "no group of the optimizer has a trained weight")
            .Tensor(from);
      }
      if (group && *group != *own) {
        return Error(ErrorKind::kUnsupported,
                     "a tensor of the target is made of weights of several groups")
            .Tensor(tensor.key);
      }
      group = own;
    }
  }
  if (group || are_all_named_) return group;
  return std::optional(ByDecay(tensor.key, tensor.shape.size()));
}

std::optional<std::size_t> OptimizerGroups::FindFrozen(const TensorRecipe& weight) const {
  std::set<std::size_t> found;
  for (const layout::Nest& nest : weight.nests) {
    if (nest.is_zero_fill()) continue;
    const auto own = frozen_.find(nest.source);
    if (own == frozen_.end()) return std::nullopt;
    found.insert(own->second);
  }
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

std::size_t OptimizerGroups::Find(const std::string& name, std::size_t num_dims) const {
  return Named(name).value_or(ByDecay(name, num_dims));
}

std::size_t OptimizerGroups::ByDecay(std::string_view name, std::size_t num_dims) const {
  return num_dims < 2 || name.ends_with("bias") ? of_vectors_ : of_matrices_;
}

}  // namespace ckpt
