// States of random generators as their libraries store them, each fresh from a seed.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RANDOM_STATES_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RANDOM_STATES_H_

#include <cstdint>

#include "core/base/bytes.h"

namespace ckpt::fsdp_dtensor {

// A pickle of `random.getstate()` after `random.seed(seed)`: (3, 624 words and the position, None).
[[nodiscard]] Bytes PicklePythonState(std::uint64_t seed);

// A pickle of `numpy.random.get_state()` after `numpy.random.seed(seed)`: ('MT19937', array of 624
// uint32, position, 0, 0.0). numpy knows 32-bit seeds only; of larger ones these are the low bits.
[[nodiscard]] Bytes PickleNumpyState(std::uint64_t seed);

// The bytes of `torch.get_rng_state()` after `torch.manual_seed(seed)`.
[[nodiscard]] Bytes TorchCpuState(std::uint64_t seed);

// The bytes of `torch.cuda.get_rng_state()` after `torch.cuda.manual_seed(seed)`.
[[nodiscard]] Bytes TorchCudaState(std::uint64_t seed);

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RANDOM_STATES_H_
