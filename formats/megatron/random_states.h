// States of random generators as their libraries store them, each fresh from a seed.
#ifndef CKPT_FORMATS_MEGATRON_RANDOM_STATES_H_
#define CKPT_FORMATS_MEGATRON_RANDOM_STATES_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "formats/pickle/writer.h"

namespace ckpt::megatron {

// `random.getstate()` after `random.seed(seed)`: (3, 624 words and the position, None).
void WritePythonState(std::uint64_t seed, pickle::PickleWriter& pickle);
[[nodiscard]] Bytes PicklePythonState(std::uint64_t seed);  // as a whole pickle

// `numpy.random.get_state()` after `numpy.random.seed(seed)`: ('MT19937', array of 624
// uint32, position, 0, 0.0). numpy knows 32-bit seeds only; of larger ones these are the low bits.
void WriteNumpyState(std::uint64_t seed, pickle::PickleWriter& pickle);
[[nodiscard]] Bytes PickleNumpyState(std::uint64_t seed);

// The bytes of `torch.get_rng_state()` after `torch.manual_seed(seed)`.
[[nodiscard]] Bytes TorchCpuState(std::uint64_t seed);

// A generator that Megatron keeps for one purpose, and its seed.
struct TrackedState {
  std::string_view name;
  std::uint64_t seed = 0;
};

// As Megatron's model_parallel_cuda_manual_seed spreads the run's seed.
[[nodiscard]] std::array<TrackedState, 3> TrackedStates(std::uint64_t seed,
                                                        std::uint64_t tensor_rank);

// The bytes of `torch.cuda.get_rng_state()` after `torch.cuda.manual_seed(seed)`.
[[nodiscard]] Bytes TorchCudaState(std::uint64_t seed);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_RANDOM_STATES_H_
