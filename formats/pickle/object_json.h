// Renders a pickled Python value as JSON without losing its type.
//
// Everything that is not plain JSON becomes an object with one key that starts with `$`: {"$tuple":
// […]}, {"$bytes": hex}, {"$numpy_scalar": {…}}, …, and {"$opaque": "module.Name"} for what only
// its own class understands (docs/formats/objects.md).
#ifndef CKPT_FORMATS_PICKLE_OBJECT_JSON_H_
#define CKPT_FORMATS_PICKLE_OBJECT_JSON_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// A tensor inside an object, by its content.
struct TensorDigest {
  Dims shape;
  DType dtype = DType::kFloat32;
  std::string sha256;  // of the elements in C order, little-endian
};

// Digests the dense tensor that `node` (a call of one of torch's rebuild functions) describes;
// nothing if it is no such tensor. Only the container knows where its bytes are.
using TensorRenderer = std::function<Result<std::optional<TensorDigest>>(NodeId node)>;

struct RenderOptions {
  TensorRenderer tensor = nullptr;  // without it tensors are opaque
  // Shared references make the tree larger than the pickle, exponentially in a malicious file.
  std::uint64_t max_bytes = 64ULL << 20;
  int max_depth = 200;
};

// One line of JSON. Errors: kResource (larger or deeper than the limits, or a value that contains
// itself), and those of the tensor renderer.
Result<std::string> RenderJson(const Graph& graph, NodeId node, const RenderOptions& options = {});

// "module.Name" of a value that only its class understands, as far as its pickle tells.
[[nodiscard]] std::string ClassName(const Graph& graph, NodeId node);

// {"$opaque": ClassName}.
[[nodiscard]] std::string OpaqueJson(const Graph& graph, NodeId node);

// Python's name of the value's type: "int", "dict", "Namespace", "Tensor", …
[[nodiscard]] std::string PythonTypeName(const Graph& graph, NodeId node);

// All of it: type, JSON and a warning for each suspicious call. `file` and `key` go into the
// warnings.
Result<RenderedObject> RenderObject(const Graph& graph, NodeId root, const std::string& file,
                                    const std::string& key, const RenderOptions& options = {});

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_OBJECT_JSON_H_
