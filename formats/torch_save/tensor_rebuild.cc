#include "formats/torch_save/tensor_rebuild.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/tensor/shape.h"
#include "formats/torch_save/internal/distributed_tensor.h"
#include "formats/torch_save/internal/float8_weight.h"
#include "formats/torch_save/internal/object_attributes.h"
#include "formats/torch_save/internal/persistent_storage.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

// How many calls may stand around a tensor. torch uses two: a parameter around a subclass.
constexpr int kMaxWrappers = 8;
constexpr std::size_t kMaxMetadataItems = 16;  // "conj", "neg", and what devices add
constexpr std::size_t kStateArg = 3;           // of the wrappers that have one
// Attributes whose assignment changes the elements of a tensor.
constexpr std::array<std::string_view, 3> kElementAttributes = {"data", "real", "imag"};

// A call function(*args). The call inside `_rebuild_from_type_v2` has no node of its own.
struct Call {
  NodeId function = kNoNode;
  std::span<const NodeId> args;
  // Something is set on the result that may change its elements. No writer of torch does that.
  bool is_changed = false;
};

std::optional<Call> MakeCall(const Graph& graph, NodeId function, NodeId args) {
  if (graph.kind(function) != NodeKind::kGlobal || graph.kind(args) != NodeKind::kTuple) {
    return std::nullopt;
  }
  return Call{function, graph.items(args)};
}

std::optional<Call> CallOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall) return std::nullopt;
  std::optional<Call> call = MakeCall(graph, graph.callable(node), graph.args(node));
  if (call) {
    call->is_changed = graph.state(node) != kNoNode || graph.appended(node) != kNoNode ||
                       graph.entries(node) != kNoNode;
  }
  return call;
}

// Whether `state` may have an attribute that replaces the tensor's elements. The wrapper gives all
// of its attributes to the tensor.
bool SetsElements(const Graph& graph, NodeId state) {
  const ObjectAttributes attributes = AttributesIn(graph, state);
  return !attributes.is_all ||
         std::ranges::any_of(kElementAttributes, [&](std::string_view attribute) {
           return attributes.Find(graph, attribute) != kNoNode;
         });
}

void NameAttributes(const Graph& graph, NodeId state, std::vector<std::string>& names) {
  for (const NodeId dict : AttributesIn(graph, state).dicts) {
    if (dict == kNoNode) continue;
    const std::span<const NodeId> items = graph.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph.kind(items[i]) == NodeKind::kText) names.emplace_back(graph.text(items[i]));
    }
  }
}

// The tensor that has all elements of one whose class has none of its own; kNoNode: there is none.
NodeId TensorInside(const Graph& graph, NodeId node) {
  const std::optional<DistributedTensor> distributed = DistributedTensorOf(graph, node);
  if (distributed) return distributed->is_whole ? distributed->local : kNoNode;
  return WeightToCast(graph, node);
}

// The innermost call: without parameters and subclasses around it. `beside`, if it is not null,
// gets what stands on these.
std::optional<Call> Unwrap(const Graph& graph, NodeId node,
                           std::vector<std::string>* beside = nullptr) {
  std::optional<Call> call = CallOf(graph, node);
  NodeId at = node;
  for (int i = 0; call && i < kMaxWrappers; ++i) {
    const NodeId function = call->function;
    const std::span<const NodeId> args = call->args;
    const bool is_plain = graph.IsGlobal(function, "torch._utils", "_rebuild_parameter");
    bool is_changed = call->is_changed;
    if (is_plain || graph.IsGlobal(function, "torch._utils", "_rebuild_parameter_with_state")) {
      if (args.empty()) return std::nullopt;
      if (args.size() > kStateArg) {
        is_changed = is_changed || SetsElements(graph, args[kStateArg]);
        if (beside != nullptr) NameAttributes(graph, args[kStateArg], *beside);
      }
      at = args[0];
      call = CallOf(graph, at);
    } else if (graph.IsGlobal(function, "torch._tensor", "_rebuild_from_type_v2")) {
      if (args.size() < 3) return std::nullopt;
      is_changed = is_changed || (args.size() > kStateArg && SetsElements(graph, args[kStateArg]));
      const NodeId inside = TensorInside(graph, at);
      if (beside != nullptr) {
        const std::string name = graph.QualifiedName(args[1]);
        if (!name.starts_with("torch.")) beside->push_back("class " + name);
        // With a tensor inside, attributes are that tensor, and what the class does with it.
        const bool has_own = inside == kNoNode && args.size() > kStateArg;
        if (has_own) NameAttributes(graph, args[kStateArg], *beside);
      }
      if (inside != kNoNode) at = inside;
      call = inside != kNoNode ? CallOf(graph, inside) : MakeCall(graph, args[0], args[2]);
    } else {
      return call;
    }
    if (call) call->is_changed = call->is_changed || is_changed;
  }
  return std::nullopt;
}

bool IsTorchUtil(const Graph& graph, NodeId function, std::string_view name) {
  return graph.IsGlobal(function, "torch._utils", name);
}

// The rebuild functions of tensors that are not strided arrays of a plain dtype.
bool RebuildsOtherForm(const Graph& graph, NodeId function) {
  constexpr std::array<std::string_view, 7> kNames = {
      "_rebuild_qtensor",
      "_rebuild_sparse_tensor",
      "_rebuild_nested_tensor",
      "_rebuild_meta_tensor_no_storage",
      "_rebuild_wrapper_subclass",
      "_rebuild_device_tensor_from_numpy",
      "_rebuild_device_tensor_from_cpu_tensor",
  };
  return graph.module(function) == "torch._utils" &&
         std::find(kNames.begin(), kNames.end(), graph.name(function)) != kNames.end();
}

enum class Rebuild : std::uint8_t { kNone, kV1, kV2, kV3 };

Rebuild RebuildOf(const Graph& graph, NodeId function) {
  if (IsTorchUtil(graph, function, "_rebuild_tensor")) return Rebuild::kV1;
  if (IsTorchUtil(graph, function, "_rebuild_tensor_v2")) return Rebuild::kV2;
  if (IsTorchUtil(graph, function, "_rebuild_tensor_v3")) return Rebuild::kV3;
  return Rebuild::kNone;
}

// Positions of arguments that only some versions have.
constexpr std::size_t kV3DTypeArg = 6;

std::optional<PersistentStorage> StorageOf(const Graph& graph, const Call& call) {
  if (call.args.empty() || graph.kind(call.args[0]) != NodeKind::kPersistent) return std::nullopt;
  return ParsePersistentStorage(graph, call.args[0]);
}

std::optional<DType> DTypeOf(const Graph& graph, Rebuild rebuild, const Call& call,
                             const PersistentStorage& storage) {
  if (rebuild != Rebuild::kV3) return storage.dtype;
  if (call.args.size() <= kV3DTypeArg) return std::nullopt;
  const NodeId dtype = call.args[kV3DTypeArg];
  if (graph.kind(dtype) != NodeKind::kGlobal || graph.module(dtype) != "torch") return std::nullopt;
  return ParseDType(graph.name(dtype));
}

Status Bad(std::string_view rule) { return Error(ErrorKind::kBadItem, rule); }

// What torch stores of a tensor besides its elements. "conj" and "neg" are set if they are there,
// whatever their value is, as in torch.
Status ReadMetadata(const Graph& graph, NodeId metadata, StoredArray& array) {
  if (graph.kind(metadata) == NodeKind::kNone) return OkStatus();
  if (graph.kind(metadata) != NodeKind::kDict)
    return Bad("the metadata of a tensor are not a dict");
  if (graph.items(metadata).size() > 2 * kMaxMetadataItems) {
    return Bad("the metadata of a tensor are more than torch writes");
  }
  array.conjugated = graph.Find(metadata, "conj") != kNoNode;
  array.negated = graph.Find(metadata, "neg") != kNoNode;
  return OkStatus();
}

// Bytes from the start of the storage to the end of the last element. Errors: kSizeMismatch if it
// overflows.
Result<std::uint64_t> ReachBytes(const Dims& shape, const Dims& strides, std::uint64_t first_elem,
                                 std::uint64_t element_bytes) {
  std::uint64_t last = first_elem;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::uint64_t step = 0;
    if (!CheckedMul(static_cast<std::uint64_t>(shape[d] - 1),
                    static_cast<std::uint64_t>(strides[d]), &step) ||
        !CheckedAdd(last, step, &last)) {
      return Error(ErrorKind::kSizeMismatch, "the tensor reaches outside its storage")
          .Actual(fmt::format("size {}, strides {}", FormatDims(shape), FormatDims(strides)));
    }
  }
  std::uint64_t bytes = 0;
  if (!CheckedAdd(last, std::uint64_t{1}, &last) || !CheckedMul(last, element_bytes, &bytes)) {
    return Error(ErrorKind::kSizeMismatch, "the tensor reaches outside its storage");
  }
  return bytes;
}

// The part of its storage that a tensor may use.
struct Window {
  std::uint64_t offset_bytes = 0;  // from the start of the storage
  std::uint64_t size_bytes = 0;
};

Result<Window> WindowOf(const PersistentStorage& reference, const StorageExtent& storage) {
  // Torch trusts the reference and reads past the end of a record that is shorter.
  std::uint64_t announced = 0;
  if (!CheckedMul(reference.num_elems, reference.element_bytes, &announced) ||
      announced != storage.size_bytes) {
    return Error(ErrorKind::kSizeMismatch, "the storage has another size than its reference says")
        .Expected(
            fmt::format("{} elements of {} bytes", reference.num_elems, reference.element_bytes))
        .Actual(fmt::format("{} bytes", storage.size_bytes));
  }
  if (!reference.view) return Window{0, storage.size_bytes};
  Window window;
  if (!CheckedMul(reference.view->offset, reference.element_bytes, &window.offset_bytes) ||
      !CheckedMul(reference.view->size, reference.element_bytes, &window.size_bytes) ||
      !RangeFits(window.offset_bytes, window.size_bytes, storage.size_bytes)) {
    return Error(ErrorKind::kSizeMismatch, "a view reaches outside its storage");
  }
  return window;
}

// That all elements lie in the part of the storage that the tensor may use.
Status CheckReach(const RebuiltTensor& tensor, std::uint64_t first_elem,
                  std::uint64_t window_bytes) {
  const StoredArray& array = tensor.array;
  CKPT_ASSIGN_OR_RETURN(
      const std::uint64_t reach,
      ReachBytes(tensor.shape, array.strides, first_elem, ElementBytes(array.dtype)));
  if (reach <= window_bytes) return OkStatus();
  return Error(ErrorKind::kSizeMismatch,
               fmt::format("the tensor reaches outside its storage, {}", tensor.storage->name))
      .Expected(fmt::format("{} bytes for {} {}, stride {}, offset {}", reach,
                            DTypeName(array.dtype), FormatDims(tensor.shape),
                            FormatDims(array.strides), first_elem))
      .Actual(fmt::format("{} bytes", window_bytes));
}

}  // namespace

Result<Dims> ReadDims(const Graph& graph, NodeId node, std::string_view what) {
  if (const std::optional<Call> call = CallOf(graph, node);
      call && graph.IsGlobal(call->function, "torch", "Size") && call->args.size() == 1) {
    node = call->args[0];
  }
  if (graph.kind(node) != NodeKind::kTuple && graph.kind(node) != NodeKind::kList) {
    return Bad(fmt::format("the {} of a tensor is not a tuple", what));
  }
  if (graph.items(node).size() > kMaxDims) {
    return Bad(fmt::format("the {} of a tensor has more than {} dims", what, kMaxDims));
  }
  Dims dims;
  for (const NodeId item : graph.items(node)) {
    if (graph.kind(item) != NodeKind::kInt || graph.integer(item) < 0) {
      return Bad(fmt::format("the {} of a tensor holds something else than sizes", what));
    }
    dims.push_back(graph.integer(item));
  }
  return dims;
}

bool IsFarTooSmall(std::uint64_t stored_bytes, std::uint64_t asked_bytes) {
  return asked_bytes > kGiB && asked_bytes / kMaxTimesRepeated > stored_bytes;
}

Status TensorSum::Add(const RebuiltTensor& tensor) {
  sum_bytes_ += tensor.SizeBytes();
  if (!IsFarTooSmall(file_bytes_, sum_bytes_)) return OkStatus();
  return Error(ErrorKind::kResource, message_)
      .Expected(fmt::format("{} or more", FormatByteSize(sum_bytes_)))
      .Actual(FormatByteSize(file_bytes_));
}

TensorForm TensorFormOf(const Graph& graph, NodeId node) {
  const std::optional<Call> call = Unwrap(graph, node);
  if (!call) return TensorForm::kNone;
  const Rebuild rebuild = RebuildOf(graph, call->function);
  if (rebuild == Rebuild::kNone) {
    return RebuildsOtherForm(graph, call->function) ? TensorForm::kOther : TensorForm::kNone;
  }
  const std::optional<PersistentStorage> storage = StorageOf(graph, *call);
  // Malformed arguments are not decided here: RebuildTensor reports them.
  if (!storage) return TensorForm::kDense;
  return DTypeOf(graph, rebuild, *call, *storage) ? TensorForm::kDense : TensorForm::kOther;
}

bool IsFloat8Weight(const Graph& graph, NodeId node) {
  return WeightToCast(graph, node) != kNoNode;
}

std::vector<std::string> BesideElements(const Graph& graph, NodeId node) {
  std::vector<std::string> beside;
  Unwrap(graph, node, &beside);
  return beside;
}

Result<RebuiltTensor> RebuildTensor(const TorchContainer& container, NodeId node) {
  const Graph& graph = container.pickle.graph;
  const std::optional<Call> call = Unwrap(graph, node);
  CKPT_CHECK(call.has_value());
  if (call->is_changed) {
    return Error(ErrorKind::kUnsupported, "the pickle changes the tensor after it was rebuilt");
  }
  const Rebuild rebuild = RebuildOf(graph, call->function);
  const std::span<const NodeId> args = call->args;
  if (args.size() < 4) return Bad("a tensor is rebuilt from fewer than four arguments");
  const std::optional<PersistentStorage> reference = StorageOf(graph, *call);
  if (!reference) return Bad("a tensor is rebuilt from something that is not a storage");
  const std::optional<DType> dtype = DTypeOf(graph, rebuild, *call, *reference);
  CKPT_CHECK(dtype.has_value());
  if (graph.kind(args[1]) != NodeKind::kInt || graph.integer(args[1]) < 0) {
    return Bad("the storage offset of a tensor is not a size");
  }

  RebuiltTensor tensor;
  StoredArray& array = tensor.array;
  CKPT_ASSIGN_OR_RETURN(tensor.shape, ReadDims(graph, args[2], "size"));
  CKPT_ASSIGN_OR_RETURN(array.strides, ReadDims(graph, args[3], "stride"));
  if (tensor.shape.size() != array.strides.size()) {
    return Bad("size and stride of a tensor differ in length");
  }
  const auto found = container.storages.find(reference->key);
  if (found == container.storages.end()) {
    return Bad(fmt::format("the record of storage {} is missing", Quote(reference->key)))
        .Hint("the file was written by an interrupted or faulty program");
  }
  const StorageExtent& storage = found->second;
  tensor.storage = &storage;
  CKPT_ASSIGN_OR_RETURN(const Window window, WindowOf(*reference, storage));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t num_elems, CountElements(tensor.shape));
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, CountBytes(tensor.shape, *dtype));
  if (IsFarTooSmall(storage.size_bytes, size_bytes)) {
    return Error(ErrorKind::kResource, "the storage is far too small for its tensor")
        .Expected(FormatByteSize(size_bytes))
        .Actual(FormatByteSize(storage.size_bytes));
  }

  array.file = container.file;
  array.dtype = *dtype;
  array.offset_bytes = storage.offset_bytes + window.offset_bytes;
  // The offset of a tensor without elements has no meaning, so any value is accepted.
  if (num_elems != 0) {
    const auto first_elem = static_cast<std::uint64_t>(graph.integer(args[1]));
    CKPT_RETURN_IF_ERROR(CheckReach(tensor, first_elem, window.size_bytes));
    array.offset_bytes += first_elem * ElementBytes(*dtype);
  }
  array.byte_swapped = container.is_big_endian;
  const std::size_t metadata = rebuild == Rebuild::kV3 ? kV3DTypeArg + 1 : 6;
  if (rebuild != Rebuild::kV1 && args.size() > metadata) {
    CKPT_RETURN_IF_ERROR(ReadMetadata(graph, args[metadata], array));
  }
  return tensor;
}

}  // namespace ckpt::torch_save
