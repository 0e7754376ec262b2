// Some elements of every parameter, by which it is told from others.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAMETER_SAMPLES_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAMETER_SAMPLES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/source.h"
#include "core/tensor/dtype.h"
#include "formats/torch_dist/internal/local_parameter.h"

namespace ckpt::torch_dist {

// Reads the first, the middle and the last elements. For one thread.
class SampleReader {
 public:
  // REQUIRES: `source` outlives this.
  explicit SampleReader(const CheckpointSource& source);

  // Of a weight, in the order of the rank's memory. Errors: those of TensorReader::Read.
  Result<Bytes> OfWeight(const LocalParameter& parameter);
  // Of exact values that begin at an element of a bucket, rounded to `dtype`. REQUIRES: both dtypes
  // can be converted. Errors: those of TensorReader::Read.
  Result<Bytes> OfBucket(const GlobalTensor& bucket, std::int64_t first, std::int64_t elems,
                         DType dtype);

 private:
  Gatherer gatherer_;
  LocatedChunks chunks_;
};

// Numbers of parameters, by their elements' number and their sample.
using SamplesOfSize = std::map<std::string, std::vector<std::size_t>, std::less<>>;
using ParameterSamples = std::map<std::int64_t, SamplesOfSize>;

// Of those that are stored in `dtype`. Errors: those of SampleReader::OfWeight.
Result<ParameterSamples> SampleParameters(std::span<const LocalParameter> parameters, DType dtype,
                                          SampleReader& reader);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_PARAMETER_SAMPLES_H_
