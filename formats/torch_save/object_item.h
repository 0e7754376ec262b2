// Renders pickled objects together with the tensors inside them.
#ifndef CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_
#define CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_

#include <string>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_save {

// The value at `node` by the rule of docs/formats/objects.md, its tensors by SHA-256. `key` names it in warnings and
// errors.
//
// Errors: kResource (too large to print), and those of reading the tensors: kBadItem, kSizeMismatch, kChecksum, kIo.
// Cost: reads every tensor inside the value.
Result<RenderedObject> RenderObject(const TorchContainer& container, pickle::NodeId node,
                                    const std::string& key);

// The same for a container that holds nothing else: its storages are compared with their checksums, those too
// that belong to values of which only the class is rendered.
Result<RenderedObject> RenderItem(const TorchContainer& container, pickle::NodeId node,
                                  const std::string& key);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_
