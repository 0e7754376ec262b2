// Makes problems of severity warning.
#ifndef CKPT_CORE_BASE_WARNING_H_
#define CKPT_CORE_BASE_WARNING_H_

#include <string>

#include "core/base/status.h"

namespace ckpt {

[[nodiscard]] Problem Warning(ErrorKind kind, std::string message, std::string file = {},
                              std::string tensor = {});

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_WARNING_H_
