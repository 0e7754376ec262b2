// Replaces mpi_comm.cc in builds without MPI.
#include "trainer/comm/mpi_comm.h"

namespace ckpt::trainer {

namespace {

Status NoMpi() {
  return Error(ErrorKind::kUnsupported, "this build has no MPI")
      .Hint("configure with -DCKPT_WITH_MPI=ON, or start one process");
}

}  // namespace

Status MeetEarly(const std::function<Status(HostGroup& meeting)>&) { return NoMpi(); }

Status RunMpiRank(const MpiOptions&, const std::function<Status(HostGroup& world)>&) {
  return NoMpi();
}

// Without MPI, every process reports its own failure.
Status FailTogether(const Status&, const std::function<void()>& speak) {
  speak();
  return OkStatus();
}

}  // namespace ckpt::trainer
