// Backend: what a rank computes with, made by name. Code above this folder names no kind of device.
#ifndef CKPT_TRAINER_BACKEND_BACKEND_H_
#define CKPT_TRAINER_BACKEND_BACKEND_H_

#include <memory>
#include <string>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

struct BackendOptions {
  std::string name = "cpu";
  // Threads of the host that share one operation, per rank.
  int threads = 1;
  // A token gets the same numbers in every batch (Reduction::kCanonical).
  bool fixed_order = false;
  // Queues run in parallel with each other and with the rank's thread. Then a world of processes
  // needs WorldOptions::from_threads.
  bool overlaps = false;
};

// The device also makes the collectives of a rank's groups (Device::MakeCollectives).
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

// `world`: all ranks of the run, which may share a machine and its devices. Every rank calls it.
// Errors: kUsage (there is no backend of this name: the error lists those that there are).
Result<Backend> MakeBackend(const BackendOptions& options, HostGroup& world);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_BACKEND_BACKEND_H_
