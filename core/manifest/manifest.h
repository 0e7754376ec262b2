// The sidecar `ckptkit.json`: what proves the bytes of a checkpoint, and what its format cannot say about its origin.
//
// docs/formats/ckptkit-json.md describes it byte by byte.
#ifndef CKPT_CORE_MANIFEST_MANIFEST_H_
#define CKPT_CORE_MANIFEST_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace ckpt {

inline constexpr std::string_view kManifestName = "ckptkit.json";
// The same bytes once more, where there is parity: without a manifest parity mends nothing.
inline constexpr std::string_view kManifestCopyName = "ckptkit-parity.json";

// Whether a file of a manifest is a tracker: a text beside the checkpoint's directory ("../latest.txt") that names the
// checkpoint to go on from. It is the one file outside the directory that a manifest may cover: later saves rewrite it, and
// a copy of the directory lacks it.
[[nodiscard]] bool IsTracker(std::string_view name);

// What parity files are called: this, a number of three digits from 0, kParitySuffix.
inline constexpr std::string_view kParityPrefix = "ckptkit-parity-";
inline constexpr std::string_view kParitySuffix = ".xor";
[[nodiscard]] std::string ParityName(std::size_t number);
inline constexpr std::uint64_t kManifestBlockBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

struct ManifestFile {
  std::string name;  // relative to the manifest's directory, '/' between components
  std::uint64_t size_bytes = 0;
  std::vector<std::uint32_t>
      block_crc32c;  // of each block of kManifestBlockBytes; the last may be shorter
  // CRC-32 of the same blocks: what one checksum makes likely, two prove (see CompareBlock). Empty where
  // the writer did not say it.
  std::vector<std::uint32_t> block_crc32 = {};

  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

// Files of which any one can be rebuilt from the rest: `parity_file` is the exclusive or of them all,
// each continued with zeros to the length of the longest.
struct ParityGroup {
  std::string parity_file;
  std::vector<std::string> members;

  friend bool operator==(const ParityGroup&, const ParityGroup&) = default;
};

struct ManifestTensor {
  std::string key;
  std::string xxh3;  // of the logical tensor, as `ckpt-inspect digest` prints it

  friend bool operator==(const ManifestTensor&, const ManifestTensor&) = default;
};

// How the files of the origin were laid out, so that converting back gives the same files.
struct ManifestShard {
  std::string file;
  std::optional<std::vector<std::pair<std::string, std::string>>> metadata;
  std::vector<std::string> tensors;

  friend bool operator==(const ManifestShard&, const ManifestShard&) = default;
};

struct ManifestOrigin {
  std::string format;
  std::vector<ManifestShard> shards;
  std::vector<std::string> dropped;            // source keys that were left out
  std::map<std::string, std::string> choices;  // "family" → "qwen3_moe", …

  friend bool operator==(const ManifestOrigin&, const ManifestOrigin&) = default;
};

struct Manifest {
  std::string tool;                      // "ckptkit 0.1.0"
  std::vector<ManifestFile> files;       // in byte order of the name
  std::vector<ParityGroup> parity = {};  // disjoint; all their files are among `files`
  bool has_copy = false;                 // kManifestCopyName lies beside it
  std::vector<ManifestTensor> tensors;   // in byte order of the key
  std::optional<ManifestOrigin> origin;

  // Position in `files`, which must be in order; nothing if there is none of this name.
  [[nodiscard]] std::optional<std::size_t> FindFile(std::string_view name) const;
  // The same of the tracker.
  [[nodiscard]] std::optional<std::size_t> FindTracker() const;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// One value for a whole file: XXH3-128 over its size and the checksums of its blocks.
[[nodiscard]] std::string FileRoot(const ManifestFile& file);

// The file's content. Files and tensors are put into order. REQUIRES: names are unique, every file has as many
// checksums as blocks, and parity groups are as ParityGroup says.
[[nodiscard]] std::string SerializeManifest(Manifest manifest);

// `name` (a path) appears in errors.
//
// Errors: kChecksum (the text is not what was written), kUnsupported (a later version), kUnsafePath (a file outside the
//         directory), kBadMetadata (all else).
Result<Manifest> ParseManifest(std::string_view text, std::string_view name);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_MANIFEST_H_
