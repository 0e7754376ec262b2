#include "formats/torch_dist/internal/parameter_samples.h"

#include <algorithm>
#include <utility>

#include "core/tensor/cast.h"
#include "core/tensor/shape.h"
#include "formats/torch_dist/internal/flat_range.h"

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
  Bytes sample;
  TensorReader reader(*parameter.weight, gatherer_, chunks_);
  for (const auto& [begin, end] : SampledRanges(parameter.elems)) {
    std::int64_t first = 0;  // of a box
    for (const Box& box : parameter.boxes) {
      const std::int64_t behind = first + NumElements(box.sizes);
      const std::int64_t from = std::clamp(begin, first, behind);
      const std::int64_t to = std::clamp(end, first, behind);
      for (const FlatBox& cut : CutFlatRange(box, from - first, to - first)) {
        CKPT_RETURN_IF_ERROR(AppendBox(reader, cut.box, sample));
      }
      first = behind;
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
