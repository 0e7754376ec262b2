#include "core/base/warning.h"

#include <utility>

namespace ckpt {

Problem Warning(ErrorKind kind, std::string message, std::string file, std::string tensor) {
  Problem problem;
  problem.kind = kind;
  problem.severity = Severity::kWarning;
  problem.message = std::move(message);
  problem.file = std::move(file);
  problem.tensor = std::move(tensor);
  return problem;
}

}  // namespace ckpt
