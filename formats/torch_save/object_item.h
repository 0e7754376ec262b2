// Renders pickled objects together with the tensors inside them.
#ifndef CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_
#define CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_save {

// Compares a storage of the container with its checksum.
using VerifyFunction = std::function<Status(const StorageExtent& storage)>;

// Whether the tensors of values that are only named by class are looked for and digested, too.
enum class Held : std::uint8_t { kSkip, kDigest };

// The value at `node` by the rule of docs/formats/objects.md, its tensors by SHA-256. `key` names
// it in warnings and errors.
//
// Errors: kResource (too large to print), and those of reading the tensors: kBadItem,
// kSizeMismatch, kChecksum, kIo; those of `verify`.
// Cost: reads every tensor inside the value, and `verify` its storage.
Result<RenderedObject> RenderObject(const TorchContainer& container, pickle::NodeId node,
                                    const std::string& key, Held held,
                                    const VerifyFunction& verify);

// The value at `node` as a pickle of its own, with copies of the storages that it refers to, each
// of which was given to `verify`; for CheckpointSource::ReadPickled.
//
// Errors: those of pickle::CopyValue; kUnsupported (big-endian storages), kResource (more than 64
// MiB of them), kBadItem, kIo; those of `verify`.
Result<std::optional<PickledObject>> CopyObject(const TorchContainer& container,
                                                pickle::NodeId node, const VerifyFunction& verify);

// CopyObject that compares each storage with its checksum.
Result<std::optional<PickledObject>> CopyItem(const TorchContainer& container, pickle::NodeId node);

// RenderObject for a container that holds nothing else: its storages are compared with their
// checksums, those too that belong to values of which only the class is rendered.
Result<RenderedObject> RenderItem(const TorchContainer& container, pickle::NodeId node,
                                  const std::string& key);

// The same of an entry that is not stored yet, as it will be read. Errors: those of
// OpenZipContainer and RenderItem.
Result<RenderedObject> RenderPickled(const PickledEntry& entry);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_OBJECT_ITEM_H_
