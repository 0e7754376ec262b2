// Describes a run before it starts: mesh, memory and communication, by computation only.
#ifndef CKPT_TRAINER_EXPLAIN_EXPLANATION_H_
#define CKPT_TRAINER_EXPLAIN_EXPLANATION_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "trainer/explain/comm_schedule.h"
#include "trainer/explain/forecast.h"
#include "trainer/mesh/topology.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// A flat array that consecutive units have in the same form.
struct FlatArrays {
  std::string units;  // "embedding", "decoder.layers.3 to .60"
  std::int64_t num_units = 0;
  trainer::ParamClass param_class = trainer::ParamClass::kDense;
  bool trainable = true;
  std::int64_t num_params = 0;  // per unit
  std::int64_t elems = 0;       // with padding
  std::int64_t padding_elems = 0;
  std::int64_t num_shards = 0;    // into how many shards the layout can be cut
  std::int64_t weight_elems = 0;  // elements that a rank holds
  std::int64_t gradient_elems = 0;
  std::int64_t main_elems = 0;

  [[nodiscard]] double padding_percent() const {
    return 100.0 * static_cast<double>(padding_elems) / static_cast<double>(elems);
  }
};

// Every rank holds the same number of bytes, except for sums of rows: shards are equal, and every
// rank has the same number of experts.
struct Explanation {
  trainer::TrainConfig config;
  trainer::Topology rank;  // the rank that is described
  trainer::ShardPlan plan;
  trainer::PlannedBytes bytes;
  std::uint64_t host_bytes = 0;        // of optimizer state in the host's memory
  std::uint64_t activation_bytes = 0;  // at the peak, if all experts are chosen equally often
  // One sum per row of the gradients, tokens and their losses, tables of positions, counts of
  // experts.
  std::uint64_t other_bytes = 0;
  std::vector<FlatArrays> arrays;
  CommSchedule schedule;
  std::optional<ClusterForecast> forecast = {};  // if a cluster was named
  // If the run saves: bytes of the host's memory for the copies of the state, by rank.
  std::vector<std::uint64_t> copy_bytes = {};

  // The peak of a training step: all of this is allocated for the whole step.
  [[nodiscard]] std::uint64_t total_bytes() const {
    return bytes.total() + activation_bytes + other_bytes;
  }
  [[nodiscard]] std::uint64_t copy_bytes_here() const {
    return copy_bytes.empty() ? 0 : copy_bytes[static_cast<std::size_t>(rank.rank())];
  }
  [[nodiscard]] std::uint64_t copy_bytes_of_all() const {
    return std::accumulate(copy_bytes.begin(), copy_bytes.end(), std::uint64_t{0});
  }
};

// REQUIRES: ValidateTrainConfig accepts `config`. Errors: kUsage (the mesh has no rank `rank`;
// slots and ends need more than max_unsharded_bytes: names the bytes and what would fit).
Result<Explanation> Explain(const trainer::TrainConfig& config, int rank);

[[nodiscard]] std::string ExplanationJson(const Explanation& explanation);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_EXPLANATION_H_
