// Whether ranks divide the experts of a layer or the weights of each, where the run leaves it open.
#ifndef CKPT_TRAINER_STEP_EXPERT_CHOICE_H_
#define CKPT_TRAINER_STEP_EXPERT_CHOICE_H_

#include <cstdint>
#include <string>

#include "trainer/mesh/topology.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/model_config.h"

namespace ckpt::trainer {

// What `expert_model_parallel_size: auto` decided. Times are multiples of what the products of a
// layer's experts take.
struct ExpertChoice {
  int expert_parallel = 1;
  int candidate = 1;         // ranks that could divide the experts; 1: none
  std::int64_t tokens = 0;   // of a rank's micro-batch
  double gather_time = 0;    // to gather and reduce the weights of all experts
  double exchange_time = 0;  // to send tokens to `candidate` ranks and back
  double hidden_tokens = 0;  // from so many tokens on, a layer's computing hides the gathers

  // "experts stay whole: ...", one sentence for people.
  [[nodiscard]] std::string Reason() const;
};

// Weights can be gathered ahead, and tokens cannot. So experts are divided only where what the
// layer's computing does not hide of the gathers takes longer than sending the tokens. On H200s
// with NVLink in bfloat16, for E experts of width f of which a token meets K, T tokens a rank, and
// a dispatcher that sends a token R times (RowsPerToken):
//
//   sending tokens    700 · (R / K) / f
//   gathers           1500 · E / (K · T), hidden from T = 1000 · E / K on
//
// The candidate is the largest divisor of both the experts and an instance's ranks, up to the eight
// GPUs of a host. REQUIRES: the instances divide the ranks.
ExpertChoice ChooseExpertParallel(const ModelConfig& model, const MeshConfig& mesh,
                                  Dispatcher dispatcher, std::int64_t tokens);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_EXPERT_CHOICE_H_
