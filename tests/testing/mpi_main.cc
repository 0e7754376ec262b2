// The tests of this folder with MPI processes for ranks: every process runs the same tests in step.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/step/trained_run.h"
#include "trainer/comm/mpi_comm.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  int failures = 1;
  const ckpt::Status status = ckpt::trainer::RunMpiRank({}, [&](ckpt::trainer::HostGroup& world) {
    ckpt::testing::TrainOn(&world);
    failures = RUN_ALL_TESTS();
    return ckpt::OkStatus();
  });
  std::fputs(status.ToString().c_str(), stderr);
  return status.ok() ? failures : 1;
}
