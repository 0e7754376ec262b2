// One line a suite, for the report: what was tried, how often, how often it failed.
#ifndef CKPT_TESTS_RELIABILITY_SUITE_H_
#define CKPT_TESTS_RELIABILITY_SUITE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/testing/test_seed.h"

namespace ckpt::testing {

// Whether the long set was asked for: CKPT_RELIABILITY=long.
bool IsLongRun();

// Whether case `n` of many like ones is tried: one of so many in the short set.
inline bool IsTried(std::size_t n, std::size_t of = 3) { return n % of == 0 || IsLongRun(); }

// For TestSeed.
inline constexpr std::uint64_t kDefaultSeed = 20240229;

// Counts cases and failures of one suite. When it ends, it prints
//
//   reliability <name>: <count> cases, <n> failures, <seconds> s[; <note>]
//
// and fails the running test if there were failures. Thread-safety: one thread.
class Suite {
 public:
  explicit Suite(std::string name);
  Suite(const Suite&) = delete;
  Suite& operator=(const Suite&) = delete;
  ~Suite();

  void Count(std::uint64_t cases = 1) { cases_ += cases; }
  // The first few are shown.
  void Fail(const std::string& what);
  // A figure that the line carries besides, such as how many cases were distinct.
  void Note(const std::string& note);

  [[nodiscard]] std::uint64_t cases() const { return cases_; }
  [[nodiscard]] std::uint64_t failures() const { return failures_; }

 private:
  std::string name_;
  std::string notes_;
  std::uint64_t cases_ = 0;
  std::uint64_t failures_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_SUITE_H_
