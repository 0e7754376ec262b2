#include "formats/megatron/random_states.h"

#include <cstddef>
#include <vector>

#include "core/base/endian.h"
#include "formats/megatron/internal/mersenne_twister.h"

namespace ckpt::megatron {
namespace {

using pickle::Dialect;
using pickle::PickleWriter;

// Python seeds with the 32-bit digits of the number, lowest digit first, without leading zeros.
std::vector<std::uint32_t> DigitsOf(std::uint64_t seed) {
  std::vector<std::uint32_t> digits = {static_cast<std::uint32_t>(seed)};
  if (seed >> 32U != 0) digits.push_back(static_cast<std::uint32_t>(seed >> 32U));
  return digits;
}

// numpy.dtype('<u4'). Its state is a version, the byte order, and fields that only structured types
// use.
void WriteUint32Dtype(PickleWriter& pickle) {
  pickle.Global("numpy", "dtype").BeginTuple().Text("u4").Bool(false).Bool(true).EndTuple();
  pickle.Reduce();
  pickle.BeginTuple().Int(3).Text("<").None().None().None().Int(-1).Int(-1).Int(0).EndTuple();
  pickle.Build();
}

// As numpy 2 pickles arrays; 1.26 reads it too.
void WriteArray(const TwisterWords& words, PickleWriter& pickle) {
  Bytes values;
  for (const std::uint32_t word : words) AppendLe(word, values);
  pickle.Global("numpy._core.multiarray", "_reconstruct").BeginTuple();
  pickle.Global("numpy", "ndarray").Int(0).InTuple().BytesValue(AsBytes("b")).EndTuple().Reduce();
  pickle.BeginTuple().Int(1).Int(kTwisterWords).InTuple();
  WriteUint32Dtype(pickle);
  pickle.Bool(false).BytesValue(values).EndTuple().Build();
}

}  // namespace

void WritePythonState(std::uint64_t seed, PickleWriter& pickle) {
  const std::vector<std::uint32_t> digits = DigitsOf(seed);
  pickle.BeginTuple().Int(3).BeginTuple();
  for (const std::uint32_t word : SeedTwister(digits)) pickle.Int(word);
  pickle.Int(kTwisterWords).EndTuple().None().EndTuple();
}

Bytes PicklePythonState(std::uint64_t seed) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WritePythonState(seed, pickle);
  return pickle.Take();
}

void WriteNumpyState(std::uint64_t seed, PickleWriter& pickle) {
  pickle.BeginTuple().Text("MT19937");
  WriteArray(SeedTwister(static_cast<std::uint32_t>(seed)), pickle);
  pickle.Int(kTwisterWords).Int(0).Float(0).EndTuple();
}

Bytes PickleNumpyState(std::uint64_t seed) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteNumpyState(seed, pickle);
  return pickle.Take();
}

Bytes TorchCpuState(std::uint64_t seed) {
  // at::CPUGeneratorImplState: the engine's words in 64 bits each, then the normal sample that is
  // kept for the next call. There is none.
  constexpr std::size_t kNormalSampleBytes = 40;
  Bytes state;
  AppendLe(seed, state);
  AppendLe(std::uint32_t{1}, state);  // words left: 1, so the next draw makes new words
  AppendLe(std::uint32_t{1}, state);  // is seeded
  AppendLe(std::uint64_t{0}, state);  // next word
  for (const std::uint32_t word : SeedTwister(static_cast<std::uint32_t>(seed))) {
    AppendLe(std::uint64_t{word}, state);
  }
  state.resize(state.size() + kNormalSampleBytes);
  return state;
}

std::array<TrackedState, 3> TrackedStates(std::uint64_t seed, std::uint64_t tensor_rank) {
  return {{{"data-parallel-rng", seed},
           {"model-parallel-rng", seed + 2718 + tensor_rank},
           {"expert-parallel-rng", seed + 1024 + tensor_rank}}};
}

Bytes TorchCudaState(std::uint64_t seed) {
  Bytes state;
  AppendLe(seed, state);
  AppendLe(std::uint64_t{0}, state);  // numbers drawn
  return state;
}

}  // namespace ckpt::megatron
