// Tests with MPI processes for ranks: every process runs the same tests in step.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/process_ranks.h"
#include "trainer/comm/mpi_comm.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  int failures = 1;
  const ckpt::Status status = ckpt::trainer::RunMpiRank({}, [&](ckpt::trainer::HostGroup& world) {
    ckpt::testing::process_ranks = &world;
    failures = RUN_ALL_TESTS();
    return ckpt::OkStatus();
  });
  if (status.ok()) return failures;
  std::fputs(status.ToString().c_str(), stderr);
  return 1;
}
