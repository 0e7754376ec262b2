#include "trainer/bench/ledger.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

constexpr double kNanosecondsPerMs = 1e6;

// The nanoseconds in which any of the work ran. `sorted` by their begin.
std::int64_t BusyTime(std::span<const trainer::DeviceWork* const> sorted) {
  std::int64_t busy = 0;
  std::int64_t covered_until = 0;
  for (const trainer::DeviceWork* work : sorted) {
    const std::int64_t begin = std::max(work->begin_ns, covered_until);
    busy += std::max<std::int64_t>(0, work->end_ns - begin);
    covered_until = std::max(covered_until, work->end_ns);
  }
  return busy;
}

}  // namespace

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

Ledger MakeLedger(std::span<const trainer::DeviceWork> work, std::int64_t steps) {
  CKPT_CHECK(steps > 0);
  Ledger ledger;
  if (work.empty()) return ledger;
  const double to_ms = 1 / (kNanosecondsPerMs * static_cast<double>(steps));
  std::vector<const trainer::DeviceWork*> sorted;
  std::map<std::string, LedgerLine> by_name;
  std::int64_t end = work.front().end_ns;
  for (const trainer::DeviceWork& one : work) {
    sorted.push_back(&one);
    end = std::max(end, one.end_ns);
    LedgerLine& line = by_name[ShortKernelName(one.name)];
    line.calls += 1 / static_cast<double>(steps);
    line.busy_ms += static_cast<double>(one.end_ns - one.begin_ns) * to_ms;
  }
  std::ranges::sort(sorted, {}, [](const trainer::DeviceWork* one) { return one->begin_ns; });
  ledger.step_ms = static_cast<double>(end - sorted.front()->begin_ns) * to_ms;
  ledger.busy_ms = static_cast<double>(BusyTime(sorted)) * to_ms;
  for (auto& [name, line] : by_name) {
    line.kernel = name;
    line.share = ledger.step_ms > 0 ? line.busy_ms / ledger.step_ms : 0;
    ledger.lines.push_back(line);
  }
  std::ranges::stable_sort(ledger.lines, std::ranges::greater{}, &LedgerLine::busy_ms);
  return ledger;
}

std::string LedgerText(const Ledger& ledger) {
  std::string text = fmt::format("{:>9}  {:>7}  {:>8}  kernel\n", "ms a step", "share", "calls");
  for (const LedgerLine& line : ledger.lines) {
    text += fmt::format("{:>9.3f}  {:>5.1f} %  {:>8.1f}  {}\n", line.busy_ms, 100 * line.share,
                        line.calls, line.kernel);
  }
  text += fmt::format("{:>9.3f}  {:>5.1f} %  {:>8}  gaps: nothing ran\n", ledger.gaps_ms(),
                      ledger.step_ms > 0 ? 100 * ledger.gaps_ms() / ledger.step_ms : 0, "");
  return text;
}

}  // namespace ckpt::train
