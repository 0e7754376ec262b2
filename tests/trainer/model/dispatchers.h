// The ways to send tokens to experts that tests try.
#ifndef CKPT_TESTS_TRAINER_MODEL_DISPATCHERS_H_
#define CKPT_TESTS_TRAINER_MODEL_DISPATCHERS_H_

#include <vector>

#include "trainer/comm/launcher.h"
#include "trainer/model/dispatch.h"

namespace ckpt::testing {

inline const char* NameOf(trainer::Dispatcher dispatcher) {
  switch (dispatcher) {
    case trainer::Dispatcher::kAllGather:
      return "all-gather";
    case trainer::Dispatcher::kAllToAll:
      return "all-to-all";
    case trainer::Dispatcher::kFlex:
      return "flex";
  }
  return "?";
}

// All, or under a launcher those of ranks that are processes.
inline std::vector<trainer::Dispatcher> AllDispatchers() {
  using enum trainer::Dispatcher;
  if (trainer::NumLaunchedProcesses() > 1) return {kAllToAll, kAllGather};
  return {kAllToAll, kFlex, kAllGather};
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_DISPATCHERS_H_
