// numpy scalars and arrays as they pickle, understood without numpy.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_NUMPY_VALUES_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_NUMPY_VALUES_H_

#include <optional>
#include <string>

#include "core/tensor/shape.h"
#include "formats/pickle/graph.h"

namespace ckpt::pickle {

struct NumpyScalar {
  std::string dtype;  // numpy's `dtype.str`: "<f8"
  std::string bytes;
};
// Nothing if the node is another value or its dtype holds Python objects or fields.
[[nodiscard]] std::optional<NumpyScalar> NumpyScalarOf(const Graph& graph, NodeId node);

struct NumpyArray {
  std::string dtype;
  Dims shape;
  std::string bytes;  // in C order
};
[[nodiscard]] std::optional<NumpyArray> NumpyArrayOf(const Graph& graph, NodeId node);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_NUMPY_VALUES_H_
