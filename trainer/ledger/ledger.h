// Where the time of a step goes on a device, and how near its parts come to what the device can do.
#ifndef CKPT_TRAINER_LEDGER_LEDGER_H_
#define CKPT_TRAINER_LEDGER_LEDGER_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json_writer.h"
#include "trainer/device/work_record.h"
#include "trainer/ops/op_work.h"

namespace ckpt::trainer {

// What a device can do in a second; 0: not known.
struct Roofline {
  double flops = 0;
  double bytes = 0;  // that a long pass over memory reads and writes

  // The least time of the work, in seconds; 0 where one of the two is not known.
  [[nodiscard]] double SecondsOf(const OpWork& work) const;
};

// Figures are those of a step, the mean of all.
struct LedgerLine {
  struct Kernel {
    std::string name;  // ShortKernelName
    double calls = 0;
    double busy_ms = 0;
  };

  std::string name;  // of an operation, or of a kernel that belongs to none
  bool is_operation = false;
  std::array<std::int64_t, 3> product{};  // see OpWork
  std::int64_t num_products = 0;
  double calls = 0;
  double busy_ms = 0;
  double share = 0;    // of the step's time on the device
  double gaps_ms = 0;  // before this work, in which nothing ran
  double bytes = 0;    // of operations, as is what follows
  double flops = 0;
  double least_ms = 0;          // of the roofline; 0: not known
  std::vector<Kernel> kernels;  // the longest first; none where operations are recorded as a whole

  // The least time divided by the time.
  [[nodiscard]] double roofline() const { return busy_ms > 0 ? least_ms / busy_ms : 0; }
};

struct Ledger {
  std::vector<LedgerLine> lines;  // the longest first
  double step_ms = 0;             // from the first work to the end of the last, a step
  double busy_ms = 0;             // in which any work ran, a step
  [[nodiscard]] double gaps_ms() const { return step_ms - busy_ms; }
};

// The name without its namespaces, template arguments and parameters.
[[nodiscard]] std::string ShortKernelName(std::string_view name);

// `work` is that of `steps` steps, 1 or more, and `operations` those that it belongs to. A line has
// the calls of one operation with one shape of product.
[[nodiscard]] Ledger MakeLedger(std::span<const DeviceWork> work,
                                std::span<const OpWork> operations, std::int64_t steps,
                                const Roofline& roofline);

[[nodiscard]] std::string LedgerText(const Ledger& ledger);
// Writes an object.
void WriteLedger(const Ledger& ledger, JsonWriter& json);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_LEDGER_LEDGER_H_
