// What each rank of a run reads of a checkpoint, and the memory it takes, before anything is read.
#ifndef CKPT_TRAINER_EXPLAIN_LOAD_PLAN_H_
#define CKPT_TRAINER_EXPLAIN_LOAD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// Of one rank.
struct RankLoad {
  std::uint64_t bytes = 0;         // that it reads from files
  std::uint64_t needed_bytes = 0;  // of the elements that it keeps, as they are stored
  std::uint64_t reads = 0;
  std::uint64_t files = 0;
  // What its weights, gradients, optimizer and slots take, and what the reading takes besides. No
  // activations.
  std::uint64_t peak_memory = 0;

  // 1: it reads nothing that it does not keep.
  [[nodiscard]] double amplification() const {
    return needed_bytes == 0 ? 1.0 : static_cast<double>(bytes) / static_cast<double>(needed_bytes);
  }
};

struct LoadPlanOptions {
  int threads = 1;
  // Whether the trainer computes the model, `config.model`. Otherwise what the layout tables say of
  // its tensors is enough: a layer, and each tensor outside of layers, is gathered by itself, and
  // experts have their ranks. Tensors that are taken as they are stored are divided one by one.
  bool is_computed = true;
  trainer::MeshWords words = {};  // of errors
  std::stop_token stop = {};
};

// By rank. Every rank loads the rows that ParamStore owns there, as WeightReader reads them: the
// same shards, pieces, nests and reads, counted instead of made. Chunks count as stored in C order,
// and a chunk that takes less than its elements as read whole. Headers of stored items and
// the blocks around a read that a manifest is compared with are not counted.
//
// `weights` is what LoadState reads first, `moments` are what the optimizer keeps, if any. A
// parameter that these keep nothing for is frozen: its weight is read, and no memory for training
// it is counted.
//
// Errors: those of ValidateMesh and ViewModel; kUsage (experts are to be divided, and no table says
// which tensors they are); kMissing and kShapeMismatch (a parameter of the model is not in the
// checkpoint, or has another shape, or only some of its moments are there), kUnsupported (the model
// lacks a tensor of the checkpoint), kResource (a tensor too large for so many ranks), kCoverage,
// kCancelled.
// Cost: that of every piece of every rank that differs from the others; reads nothing.
Result<std::vector<RankLoad>> PlanLoad(const ModelSource& weights,
                                       std::span<const ModelSource> moments,
                                       const trainer::TrainConfig& config,
                                       const LoadPlanOptions& options);

// How many parameters are frozen in the checkpoint: `moments` have nothing for them, and something
// for others. Buffers of `model` are not parameters. Errors: those of ViewModel.
Result<std::size_t> CountFrozen(const ModelSource& weights, std::span<const ModelSource> moments,
                                const trainer::ModelConfig& model);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_LOAD_PLAN_H_
