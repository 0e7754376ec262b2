// How long a GPU computes in a step, from measured rates of its kernels.
#ifndef CKPT_TRAINER_EXPLAIN_INTERNAL_KERNEL_TIMES_H_
#define CKPT_TRAINER_EXPLAIN_INTERNAL_KERNEL_TIMES_H_

#include <cstdint>

#include "trainer/explain/cluster_rates.h"
#include "trainer/explain/internal/link_times.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

// What a layer computes for a micro-batch, in milliseconds.
struct LayerTimes {
  double forward = 0;
  double backward = 0;
};

// Of one rank, in milliseconds.
class KernelTimes {
 public:
  // Both must outlive this.
  KernelTimes(const trainer::TrainConfig& config, const Cluster& cluster)
      : config_(config),
        model_(config.model),
        gpu_(cluster.gpu),
        tokens_(static_cast<double>(config.micro_batch_size * config.seq_length)) {}

  [[nodiscard]] LayerTimes Layer(const trainer::UnitSpec& unit, std::int64_t layer) const;
  // Output layer and loss.
  [[nodiscard]] double HeadMs() const;
  // The embedding, forward and backward alike.
  [[nodiscard]] double EmbeddingMs() const;
  // Norm of the gradients, and AdamW: weight and moments in and out, the gradient in, the compute
  // weight out. Where updates exchange weights, memory also takes those that the other rank writes.
  [[nodiscard]] double UpdateMs(const trainer::ShardPlan& plan, const Placements& placed) const;
  // Of the rows that a rank sends to experts in one direction.
  [[nodiscard]] double ExchangedBytes() const;
  [[nodiscard]] bool IsMoe(std::int64_t layer) const;

 private:
  [[nodiscard]] double Width() const;
  // Seconds for a number of elements of each token.
  [[nodiscard]] double Pass(double elems, const Rate& rate) const;
  static double DenseWeights(const trainer::UnitSpec& unit);
  // Of a token's inner activations, of all experts that it meets.
  [[nodiscard]] double ActivationWidth(std::int64_t layer) const;
  // Rows that products of experts compute for a row that is there. An expert gets any number of
  // rows, so its last tile is half empty on average, and it has one.
  [[nodiscard]] double ComputedShare(const Rate& tile_rows) const;
  // A rank computes as many rows as its tokens have, whoever's they are.
  template <typename Add>
  void AddExperts(const trainer::UnitSpec& unit, const Add& add) const;

  const trainer::TrainConfig& config_;
  const trainer::ModelConfig& model_;
  const GpuRates& gpu_;
  const double tokens_;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_EXPLAIN_INTERNAL_KERNEL_TIMES_H_
