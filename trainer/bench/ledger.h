// Where the time of a step goes on a device.
#ifndef CKPT_TRAINER_BENCH_LEDGER_H_
#define CKPT_TRAINER_BENCH_LEDGER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/device/work_record.h"

namespace ckpt::train {

struct LedgerLine {
  std::string kernel;  // ShortKernelName
  double calls = 0;    // a step
  double busy_ms = 0;  // a step
  double share = 0;    // of the step's time on the device
};

struct Ledger {
  std::vector<LedgerLine> lines;  // the longest first
  double step_ms = 0;             // from the first work to the end of the last, a step
  double busy_ms = 0;             // in which any work ran, a step
  [[nodiscard]] double gaps_ms() const { return step_ms - busy_ms; }
};

// The name without its namespaces, template arguments and parameters.
[[nodiscard]] std::string ShortKernelName(std::string_view name);

// `work` is that of `steps` steps, 1 or more.
[[nodiscard]] Ledger MakeLedger(std::span<const trainer::DeviceWork> work, std::int64_t steps);

[[nodiscard]] std::string LedgerText(const Ledger& ledger);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_BENCH_LEDGER_H_
