#include "formats/fsdp_dtensor/internal/random_states.h"

#include <cstddef>
#include <vector>

#include "core/base/endian.h"
#include "formats/fsdp_dtensor/internal/mersenne_twister.h"
#include "formats/pickle/writer.h"

namespace ckpt::fsdp_dtensor {
namespace {

using pickle::Dialect;
using pickle::PickleWriter;

// Python takes a seed's 32-bit digits, lowest first, without leading zeros.
std::vector<std::uint32_t> DigitsOf(std::uint64_t seed) {
  std::vector<std::uint32_t> digits = {static_cast<std::uint32_t>(seed)};
  if (seed >> 32U != 0) digits.push_back(static_cast<std::uint32_t>(seed >> 32U));
  return digits;
}

// numpy.dtype('<u4'): its state is a version, the byte order, and what only structured types have.
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

Bytes PicklePythonState(std::uint64_t seed) {
  const std::vector<std::uint32_t> digits = DigitsOf(seed);
  PickleWriter pickle(Dialect::kWeightsOnly);
  pickle.BeginTuple().Int(3).BeginTuple();
  for (const std::uint32_t word : SeedTwister(digits)) pickle.Int(word);
  pickle.Int(kTwisterWords).EndTuple().None().EndTuple();
  return pickle.Take();
}

Bytes PickleNumpyState(std::uint64_t seed) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  pickle.BeginTuple().Text("MT19937");
  WriteArray(SeedTwister(static_cast<std::uint32_t>(seed)), pickle);
  pickle.Int(kTwisterWords).Int(0).Float(0).EndTuple();
  return pickle.Take();
}

Bytes TorchCpuState(std::uint64_t seed) {
  // at::CPUGeneratorImplState: the engine's words in 64 bits each, and normal samples kept for the
  // next call, of which there are none.
  constexpr std::size_t kNormalSampleBytes = 40;
  Bytes state;
  AppendLe(seed, state);
  AppendLe(std::uint32_t{1}, state);  // words left, less one short: the next draw twists
  AppendLe(std::uint32_t{1}, state);  // is seeded
  AppendLe(std::uint64_t{0}, state);  // next word
  for (const std::uint32_t word : SeedTwister(static_cast<std::uint32_t>(seed))) {
    AppendLe(std::uint64_t{word}, state);
  }
  state.resize(state.size() + kNormalSampleBytes);
  return state;
}

Bytes TorchCudaState(std::uint64_t seed) {
  Bytes state;
  AppendLe(seed, state);
  AppendLe(std::uint64_t{0}, state);  // numbers drawn
  return state;
}

}  // namespace ckpt::fsdp_dtensor
