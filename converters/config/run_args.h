// Settings of a training run as the `args` of its checkpoint.
#ifndef CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_
#define CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_

#include <cstdint>

#include "converters/config/own_args.h"
#include "converters/config/translation_table.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

struct RunCounters {
  std::int64_t iteration = 0;               // finished ones
  std::int64_t consumed_train_samples = 0;  // of the training data
};

// The `args` that describe a run to Megatron: what megatron_to_run.table makes of its settings,
// which are complete (a null is an absent one), and of its counters; plain values, null for None.
// RunSettings gives the settings back, except those of how ranks share the work. `more` holds what
// is no setting: transformer_impl, moe_grouped_gemm, OwnFacts (own_args.h); it replaces what the
// table says.
//
// Errors: kBadMetadata (a setting is missing or of the wrong kind).
Result<NamedValues> RunArgs(const layout::Configuration& settings, const RunCounters& counters,
                            const NamedValues& more = {});

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_RUN_ARGS_H_
