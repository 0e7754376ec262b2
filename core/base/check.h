// CKPT_CHECK: aborts, in every build, on a bug of ours. Never on input.
#ifndef CKPT_CORE_BASE_CHECK_H_
#define CKPT_CORE_BASE_CHECK_H_

namespace ckpt {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace ckpt

#define CKPT_CHECK(condition)                                              \
  do {                                                                     \
    if (!(condition)) ::ckpt::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

#endif  // CKPT_CORE_BASE_CHECK_H_
