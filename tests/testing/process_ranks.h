// The rank that this process is, where ranks are processes.
#ifndef CKPT_TESTS_TESTING_PROCESS_RANKS_H_
#define CKPT_TESTS_TESTING_PROCESS_RANKS_H_

#include "trainer/comm/host_group.h"

namespace ckpt::testing {

// Set by the main of mpi_main.cc; null in other programs, whose tests make ranks of threads.
inline trainer::HostGroup* process_ranks = nullptr;

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_PROCESS_RANKS_H_
