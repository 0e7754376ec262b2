// Matchers for Status and Result: IsOk(), IsOkAndHolds(m), FailsWith(kind).
#ifndef CKPT_TESTS_TESTING_MATCHERS_H_
#define CKPT_TESTS_TESTING_MATCHERS_H_

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "core/base/result.h"
#include "core/base/status.h"

namespace ckpt {

inline void PrintTo(const Status& status, std::ostream* os) { *os << status.ToString(); }
inline void PrintTo(ErrorKind kind, std::ostream* os) { *os << KindName(kind); }

}  // namespace ckpt

namespace ckpt::testing {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return arg.ok();
}

// An error whose first problem has this kind.
MATCHER_P(FailsWith, kind, "fails with " + std::string(KindName(kind))) {
  if (arg.ok()) {
    *result_listener << "OK";
    return false;
  }
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).kind() == kind;
}

MATCHER_P(IsOkAndHolds, matcher, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << StatusOf(arg).ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(matcher, arg.value(), result_listener);
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_MATCHERS_H_
