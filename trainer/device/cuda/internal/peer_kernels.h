// Kernels that read the memory of several ranks.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_KERNELS_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_KERNELS_H_

#include <span>

#include <cuda_runtime_api.h>

#include "trainer/device/peer/peer_reader.h"

namespace ckpt::trainer::cuda {

// The most ranks of a machine that read each other's memory.
inline constexpr int kMaxPeers = 64;

// Blocks of a kernel. So many read 333 GB/s over the links of an H200, near what these carry; the
// other multiprocessors go on computing.
inline constexpr unsigned int kLinkBlocks = 64;
// Of one that reads this GPU's memory alone: four for each multiprocessor, which takes it least
// long.
inline constexpr unsigned int kLocalBlocks = 528;

// On at most `max_blocks` blocks. REQUIRES: at most kMaxPeers parts, at least one element.
void ReduceParts(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks);

// ReduceParts of a reduction that has rows: it leaves their squares. REQUIRES: a sum of bfloat16 or
// float32.
void SumRows(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks);

// Where two ranks disagree about how many rows go from one to the other, the smaller number goes;
// rows without room are left out.
void ReceiveRows(cudaStream_t stream, int rank, std::span<const PeerRows> sent,
                 const PeerRows& received);

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_KERNELS_H_
