#include "formats/hdf5/internal/new_data_sets.h"

#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "formats/hdf5/internal/held_numbers.h"
#include "formats/hdf5/internal/held_path.h"
#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {
namespace {

// An entry that stands on top of the nested object needs no attribute.
void AddPath(const EntryPaths& paths, const std::string& key, NewDataSet& set) {
  const auto found = paths.find(key);
  if (found == paths.end() || IsOnTop(key, found->second)) return;
  set.attributes.emplace_back(kPathAttribute, EncodePath(found->second));
}

}  // namespace

bool IsOnTop(const std::string& key, const EntryPath& path) { return path == EntryPath{key}; }

NewDataSet DataSetOf(const TargetTensor& tensor, const EntryPaths& paths) {
  NewDataSet set{.group = kTensorsGroup,
                 .name = LinkNameOf(tensor.key),
                 .dtype = tensor.dtype,
                 .shape = tensor.shape,
                 .attributes = {{kKeyAttribute, tensor.key},
                                {kDtypeAttribute, std::string(DTypeName(tensor.dtype))}}};
  AddPath(paths, tensor.key, set);
  return set;
}

std::vector<NewDataSet> TextsOf(const WeightsRequest& request) {
  std::vector<NewDataSet> texts;
  for (const CarriedObject& object : request.carried_objects) {
    texts.push_back({.group = kObjectsGroup,
                     .name = LinkNameOf(object.key),
                     .shape = {},
                     .attributes = {{kKeyAttribute, object.key}, {kTypeAttribute, object.type}},
                     .text = object.json});
    if (!object.numbers.empty()) {
      texts.back().attributes.emplace_back(kNumbersAttribute, EncodeNumbers(object.numbers));
    }
    AddPath(request.paths, object.key, texts.back());
  }
  if (!request.origin.empty()) {
    texts.push_back({.group = {}, .name = kOriginName, .shape = {}, .text = request.origin});
  }
  return texts;
}

void AddKnown(std::span<const MemoryTensor> tensors, const EntryPaths& paths, std::uint32_t file,
              std::uint64_t& end, std::vector<NewDataSet>& sets,
              std::vector<WriteLiteral>& literals) {
  for (const MemoryTensor& tensor : tensors) {
    const std::uint64_t at = AlignUp(end, kAlignment);
    sets.push_back(DataSetOf({tensor.key, tensor.dtype, tensor.shape}, paths));
    sets.back().at = at;
    if (!tensor.values.empty()) sets.back().crc32 = Crc32(tensor.values);
    literals.push_back({.file = file, .offset_bytes = at, .bytes = tensor.values});
    end = at + tensor.values.size();
  }
}

}  // namespace ckpt::hdf5
