// Result<T>: a value or a Status, in the shape of std::expected.
#ifndef CKPT_CORE_BASE_RESULT_H_
#define CKPT_CORE_BASE_RESULT_H_

#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace ckpt {

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose, so that `return value;` and `return Error(…);` both read naturally.
  // NOLINTBEGIN(google-explicit-constructor)
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { CKPT_CHECK(!status_.ok()); }
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const& { return status_; }
  [[nodiscard]] Status status() && { return std::move(status_); }

  // REQUIRES: ok().
  [[nodiscard]] const T& value() const& {
    CKPT_CHECK(ok());
    return *value_;
  }
  [[nodiscard]] T& value() & {
    CKPT_CHECK(ok());
    return *value_;
  }
  [[nodiscard]] T value() && {
    CKPT_CHECK(ok());
    return std::move(*value_);
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T operator*() && { return std::move(*this).value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace ckpt

#define CKPT_RETURN_IF_ERROR(expr)                                  \
  do {                                                              \
    if (::ckpt::Status ckpt_status_ = (expr); !ckpt_status_.ok()) { \
      return ckpt_status_;                                          \
    }                                                               \
  } while (false)

#define CKPT_CONCAT_INNER(a, b) a##b
#define CKPT_CONCAT(a, b) CKPT_CONCAT_INNER(a, b)

// CKPT_ASSIGN_OR_RETURN(auto x, F()); is several statements: use it only inside braces.
#define CKPT_ASSIGN_OR_RETURN(lhs, expr) \
  CKPT_ASSIGN_OR_RETURN_IMPL(CKPT_CONCAT(ckpt_result_, __LINE__), lhs, expr)
#define CKPT_ASSIGN_OR_RETURN_IMPL(result, lhs, expr)  \
  auto result = (expr);                                \
  if (!result.ok()) return std::move(result).status(); \
  lhs = std::move(result).value()

#endif  // CKPT_CORE_BASE_RESULT_H_
