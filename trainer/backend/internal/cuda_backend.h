// The GPU as a backend. Built without CUDA, it can never run.
#ifndef CKPT_TRAINER_BACKEND_INTERNAL_CUDA_BACKEND_H_
#define CKPT_TRAINER_BACKEND_INTERNAL_CUDA_BACKEND_H_

#include "core/base/result.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// Errors: kUnsupported (canonical sums or float64, on any machine; built without CUDA; no GPU).
Status CanRunCuda(const BackendOptions& options);

// What no GPU computes for us. Errors: kUnsupported.
Status CheckCudaComputes(const BackendOptions& options);

// Whether `ranks` ranks, processes or threads of one, can communicate so. `gpus`: of this machine;
// thread r has GPU r modulo that. Errors: kUnsupported (names the ranks of one GPU that cannot).
Status CheckCudaRanks(GpuCollectives collectives, int ranks, bool are_processes, int gpus);

// The ranks of a machine get its GPUs in turn.
// REQUIRES: CanRunCuda is OK. Errors: those of CheckCudaRanks, MakeCudaDevice and MakeCudaOps, of
// reading and parsing the file of algorithms.
Result<Backend> MakeCuda(const BackendOptions& options, HostGroup& world);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_BACKEND_INTERNAL_CUDA_BACKEND_H_
