// What must hold of every manifest, whoever made it.
#ifndef CKPT_CORE_MANIFEST_INTERNAL_MANIFEST_RULES_H_
#define CKPT_CORE_MANIFEST_INTERNAL_MANIFEST_RULES_H_

#include <string_view>

#include "core/base/status.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// How the name of a file beside the directory begins.
inline constexpr std::string_view kOutside = "../";

// Whether the file has one checksum of each kind per block. It may have no CRC-32 at all.
[[nodiscard]] bool HasAllChecksums(const ManifestFile& file);

// Whether names lie in the directory, are sorted and none occurs twice, and parity groups are as
// ParityGroup says. Errors: kUnsafePath, kBadMetadata.
Status CheckManifest(const Manifest& manifest);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_INTERNAL_MANIFEST_RULES_H_
