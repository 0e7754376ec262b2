// What torch's rebuild calls in a pickle describe, worked out instead of called.
#ifndef CKPT_FORMATS_TORCH_SAVE_TENSOR_REBUILD_H_
#define CKPT_FORMATS_TORCH_SAVE_TENSOR_REBUILD_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/tensor/shape.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_save {

// A tuple or torch.Size of integers, none negative. `what`: of a tensor, for messages. Errors:
// kBadItem.
Result<Dims> ReadDims(const pickle::Graph& graph, pickle::NodeId node, std::string_view what);

enum class TensorForm : std::uint8_t {
  kNone,   // no tensor
  kDense,  // strided elements of a dtype we know
  kOther,  // a tensor we can only name: bits*, quantised, sparse, nested, meta, a wrapper subclass
};

// Looks at the call alone, never at the container: cheap.
[[nodiscard]] TensorForm TensorFormOf(const pickle::Graph& graph, pickle::NodeId node);

// Whether it is torchao's weight that FSDP2 casts to float8 when it gathers it. Its form and its
// elements are those of the tensor inside it; of no other class of a library is that known.
[[nodiscard]] bool IsFloat8Weight(const pickle::Graph& graph, pickle::NodeId node);

// What Python keeps of a tensor besides its elements: a class that is not torch's, and the names of
// attributes; empty for most tensors. REQUIRES: TensorFormOf(node) == kDense.
[[nodiscard]] std::vector<std::string> BesideElements(const pickle::Graph& graph,
                                                      pickle::NodeId node);

struct RebuiltTensor {
  Dims shape;
  StoredArray array;
  const StorageExtent* storage = nullptr;  // of the container

  // Of its elements, which may be more than are stored.
  [[nodiscard]] std::uint64_t SizeBytes() const { return NumBytes(shape, array.dtype); }
};

// Tensors may repeat their elements (strides of zero) and share a storage, so a few bytes can ask
// for any number of them. No checkpoint repeats its elements this many times.
inline constexpr std::uint64_t kMaxTimesRepeated = 64;

// Whether `asked_bytes` of tensors are over 1 GiB, and over kMaxTimesRepeated times as many as are
// stored.
[[nodiscard]] bool IsFarTooSmall(std::uint64_t stored_bytes, std::uint64_t asked_bytes);

// Tensors of one file, in sum.
class TensorSum {
 public:
  // `message`: of the error.
  TensorSum(const ReadableFile& file, std::string message)
      : file_bytes_(file.size_bytes()), message_(std::move(message)) {}

  // Errors: kResource (the file is far too small for this tensor and those before).
  Status Add(const RebuiltTensor& tensor);

 private:
  std::uint64_t file_bytes_;
  std::string message_;
  std::uint64_t sum_bytes_ = 0;
};

// Resolves a tensor down to the bytes of its storage. No byte of the storage is read.
//
// REQUIRES: TensorFormOf(node) == kDense. The result refers to `container`. Errors: kBadItem
// (malformed arguments, a storage that is not there), kSizeMismatch (reaches outside its storage),
// kUnsupported (changed after that), kResource (its size overflows, or is far larger than its
// storage).
Result<RebuiltTensor> RebuildTensor(const TorchContainer& container, pickle::NodeId node);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_TENSOR_REBUILD_H_
