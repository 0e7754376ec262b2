// Backend: what a rank computes with, made by name. Code above this folder names no kind of device.
#ifndef CKPT_TRAINER_BACKEND_BACKEND_H_
#define CKPT_TRAINER_BACKEND_BACKEND_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/device.h"
#include "trainer/device/gpu_collectives.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/product_algorithms.h"

namespace ckpt::trainer {

// The name that stands for the first backend that can run here: a GPU before the CPU.
inline constexpr std::string_view kAnyBackend = "auto";
// The backend with which the others are compared. It runs everywhere.
inline constexpr std::string_view kReferenceBackend = "cpu";

struct BackendOptions {
  std::string name{kReferenceBackend};  // one of BackendNames, or kAnyBackend
  // Threads of the host that share one operation, per rank.
  int threads = 1;
  // A token gets the same numbers in every batch (Reduction::kCanonical).
  bool fixed_order = false;
  bool deterministic = false;                              // see TrainConfig
  DType compute = DType::kFloat32;                         // of weights and activations
  GpuCollectives gpu_collectives = GpuCollectives::kAuto;  // of a world of several ranks
  // A file of ParseProductAlgorithms; empty: the library chooses.
  std::string product_algorithms = {};
  // Gets what the library offers for products, if not null. Outlives the backend.
  ProductTrial* product_trial = nullptr;
  // Queues run in parallel with each other and with the rank's thread. Then a world of processes
  // needs WorldOptions::from_threads.
  bool overlaps = false;
};

// In the order in which kAnyBackend tries them.
[[nodiscard]] std::vector<std::string_view> BackendNames();
// Whether the backend of this name adds in one fixed order by itself; others do so if they are
// asked to (BackendOptions::deterministic). REQUIRES: one of BackendNames.
[[nodiscard]] bool AddsInFixedOrder(std::string_view name);

// The device also makes the collectives of a rank's groups (Device::MakeCollectives).
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

// The backend that a run gets.
struct BackendChoice {
  std::string name;
  // Why kAnyBackend does not stand for one of those before it: "cuda: there is no GPU here"; empty:
  // it stands for the first, or a name was given.
  std::string passed_over;

  // "cpu (cuda: there is no GPU here)"
  [[nodiscard]] std::string Text() const;
};

// Every process of a run chooses alike if their machines are alike. Errors: kUsage (there is no
// backend of this name: the error lists those that there are), kUnsupported (it cannot compute as
// the options ask, or cannot run here; the error says why).
Result<BackendChoice> ChooseBackend(const BackendOptions& options);

// `world`: all ranks of the run, which may share a machine and its devices. Every rank calls it.
// Errors: those of ChooseBackend, of reading the file of algorithms, kUnsupported (they are of
// another GPU or library, or the ranks cannot communicate as the options ask), kSystem.
Result<Backend> MakeBackend(const BackendOptions& options, HostGroup& world);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_BACKEND_BACKEND_H_
