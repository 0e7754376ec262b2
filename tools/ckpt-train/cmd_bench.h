// ckpt-train bench: times training steps of a model with weights and tokens that need no files.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_BENCH_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_BENCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct BenchOptions {
  cli::CommonOptions common;
  RunOptions run;
  // One of BenchModelNames, or a file: config.json of a Hugging Face repository, or settings as
  // YAML.
  std::string model = "d1";
  // Absent: what the file says, or else 16384 tokens of a step in sequences of 4096.
  std::optional<std::int64_t> tokens_per_rank = {};
  std::optional<std::int64_t> seq = {};
  std::int64_t warmup = 10;
  std::int64_t steps = 30;
  double peak_tflops = 0;  // 0: what the device says; if it does not, no MFU is printed
  double peak_tbytes = 0;  // likewise, of its memory; both give the shares of the roofline
  bool balanced = false;   // every expert gets the same number of tokens (BalancedExperts)
  bool ledger = false;     // record kLedgerSteps steps more, on rank 0
  // Time kExposedSteps steps more, without gathers and reductions, where there are several ranks.
  bool exposed = false;
  std::string time_products;  // a file that the chosen algorithms of products go to; empty: none
  bool print_config = false;
};

// Errors: kUsage (no such model; tokens that `seq` does not divide; `exposed` with one rank;
// `time_products` with several, or with product_algorithms; `balanced` without experts, or with a
// router that is limited to groups or has a bias), kAlreadyExists (the file of `time_products`),
// those of BalancedExperts, of reading the model's file, ResolveRun and TimeSteps.
Result<cli::ExitCode> RunBench(const BenchOptions& options, Storage& storage,
                               cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_BENCH_H_
