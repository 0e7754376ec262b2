// What Megatron-LM stores in an `fsdp_dtensor` checkpoint beside weights and moments: its whole tree,
// so that a run of its own goes on from it.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_RUN_STATE_H_
#define CKPT_FORMATS_FSDP_DTENSOR_RUN_STATE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checkpoint/memory_source.h"
#include "core/layout/value.h"
#include "formats/dcp/metadata.h"
#include "formats/dcp/writer.h"

namespace ckpt::fsdp_dtensor {

// Parameters that the optimizer treats alike: `optimizer.param_to_group_meta.<name>.*`.
struct ParamGroup {
  bool is_expert_parallel = false;
  double wd_mult = 1;
  double lr_mult = 1;
  double max_lr = 0;
  double min_lr = 0;
  double lr = 0;  // of the next update
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // wd_mult applied
  std::int64_t step = 0;    // finished updates
};

// `opt_param_scheduler.*`; everything that counts, counts samples.
struct SchedulerState {
  double max_lr = 0;
  double min_lr = 0;
  std::int64_t lr_warmup_steps = 0;
  std::int64_t num_steps = 0;
  std::string lr_decay_style = "constant";
  std::int64_t lr_decay_steps = 0;
  double start_wd = 0;
  double end_wd = 0;
  std::string wd_incr_style = "constant";
  std::int64_t wd_incr_steps = 0;
};

struct RunState {
  std::vector<std::pair<std::string, layout::Value>> args = {};  // an argparse.Namespace
  std::int64_t iteration = 0;                                    // finished ones
  double num_floating_point_operations = 0;                      // so far
  SchedulerState scheduler = {};
  std::vector<ParamGroup> groups = {};
  // Every trained parameter by its live name without wrappers, fc1 in one piece
  // ("decoder.layers.0.mlp.linear_fc1.weight"), and its position in `groups`.
  std::vector<std::pair<std::string, std::size_t>> group_of = {};
  std::uint64_t seed = 0;  // of the random states, which Megatron asks for
  int tensor_ranks = 1;    // each of which asks for states of its own
};

// Keys of a weight and of what the optimizer keeps for it; `name` is the tensor's in this format
// without wrappers ("decoder.layers.0.mlp.linear_fc1.weight_w").
[[nodiscard]] std::string WeightKey(std::string_view name);
[[nodiscard]] std::string MomentKey(std::string_view name, std::string_view moment);

// Every entry that is no tensor, in the types that Megatron's own have.
[[nodiscard]] std::vector<dcp::WriterObject> RunObjects(const RunState& state);
// The entries that are tensors and belong to no parameter: states of random generators, each valid
// for its library and a function of the seed.
[[nodiscard]] std::vector<MemoryTensor> RunTensors(const RunState& state);
// Where a flat key stands in Megatron's nested state dict.
[[nodiscard]] std::vector<dcp::PathStep> RunPath(const std::string& key);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_RUN_STATE_H_
