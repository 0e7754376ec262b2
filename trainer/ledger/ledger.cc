#include "trainer/ledger/ledger.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

constexpr double kNanosecondsPerMs = 1e6;

// What the calls of a line have in common.
using LineKey = std::tuple<bool, std::string, std::array<std::int64_t, 3>, std::int64_t>;

LineKey KeyOf(const OpWork& operation) {
  return {true, operation.name, operation.product, operation.num_products};
}

// Adds up a ledger, in nanoseconds and calls of all steps.
class LedgerSums {
 public:
  explicit LedgerSums(std::span<const OpWork> operations) : operations_(operations) {}

  void AddOperations(const Roofline& roofline) {
    for (const OpWork& operation : operations_) {
      LedgerLine& line = LineOf(KeyOf(operation)).line;
      line.calls += 1;
      line.bytes += operation.bytes;
      line.flops += operation.flops;
      line.least_ms += roofline.SecondsOf(operation) * 1e3;
    }
  }

  void AddWork(const DeviceWork& work, std::int64_t gap_ns) {
    const double busy_ms = static_cast<double>(work.end_ns - work.begin_ns) / kNanosecondsPerMs;
    const std::string kernel = ShortKernelName(work.name);
    const bool is_operation = work.operation != DeviceWork::kNoOperation;
    Line& line = LineOf(is_operation ? KeyOf(operations_[static_cast<std::size_t>(work.operation)])
                                     : LineKey{false, kernel, {}, 0});
    line.line.busy_ms += busy_ms;
    line.line.gaps_ms += static_cast<double>(gap_ns) / kNanosecondsPerMs;
    if (!is_operation) line.line.calls += 1;
    if (!is_operation || kernel.empty()) return;
    LedgerLine::Kernel& of_kernel = line.kernels[kernel];
    of_kernel.calls += 1;
    of_kernel.busy_ms += busy_ms;
  }

  // Divides by the steps.
  std::vector<LedgerLine> Lines(std::int64_t steps, double step_ms) && {
    const double per_step = 1 / static_cast<double>(steps);
    std::vector<LedgerLine> lines;
    for (auto& [key, sums] : lines_) {
      LedgerLine& line = sums.line;
      std::tie(line.is_operation, line.name, line.product, line.num_products) = key;
      for (double* figure :
           {&line.calls, &line.busy_ms, &line.gaps_ms, &line.bytes, &line.flops, &line.least_ms}) {
        *figure *= per_step;
      }
      line.share = step_ms > 0 ? line.busy_ms / step_ms : 0;
      for (auto& [name, kernel] : sums.kernels) {
        line.kernels.push_back(
            {.name = name, .calls = kernel.calls * per_step, .busy_ms = kernel.busy_ms * per_step});
      }
      std::ranges::stable_sort(line.kernels, std::ranges::greater{}, &LedgerLine::Kernel::busy_ms);
      lines.push_back(std::move(line));
    }
    std::ranges::stable_sort(lines, std::ranges::greater{}, &LedgerLine::busy_ms);
    return lines;
  }

 private:
  struct Line {
    LedgerLine line;
    std::map<std::string, LedgerLine::Kernel> kernels;
  };

  Line& LineOf(const LineKey& key) { return lines_[key]; }

  const std::span<const OpWork> operations_;
  std::map<LineKey, Line> lines_;
};

// "GemmForward 16384 x 4096 x 1024"; "64 of" before it where there are more products than one.
std::string TitleOf(const LedgerLine& line) {
  if (line.num_products == 0) return line.name;
  const auto& [m, n, k] = line.product;
  return fmt::format("{} {}{} x {} x {}", line.name,
                     line.num_products > 1 ? fmt::format("{} of ", line.num_products) : "", m, n,
                     k);
}

std::string OrDash(bool is_known, double value, int digits) {
  return is_known ? fmt::format("{:.{}f}", value, digits) : "-";
}

}  // namespace

double Roofline::SecondsOf(const OpWork& work) const {
  if (flops <= 0 || bytes <= 0) return 0;
  return std::max(work.flops / flops, work.bytes / bytes);
}

std::string ShortKernelName(std::string_view name) {
  std::string kept;  // without what is in <…> and (…)
  int depth = 0;
  for (const char c : name) {
    if (c == '<' || c == '(') ++depth;
    if (depth == 0) kept += c;
    if (c == '>' || c == ')') --depth;
  }
  if (const std::size_t result_type = kept.rfind(' '); result_type != std::string::npos) {
    kept.erase(0, result_type + 1);
  }
  if (const std::size_t scope = kept.rfind("::"); scope != std::string::npos) {
    kept.erase(0, scope + 2);
  }
  return kept;
}

Ledger MakeLedger(std::span<const DeviceWork> work, std::span<const OpWork> operations,
                  std::int64_t steps, const Roofline& roofline) {
  CKPT_CHECK(steps > 0);
  Ledger ledger;
  if (work.empty()) return ledger;
  std::vector<DeviceWork> sorted(work.begin(), work.end());
  std::ranges::stable_sort(sorted, {}, &DeviceWork::begin_ns);
  // A kernel may be set up, and so begin, while the one before it in its queue runs,
  // but waits for it.
  std::map<std::int64_t, std::int64_t> queue_ends;
  for (DeviceWork& one : sorted) {
    if (one.queue == DeviceWork::kNoQueue) continue;
    std::int64_t& queue_end = queue_ends.try_emplace(one.queue, one.begin_ns).first->second;
    one.begin_ns = std::clamp(queue_end, one.begin_ns, one.end_ns);
    queue_end = std::max(queue_end, one.end_ns);
  }
  std::ranges::stable_sort(sorted, {}, &DeviceWork::begin_ns);
  LedgerSums sums(operations);
  sums.AddOperations(roofline);
  const std::int64_t begin = sorted.front().begin_ns;
  std::int64_t end = begin;  // of all work so far
  std::int64_t gaps = 0;
  for (const DeviceWork& one : sorted) {
    const std::int64_t gap = std::max<std::int64_t>(0, one.begin_ns - end);
    gaps += gap;
    end = std::max(end, one.end_ns);
    sums.AddWork(one, gap);
  }
  const double to_ms = 1 / (kNanosecondsPerMs * static_cast<double>(steps));
  ledger.step_ms = static_cast<double>(end - begin) * to_ms;
  ledger.busy_ms = static_cast<double>(end - begin - gaps) * to_ms;
  ledger.lines = std::move(sums).Lines(steps, ledger.step_ms);
  return ledger;
}

std::string LedgerText(const Ledger& ledger) {
  std::string text =
      fmt::format("{:>9}  {:>7}  {:>8}  {:>9}  {:>9}  {:>8}  {:>7}  operation, its kernels\n",
                  "ms a step", "share", "calls", "GB", "GFLOP", "roofline", "gaps ms");
  for (const LedgerLine& line : ledger.lines) {
    const std::string roofline =
        line.least_ms > 0 ? fmt::format("{:.1f} %", 100 * line.roofline()) : "-";
    text += fmt::format(
        "{:>9.3f}  {:>5.1f} %  {:>8.1f}  {:>9}  {:>9}  {:>8}  {:>7.3f}  {}\n", line.busy_ms,
        100 * line.share, line.calls, OrDash(line.is_operation, line.bytes / 1e9, 3),
        OrDash(line.flops > 0, line.flops / 1e9, 1), roofline, line.gaps_ms, TitleOf(line));
    for (const LedgerLine::Kernel& kernel : line.kernels) {
      text += fmt::format("{:>9.3f}  {:>7}  {:>8.1f}  {:>9}  {:>9}  {:>8}  {:>7}    {}\n",
                          kernel.busy_ms, "", kernel.calls, "", "", "", "", kernel.name);
    }
  }
  text += fmt::format(
      "{:>9.3f}  {:>5.1f} %  {:>8}  {:>9}  {:>9}  {:>8}  {:>7}  gaps: nothing ran\n",
      ledger.gaps_ms(), ledger.step_ms > 0 ? 100 * ledger.gaps_ms() / ledger.step_ms : 0, "", "",
      "", "", "");
  return text;
}

void WriteLedger(const Ledger& ledger, JsonWriter& json) {
  json.BeginObject().Key("step_ms").Double(ledger.step_ms);
  json.Key("gaps_ms").Double(ledger.gaps_ms()).Key("lines").BeginArray();
  for (const LedgerLine& line : ledger.lines) {
    json.BeginObject().Key(line.is_operation ? "operation" : "kernel").Text(line.name);
    if (line.num_products > 0) {
      json.Key("product").Ints(std::vector(line.product.begin(), line.product.end()));
      json.Key("products").Int(line.num_products);
    }
    json.Key("calls").Double(line.calls).Key("ms").Double(line.busy_ms);
    json.Key("share").Double(line.share).Key("gaps_ms").Double(line.gaps_ms);
    if (line.is_operation) {
      json.Key("bytes").Double(line.bytes).Key("flops").Double(line.flops).Key("roofline");
      line.least_ms > 0 ? json.Double(line.roofline()) : json.Null();
      json.Key("kernels").BeginArray();
      for (const LedgerLine::Kernel& kernel : line.kernels) {
        json.BeginObject().Key("kernel").Text(kernel.name).Key("calls").Double(kernel.calls);
        json.Key("ms").Double(kernel.busy_ms).End();
      }
      json.End();
    }
    json.End();
  }
  json.End().End();
}

}  // namespace ckpt::trainer
