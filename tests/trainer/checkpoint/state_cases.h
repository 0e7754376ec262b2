// Models × meshes whose states are staged.
#ifndef CKPT_TESTS_TRAINER_CHECKPOINT_STATE_CASES_H_
#define CKPT_TESTS_TRAINER_CHECKPOINT_STATE_CASES_H_

#include <string>
#include <vector>

#include "tests/trainer/step/mesh_cases.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/step/train_config.h"

namespace ckpt::testing {

struct StateCase {
  std::string name;
  trainer::TrainConfig config;
};

// Without experts, tied, with a frozen matrix; and with latent attention, experts and their bias.
inline trainer::ModelConfig SmallDense() {
  trainer::ModelConfig model = SmallMoe();
  model.moe.reset();
  model.is_moe_layer = {false, false};
  model.tied_embeddings = true;
  return model;
}

// Both models on every mesh, with every number of expert-parallel ranks that fits.
inline std::vector<StateCase> AllStateCases() {
  std::vector<StateCase> cases;
  for (const MeshCase& mesh : AllMeshes()) {
    trainer::TrainConfig dense = OnMesh(SmallRun(SmallDense(), mesh.ranks), mesh, 1);
    dense.frozen = {"decoder.layers.0.mlp.*"};
    cases.push_back({"dense, " + NameOf(mesh), dense});
    for (const int experts : {1, 2, 4}) {
      const trainer::TrainConfig config =
          OnMesh(SmallRun(SmallDeepSeek(), mesh.ranks), mesh, experts);
      if (!trainer::ValidateMesh(config.mesh, config.model.moe->num_experts).ok()) continue;
      cases.push_back({"experts over " + std::to_string(experts) + ", " + NameOf(mesh), config});
    }
  }
  return cases;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_CHECKPOINT_STATE_CASES_H_
