// Objects without content, which some loaders ask for beside the tensors.
#ifndef CKPT_CORE_CHECKPOINT_EMPTY_OBJECTS_H_
#define CKPT_CORE_CHECKPOINT_EMPTY_OBJECTS_H_

#include <string>

#include "core/tensor/shape.h"

namespace ckpt {

// A grid of them under one key. Without dims there is one.
struct EmptyObjects {
  std::string key;
  Dims grid;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_EMPTY_OBJECTS_H_
