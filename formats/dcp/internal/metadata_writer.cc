#include "formats/dcp/internal/metadata_writer.h"

#include <string_view>
#include <variant>

#include "core/base/check.h"
#include "formats/dcp/internal/flat_blocks.h"
#include "formats/pickle/writer.h"

namespace ckpt::dcp {
namespace {

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFileSystem = "torch.distributed.checkpoint.filesystem";
constexpr std::string_view kVersion = "1.0.0";

class MetadataEncoder {
 public:
  explicit MetadataEncoder(const MetadataContent& content)
      : content_(content),
        out_(pickle::Dialect::kProtocol4),
        path_slots_(content.files.size(), kNone) {}

  Bytes Run();

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void Class(std::string_view module, std::string_view name) {
    out_.Global(module, name).EmptyTuple().NewObject();
  }
  void Size(DimsView dims) { out_.Global("torch", "Size").IntTuple(dims).InTuple().Reduce(); }
  // Null if the tensor is stored as it is.
  [[nodiscard]] const Dims* GridOf(const TargetTensor& tensor) const;
  // Of what is stored.
  [[nodiscard]] Box BoxOf(const WriteItem& item) const;
  void Tensors();
  // All of a tensor's entry but its chunks, which follow as a list.
  void BeginTensor(DType dtype, DimsView shape);
  void Properties(DType dtype);
  void Chunk(const Box& box);
  void StorageData();
  // A MetadataIndex. That of an object has no offset.
  void Index(std::uint32_t key_slot, std::optional<std::int64_t> position, const Dims* offset);
  void StorageInfo(std::uint32_t file, const ItemExtent& extent, std::string_view transform);
  void PlannerData();
  void StorageMeta();
  void OriginalShapes();

  const MetadataContent& content_;
  pickle::PickleWriter out_;
  std::vector<std::uint32_t> tensor_slots_;  // memo slots of the keys
  std::vector<std::uint32_t> known_slots_;
  std::vector<std::uint32_t> object_slots_;
  std::vector<std::uint32_t> path_slots_;  // of the file names, kNone before their first use
};

// TensorProperties pickles as the 5-tuple of torch up to 2.14; later versions read it too.
void MetadataEncoder::Properties(DType dtype) {
  Class(kModule, "TensorProperties");
  out_.BeginTuple().Global("torch", DTypeName(dtype));
  out_.Global("torch.serialization", "_get_layout").SharedText("torch.strided").InTuple().Reduce();
  out_.Bool(false);                                                        // requires_grad
  out_.Global(kModule, "_MEM_FORMAT_ENCODING").Int(0).InTuple().Reduce();  // contiguous
  out_.Bool(false).EndTuple().Build();                                     // pin_memory
}

void MetadataEncoder::Chunk(const Box& box) {
  Class(kModule, "ChunkStorageMetadata");
  out_.BeginDict().SharedText("offsets");
  Size(box.offsets);
  out_.SharedText("sizes");
  Size(box.sizes);
  out_.EndDict().Build();
}

void MetadataEncoder::BeginTensor(DType dtype, DimsView shape) {
  Class(kModule, "TensorStorageMetadata");
  out_.BeginDict().SharedText("properties");
  Properties(dtype);
  out_.SharedText("size");
  Size(shape);
  out_.SharedText("chunks").BeginList();
}

void MetadataEncoder::Tensors() {
  out_.BeginDict();
  std::size_t item = 0;
  for (std::uint32_t t = 0; t < content_.tensors.size(); ++t) {
    const TargetTensor& tensor = content_.tensors[t];
    out_.Text(tensor.key);
    tensor_slots_.push_back(out_.Memoize());
    const Dims* const grid = GridOf(tensor);
    BeginTensor(tensor.dtype, grid == nullptr ? tensor.shape : StoredShape(tensor.shape, *grid));
    for (; item < content_.items.size() && content_.items[item].tensor == t; ++item) {
      Chunk(BoxOf(content_.items[item]));
    }
    out_.EndList().EndDict().Build();
  }
  CKPT_CHECK(item == content_.items.size());
  for (const StoredTensor& tensor : content_.known_tensors) {
    out_.Text(tensor.key);
    known_slots_.push_back(out_.Memoize());
    BeginTensor(tensor.dtype, tensor.shape);
    Chunk(WholeBox(tensor.shape));
    out_.EndList().EndDict().Build();
  }
  for (const StoredObject& object : content_.objects) {
    out_.Text(object.key);
    object_slots_.push_back(out_.Memoize());
    Class(kModule, "BytesStorageMetadata");
  }
  out_.EndDict();
}

void MetadataEncoder::PlannerData() {
  if (!content_.planner_data) {
    out_.None();
    return;
  }
  out_.BeginDict();
  for (const PlannerEntry& entry : *content_.planner_data) {
    out_.Text(entry.key).BeginTuple();
    for (const PathStep& step : entry.path) {
      if (const auto* name = std::get_if<std::string>(&step)) {
        out_.Text(*name);
      } else {
        out_.Int(std::get<std::int64_t>(step));
      }
    }
    out_.EndTuple();
  }
  out_.EndDict();
}

void MetadataEncoder::Index(std::uint32_t key_slot, std::optional<std::int64_t> position,
                            const Dims* offset) {
  Class(kModule, "MetadataIndex");
  out_.BeginDict().SharedText("fqn").Recall(key_slot).SharedText("index");
  if (position) {
    out_.Int(*position);
  } else {
    out_.None();
  }
  if (offset != nullptr) {
    out_.SharedText("offset");
    Size(*offset);
  }
  out_.EndDict().Build();
}

void MetadataEncoder::StorageInfo(std::uint32_t file, const ItemExtent& extent,
                                  std::string_view transform) {
  Class(kFileSystem, "_StorageInfo");
  out_.BeginDict().SharedText("relative_path");
  if (path_slots_[file] == kNone) {
    out_.Text(content_.files[file].name);
    path_slots_[file] = out_.Memoize();
  } else {
    out_.Recall(path_slots_[file]);
  }
  out_.SharedText("offset").Int(static_cast<std::int64_t>(extent.offset_bytes));
  out_.SharedText("length").Int(static_cast<std::int64_t>(extent.size_bytes));
  if (!transform.empty()) {
    out_.SharedText("transform_descriptors").BeginList().SharedText(transform).EndList();
  }
  out_.EndDict().Build();
}

void MetadataEncoder::StorageData() {
  out_.BeginDict();
  std::int64_t position = 0;
  for (std::size_t i = 0; i < content_.items.size(); ++i) {
    const WriteItem& item = content_.items[i];
    position = i > 0 && content_.items[i - 1].tensor == item.tensor ? position + 1 : 0;
    const Box box = BoxOf(item);
    Index(tensor_slots_[item.tensor], position, &box.offsets);
    StorageInfo(item.file, {.offset_bytes = item.offset_bytes, .size_bytes = item.size_bytes},
                content_.item_transform);
  }
  for (std::size_t i = 0; i < content_.known_tensors.size(); ++i) {
    const StoredTensor& tensor = content_.known_tensors[i];
    const Dims origin(tensor.shape.size(), 0);
    Index(known_slots_[i], 0, &origin);
    StorageInfo(tensor.file, {.offset_bytes = tensor.offset_bytes, .size_bytes = tensor.size_bytes},
                {});
  }
  for (std::size_t i = 0; i < content_.objects.size(); ++i) {
    const StoredObject& object = content_.objects[i];
    Index(object_slots_[i], std::nullopt, nullptr);
    StorageInfo(object.file, {.offset_bytes = object.offset_bytes, .size_bytes = object.size_bytes},
                {});
  }
  out_.EndDict();
}

void MetadataEncoder::StorageMeta() {
  Class(kModule, "StorageMeta");
  // torch's own writer puts a pathlib object here, which older versions of Python cannot load. This
  // is text instead.
  out_.BeginDict().Text("checkpoint_id").Text(content_.checkpoint_id);
  out_.Text("save_id").Text(content_.save_id).Text("load_id").None();
  out_.Text("modules").BeginList().EndList().EndDict().Build();
}

const Dims* MetadataEncoder::GridOf(const TargetTensor& tensor) const {
  if (content_.flattened == nullptr) return nullptr;
  const auto found = content_.flattened->find(tensor.key);
  return found == content_.flattened->end() ? nullptr : &found->second;
}

Box MetadataEncoder::BoxOf(const WriteItem& item) const {
  const TargetTensor& tensor = content_.tensors[item.tensor];
  const Dims* const grid = GridOf(tensor);
  return grid == nullptr ? item.box : StoredBox(tensor.shape, *grid, item.box);
}

// Megatron-Core's attribute of the metadata.
void MetadataEncoder::OriginalShapes() {
  if (content_.flattened == nullptr || content_.flattened->empty()) return;
  out_.Text("mcore_data").BeginDict();
  for (std::uint32_t t = 0; t < content_.tensors.size(); ++t) {
    if (GridOf(content_.tensors[t]) == nullptr) continue;
    out_.Recall(tensor_slots_[t]).BeginDict();
    out_.SharedText("nd_reformulated_orig_global_shape").IntTuple(content_.tensors[t].shape);
    out_.EndDict();
  }
  out_.EndDict();
}

Bytes MetadataEncoder::Run() {
  out_.Reserve(1024 + content_.items.size() * 110);
  Class(kModule, "Metadata");
  out_.BeginDict().Text("state_dict_metadata");
  Tensors();
  out_.Text("planner_data");
  PlannerData();
  out_.Text("storage_data");
  StorageData();
  out_.Text("storage_meta");
  StorageMeta();
  out_.Text("version").Text(kVersion);
  OriginalShapes();
  out_.EndDict().Build();
  return out_.Take();
}

}  // namespace

Bytes EncodeMetadata(const MetadataContent& content) { return MetadataEncoder(content).Run(); }

}  // namespace ckpt::dcp
