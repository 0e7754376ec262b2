// The stream that torch.save wrote before 1.6, and still writes on request: pickles in a row, then
// raw storages.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_LEGACY_STREAM_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_LEGACY_STREAM_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::torch_save {

// The pickle of 0x1950a86a20f9469cfc6c, the number that every such file starts with, in protocol 2.
inline constexpr std::string_view kLegacyMagic =
    "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19.";

// The bytes of this pickle at the start of a file; 0 where there is none. torch.save writes it in
// the protocol that its `pickle_protocol` names, 1 to 5.
std::uint64_t LegacyMagicBytes(std::string_view start);

// Errors: those of ParsePickle, kUnsupported (another protocol number), kBadItem (not what follows
// in such a file), kTruncated (storage data end early), kResource (a storage that announces more
// than the whole file), kIo. Bytes behind the last storage are a warning.
// Precondition: LegacyMagicBytes of the file is not 0.
Result<TorchContainer> OpenLegacyStream(std::shared_ptr<const ReadableFile> file);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_LEGACY_STREAM_H_
