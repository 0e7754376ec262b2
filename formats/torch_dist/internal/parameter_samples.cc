#include "formats/torch_dist/internal/parameter_samples.h"

#include <utility>

#include "core/tensor/cast.h"
#include "core/tensor/shape.h"
#include "core/tensor/strided_copy.h"

namespace ckpt::torch_dist {
namespace {

// Memory for items that are decoded.
constexpr std::uint64_t kItemBytes = std::uint64_t{64} << 20;

std::vector<std::pair<std::int64_t, std::int64_t>> SampledRanges(std::int64_t elems) {
  constexpr std::int64_t kRange = 32;
  if (elems <= 3 * kRange) return {{0, elems}};
  return {{0, kRange}, {elems / 2, elems / 2 + kRange}, {elems - kRange, elems}};
}

Status AppendBox(TensorReader& reader, const Box& box, Bytes& sample) {
  const std::size_t size = sample.size();
  sample.resize(size + static_cast<std::uint64_t>(NumElements(box.sizes)) *
                           ElementBytes(reader.tensor().dtype));
  return reader.Read(box, MutableByteSpan(sample).subspan(size));
}

}  // namespace

SampleReader::SampleReader(const CheckpointSource& source)
    : gatherer_(Gatherer::ScratchBytes(0)), chunks_(source, kItemBytes) {}

Result<Bytes> SampleReader::OfWeight(const LocalParameter& parameter) {
  const std::uint64_t element_bytes = ElementBytes(parameter.weight->dtype);
  Bytes sample;
  TensorReader reader(*parameter.weight, gatherer_, chunks_);
  for (const auto& [begin, end] : SampledRanges(parameter.elems)) {
    const std::size_t size = sample.size();
    sample.resize(size + static_cast<std::uint64_t>(end - begin) * element_bytes);
    for (const LocalPiece& piece : CutParameter(parameter, begin, end)) {
      Bytes elems;
      CKPT_RETURN_IF_ERROR(AppendBox(reader, piece.box, elems));
      const auto first = static_cast<std::uint64_t>(piece.first_elem - begin) * element_bytes;
      CopyStrided(MakeBoxCopy(piece.box.sizes, element_bytes, 0, ContiguousStrides(piece.box.sizes),
                              size + first, piece.strides),
                  elems.data(), sample.data());
    }
  }
  return sample;
}

Result<Bytes> SampleReader::OfBucket(const GlobalTensor& bucket, std::int64_t first,
                                     std::int64_t elems, DType dtype) {
  Bytes sample;
  TensorReader reader(bucket, gatherer_, chunks_);
  for (const auto& [begin, end] : SampledRanges(elems)) {
    const Box range = {.offsets = {first + begin}, .sizes = {end - begin}};
    CKPT_RETURN_IF_ERROR(AppendBox(reader, range, sample));
  }
  if (bucket.dtype == dtype) return sample;
  Bytes rounded(sample.size() / ElementBytes(bucket.dtype) * ElementBytes(dtype));
  CastElements(bucket.dtype, sample, dtype, rounded);
  return rounded;
}

Result<ParameterSamples> SampleParameters(std::span<const LocalParameter> parameters, DType dtype,
                                          SampleReader& reader) {
  ParameterSamples samples;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].weight->dtype != dtype || parameters[p].elems == 0) continue;
    CKPT_ASSIGN_OR_RETURN(const Bytes sample, reader.OfWeight(parameters[p]));
    samples[parameters[p].elems][std::string(AsText(sample))].push_back(p);
  }
  return samples;
}

}  // namespace ckpt::torch_dist
