// Turns exceptions of third-party code into errors.
#ifndef CKPT_CORE_BASE_THROWN_H_
#define CKPT_CORE_BASE_THROWN_H_

#include <exception>

#include "core/base/status.h"

namespace ckpt {

// kSystem for std::bad_alloc, kResource for std::length_error, kInternal for any other exception,
// with its text.
Status ThrownError(const std::exception_ptr& thrown);

// Returns what `call()` returns, or the error for what it throws.
template <typename Call>
Status StatusOfCall(const Call& call) {
  try {
    return call();
  } catch (const std::exception&) {
    return ThrownError(std::current_exception());
  }
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_THROWN_H_
