#include "core/base/thrown.h"

#include <new>
#include <stdexcept>

namespace ckpt {

Status ThrownError(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    return Error(ErrorKind::kSystem, "out of memory")
        .Hint("a smaller memory budget or fewer threads need less");
  } catch (const std::length_error& error) {
    return Error(ErrorKind::kResource, error.what());
  } catch (const std::exception& error) {
    return Error(ErrorKind::kInternal, error.what());
  }
}

}  // namespace ckpt
