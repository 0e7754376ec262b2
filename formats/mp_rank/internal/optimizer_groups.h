// The member `optimizer` of a rank's file: groups of parameters, and what an optimizer that is not
// distributed keeps for each.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_GROUPS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_GROUPS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/json/json_reader.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/parameters.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::mp_rank {

inline constexpr std::string_view kOptimizerMember = "optimizer";

// The member as JSON, without its tensors. Errors: those of TorchSaveSource::OutlineMember.
Result<JsonDocument> ReadOptimizerMember(const torch_save::TorchSaveSource& file);

// The states of single parameters. Errors: those of RankParts; kUnsupported (other optimizers than
// these arguments ask for, groups that do not say which parameters are theirs, more or fewer
// parameters than the model has, parameters of other shapes, something that neither Adam nor SGD
// keeps), kBadMetadata.
Result<std::vector<ParameterState>> ReadGroupedStates(const torch_save::TorchSaveSource& file,
                                                      const JsonCursor& member,
                                                      std::span<const Parameter> parameters,
                                                      const Arguments& arguments);

// Adds how often parameters were updated, as groups and parameters count it. Errors: those of
// ReadStoredNumber, kBadMetadata.
Status CollectSteps(const torch_save::TorchSaveSource& file, const JsonCursor& member,
                    std::set<double>& steps);

// The groups' settings as Megatron-Core keeps them in its common state: `{"param_groups": […]}`, or
// several optimizers by number. `step`: how often parameters were updated, if that is known.
// Errors: kBadMetadata.
Result<std::string> RenderGroups(const JsonCursor& member, std::optional<std::int64_t> step);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_OPTIMIZER_GROUPS_H_
