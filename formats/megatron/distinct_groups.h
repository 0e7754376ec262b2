// Groups of a run whose checkpoint stores the settings of every parameter, and no groups.
#ifndef CKPT_FORMATS_MEGATRON_DISTINCT_GROUPS_H_
#define CKPT_FORMATS_MEGATRON_DISTINCT_GROUPS_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "core/training/training_run.h"

namespace ckpt::megatron {

// Parameters of equal settings are one group. A file may give each of its parameters other ones, so
// groups are found by a hash.
class DistinctGroups {
 public:
  // The position of the group that has these settings. It is a new one behind the others if none
  // has them.
  std::size_t Add(const ParamGroup& settings);

  // By position.
  [[nodiscard]] const std::vector<ParamGroup>& groups() const { return groups_; }

 private:
  struct Hash {
    std::size_t operator()(const ParamGroup& settings) const;
  };

  std::vector<ParamGroup> groups_;
  std::unordered_map<ParamGroup, std::size_t, Hash> positions_;
};

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_DISTINCT_GROUPS_H_
