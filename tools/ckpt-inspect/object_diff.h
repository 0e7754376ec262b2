// Which objects of two checkpoints differ.
#ifndef CKPT_TOOLS_CKPT_INSPECT_OBJECT_DIFF_H_
#define CKPT_TOOLS_CKPT_INSPECT_OBJECT_DIFF_H_

#include <string>
#include <vector>

#include "core/checkpoint/source.h"

namespace ckpt::inspect {

struct DifferingObject {
  std::string key;
  std::string a;  // as JSON
  std::string b;
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
