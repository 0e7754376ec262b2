// Small training runs on any mesh, and what is left of them: reports, weights and gradients as
// whole tensors.
#ifndef CKPT_TESTS_TRAINER_STEP_TRAINED_RUN_H_
#define CKPT_TESTS_TRAINER_STEP_TRAINED_RUN_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/step/rank_trainer.h"
#include "trainer/step/train_config.h"

namespace ckpt::testing {

// A mixture of experts with a dense first layer, sequence auxiliary loss and grouped queries; every
// size but the number of experts is odd, so that shards are uneven.
trainer::ModelConfig SmallMoe();
// The same with latent attention, sigmoid scores in groups, an expert bias and a shared expert.
trainer::ModelConfig SmallDeepSeek();

// Eight ranks in two instances that hold every second expert; with the optimizer state sharded over
// the instances, too.
inline constexpr trainer::MeshConfig kHybrid = {
    .world_size = 8, .num_instances = 2, .expert_parallel = 2};
inline constexpr trainer::MeshConfig kHybridOuter = {.world_size = 8,
                                                     .num_instances = 2,
                                                     .expert_parallel = 2,
                                                     .outer = trainer::OuterSharding::kOptim};

// Of `model` on one rank: a global batch of `sequences`, one sequence a micro-batch.
trainer::TrainConfig SmallRun(const trainer::ModelConfig& model, std::int64_t sequences);
// The same run on a mesh.
inline trainer::TrainConfig OnMesh(trainer::TrainConfig config, const trainer::MeshConfig& mesh) {
  config.mesh = mesh;
  return config;
}

struct RunOptions {
  int steps = 2;
  trainer::HostDeviceOptions device = {};
  // Makes what a rank computes with, in place of the CPU with those options.
  std::function<Result<trainer::Backend>(trainer::HostGroup& world)> make_backend = {};
  // Puts something around a rank's device.
  std::function<std::unique_ptr<trainer::Device>(std::unique_ptr<trainer::Device>)> wrap_device =
      {};
  bool is_strict = false;  // the program ends if a step does what a StrictDevice refuses
  // Looks at every rank behind the last step; calls come from the ranks' threads.
  std::function<void(trainer::RankTrainer&, trainer::Device&)> inspect = {};
};

// Tensors by name, under their global names and sizes.
using WholeTensors = std::map<std::string, std::vector<double>>;

struct TrainedRun {
  std::vector<trainer::StepReport> reports;  // of rank 0
  WholeTensors first_gradients;              // of the first step, after clipping
  WholeTensors weights;                      // main weights after the last step
  WholeTensors buffers;                      // expert biases
};

// One rank's part, from any launcher: trains on `world`'s ranks, gathers the pieces of all ranks
// into whole tensors and checks that pieces held by several ranks agree bit for bit (kValueMismatch
// names the tensor).
Result<TrainedRun> TrainOnRank(const trainer::TrainConfig& config, trainer::HostGroup& world,
                               const RunOptions& options);
// On threads, or on ranks that are processes if there are as many.
Result<TrainedRun> Train(const trainer::TrainConfig& config, const RunOptions& options);

// How far two runs of the same training may be apart: values of reports relative to themselves,
// elements relative to the largest magnitude of their tensor.
struct Closeness {
  double reports = 0;
  double gradients = 0;
  double weights = 0;
};
// Of two steps that compute in bfloat16 and send gradients in it. One rank adds what each sequence
// gives to a gradient in float32; on a mesh every rank's part is rounded first, by 2^-9 of itself,
// and parts that cancel are larger than their sum. The second step may choose another expert for a
// token, which changes the auxiliary loss and moves that expert's weights.
inline constexpr Closeness kBfloat16Bounds = {
    .reports = 1.6e-2, .gradients = 1.6e-2, .weights = 5e-2};
void ExpectSameTraining(const TrainedRun& run, const TrainedRun& expected, const Closeness& bounds);

// Largest |a - b| of any element over the largest magnitude of its tensor, over all tensors;
// infinite if names or sizes differ.
double RelativeDifference(const WholeTensors& a, const WholeTensors& b);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_STEP_TRAINED_RUN_H_
