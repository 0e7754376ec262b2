// The tests of ranks that load together, on threads or on processes.
#ifndef CKPT_TESTS_TRAINER_RUN_LOAD_TOGETHER_TEST_H_
#define CKPT_TESTS_TRAINER_RUN_LOAD_TOGETHER_TEST_H_

#include "trainer/comm/host_group.h"

namespace ckpt::testing {

// From then on the tests run as the rank of `world` that this process is.
void LoadOn(trainer::HostGroup* world);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_RUN_LOAD_TOGETHER_TEST_H_
