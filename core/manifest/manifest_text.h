// The manifest as the text of a file: docs/formats/ckptkit-json.md.
#ifndef CKPT_CORE_MANIFEST_MANIFEST_TEXT_H_
#define CKPT_CORE_MANIFEST_MANIFEST_TEXT_H_

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// The content of the file. Sorts files and tensors. REQUIRES: names are unique, every file has one
// checksum per block, and parity groups are as ParityGroup says.
[[nodiscard]] std::string SerializeManifest(Manifest manifest);

// `name` (a path) appears in errors.
//
// Errors: kChecksum (the text is not what was written), kUnsupported (a later version), kUnsafePath
// (a file outside the directory), kBadMetadata (any other error).
Result<Manifest> ParseManifest(std::string_view text, std::string_view name);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_MANIFEST_TEXT_H_
