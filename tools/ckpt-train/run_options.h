// What the command line says of a run.
#ifndef CKPT_TOOLS_CKPT_TRAIN_RUN_OPTIONS_H_
#define CKPT_TOOLS_CKPT_TRAIN_RUN_OPTIONS_H_

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "trainer/backend/backend.h"

namespace ckpt::train {

struct RunOptions {
  std::string config;            // a YAML file; empty: none
  std::vector<std::string> set;  // "KEY=VALUE"
  // Short for --set of the same names; empty: not given.
  std::string init;
  std::string load;
  std::string save;
  std::string metrics;
  int ranks = 0;                             // 0: as many as were launched
  std::string device{trainer::kAnyBackend};  // or the name of a backend
};

// The settings that were given: those of the file, and over them those of the command line.
//
// Errors: kUsage (a name twice in the file or twice on the command line, no YAML, no KEY=VALUE),
// those of reading the file.
Result<layout::Configuration> GivenSettings(Storage& storage, const RunOptions& options);

// How many ranks the options ask for, or were launched.
[[nodiscard]] int NumRanks(const RunOptions& options);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_RUN_OPTIONS_H_
