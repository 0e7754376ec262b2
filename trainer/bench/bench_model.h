// The models of the benchmark, with weights and tokens that another trainer can make bit for bit:
// so both start from the same loss.
#ifndef CKPT_TRAINER_BENCH_BENCH_MODEL_H_
#define CKPT_TRAINER_BENCH_BENCH_MODEL_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/status.h"
#include "core/layout/value.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// d1, d2 (Qwen3 0.6B and 1.7B), m1, m2, m3 (mixtures of experts), tiny, tiny-moe.
[[nodiscard]] std::vector<std::string_view> BenchModelNames();

// The settings of model and optimizer; nothing if there is no such model. Not set: sizes of
// batches, parallelism, precision.
[[nodiscard]] std::optional<layout::Configuration> BenchSettings(std::string_view model);

// Rows [row_begin, row_begin + rows) of a parameter: matrices uniform with standard deviation 0.02,
// norms 1. The streams bear the names that a plain PyTorch model gives its tensors, in its order of
// rows: `blocks.3.qkv.weight` has all queries, then all keys, then all values.
//
// Errors: kUnsupported (the other model has no such parameter).
Status FillBenchWeights(const trainer::ModelConfig& config, std::uint32_t seed,
                        const trainer::ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                        std::span<float> values);

// The batch of rank `rank` in step `step`, counted from 0. Row r of the batch of all ranks is row
// step · (rows of all ranks) + r of one long table of seq + 1 columns: the first `seq` are tokens,
// the last `seq` are labels.
struct BenchTokens {
  std::uint32_t seed = 1234;
  std::int64_t vocab_size = 0;
  std::int64_t seq = 0;
  std::int64_t rows_of_rank = 0;
  int num_ranks = 1;

  [[nodiscard]] trainer::HostMicroBatch At(std::int64_t step, int rank) const;
};

// Experts [tokens, topk] of every layer, rank and step, by which every expert gets the same number
// of tokens: row r of a table of random numbers, `experts` wide, names the experts of the tokens
// from r · experts / topk on, in the order of its numbers.
//
// Errors: kUsage (topk does not divide the experts, or the table's rows do not divide the tokens).
Result<std::vector<std::int32_t>> BalancedExperts(std::uint32_t seed, std::int64_t tokens,
                                                  std::int64_t experts, std::int64_t topk);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_BENCH_BENCH_MODEL_H_
