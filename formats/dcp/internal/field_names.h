// The fields of a `.metadata` pickle's small objects, by name.
#ifndef CKPT_FORMATS_DCP_INTERNAL_FIELD_NAMES_H_
#define CKPT_FORMATS_DCP_INTERNAL_FIELD_NAMES_H_

#include <array>
#include <cstdint>

#include "formats/pickle/graph.h"
#include "formats/pickle/literal.h"

namespace ckpt::dcp {

// Of ChunkStorageMetadata, MetadataIndex and _StorageInfo, as far as they matter.
enum class FieldName : std::uint8_t {
  kOffsets,
  kSizes,
  kFqn,
  kOffset,
  kLength,
  kRelativePath,
  kTransformDescriptors,
  kOther,
};

// The values of one instance.
class Fields {
 public:
  // nullptr where absent.
  [[nodiscard]] const pickle::Literal* Get(FieldName name) const {
    return values_[static_cast<std::size_t>(name)];
  }
  void Set(FieldName name, const pickle::Literal* value) {
    values_[static_cast<std::size_t>(name)] = value;
  }

 private:
  std::array<const pickle::Literal*, static_cast<std::size_t>(FieldName::kOther) + 1> values_{};
};

// Sorts the fields of instances of one pickle by name.
class FieldNames {
 public:
  // As in Python, the last of several values of one name counts.
  Fields Sort(const pickle::Graph& graph, const pickle::InstanceLiteral& instance);

 private:
  struct Known {
    pickle::NodeId node = pickle::kNoNode;
    FieldName name = FieldName::kOther;
  };
  // What is known of the names' nodes. They never go away, so a number stays the same name.
  std::array<Known, 64> known_;
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_FIELD_NAMES_H_
