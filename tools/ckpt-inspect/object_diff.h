// Which objects of two checkpoints differ, and where first.
#ifndef CKPT_TOOLS_CKPT_INSPECT_OBJECT_DIFF_H_
#define CKPT_TOOLS_CKPT_INSPECT_OBJECT_DIFF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/checkpoint/source.h"

namespace ckpt::inspect {

enum class ObjectDifference : std::uint8_t {
  kValues,
  kKeyOrder,  // the same values; some mapping has its keys in another order
  kTensors,   // the same text; some tensor differs that it only names
};

// The first place at which two objects differ, in the order of A.
struct DifferingPlace {
  // A JSON pointer (RFC 6901) into A, or into B where A has nothing there: "/$object/state/lr". Of
  // kKeyOrder the mapping.
  std::string pointer;
  // Of kValues what is there, as JSON. Nothing: that side has no such key or item.
  std::optional<std::string> a = {};
  std::optional<std::string> b = {};
};

struct DifferingObject {
  std::string key;
  std::string a;  // as JSON
  std::string b;
  ObjectDifference what = ObjectDifference::kValues;
  std::optional<DifferingPlace> first = {};  // nothing: of kTensors, or too large to look for it
  std::int64_t num_places = 0;               // of kValues: values, and keys or items of one side
  // Of kTensors the first tensor that differs. Nothing: that side has no such tensor.
  std::optional<HeldTensor> tensor_a = {};
  std::optional<HeldTensor> tensor_b = {};
};

// In byte order of the key. Where only a copy that a rank has differs, it is called
// "args (copy 2)".
struct ObjectDiff {
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  std::vector<DifferingObject> different;  // by their JSON, and by the digests of tensors in them
  std::vector<Problem> unreadable;         // objects of both that cannot be read on some side
};

[[nodiscard]] ObjectDiff DiffObjects(const CheckpointSource& a, const CheckpointSource& b);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_OBJECT_DIFF_H_
