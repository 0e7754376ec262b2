#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ckpt {

void CheckFailed(const char* condition, const char* file, int line) {
  (void)std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace ckpt
