// Settings of a training run as the `args` of its checkpoint.
#ifndef CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_
#define CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_

#include <cstdint>
#include <string_view>

#include "converters/config/translation_table.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// Arguments of ours, which Megatron passes over. `ckptkit_<setting>` is a setting that Megatron's
// arguments do not say, or say otherwise; None: the run had none.
inline constexpr std::string_view kOwnPrefix = "ckptkit_";
// What kOwnPrefix means: in every checkpoint that RunArgs wrote.
inline constexpr std::string_view kArgsVersion = "ckptkit_args_version";
inline constexpr std::int64_t kArgsVersionNow = 1;
// Facts about the state, no settings: a digest of all of it (text), and the loss of the batch that
// comes next (number).
inline constexpr std::string_view kStateDigest = "ckptkit_state_digest";
inline constexpr std::string_view kNextLoss = "ckptkit_next_loss";

struct RunCounters {
  std::int64_t iteration = 0;               // finished ones
  std::int64_t consumed_train_samples = 0;  // of the training data
};

// The `args` that tell Megatron of a run: what megatron_to_model.table makes of its settings, which
// are complete (a null is an absent one), and of its counters; plain values, null for None. RunSettings gives
// the settings back, but those of how ranks share the work. `more` says what settings do not:
// transformer_impl, moe_grouped_gemm, kStateDigest; it wins over the table.
//
// Errors: kBadMetadata (a setting is missing or of the wrong kind).
Result<NamedValues> RunArgs(const layout::Configuration& settings, const RunCounters& counters,
                            const NamedValues& more = {});

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_
