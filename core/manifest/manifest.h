// The manifest `ckptkit.json`: it proves the bytes of a checkpoint, and records what the format
// cannot say about its origin.
//
// docs/formats/ckptkit-json.md describes it byte by byte.
#ifndef CKPT_CORE_MANIFEST_MANIFEST_H_
#define CKPT_CORE_MANIFEST_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt {

inline constexpr std::string_view kManifestName = "ckptkit.json";
// A second copy of the manifest, written with parity: parity without a manifest cannot repair
// anything.
inline constexpr std::string_view kManifestCopyName = "ckptkit-parity.json";

// Whether a file of a manifest is a tracker: a text beside the checkpoint's directory
// ("../latest.txt") that names the checkpoint to resume from, or a file that goes with it
// (RunRoot::copied_file). Those are the only files outside the directory that a manifest may cover:
// later saves rewrite them, and a copy of the directory lacks them.
[[nodiscard]] bool IsTracker(std::string_view name);
// A tracker names one directory, so a longer text is none.
inline constexpr std::uint64_t kMaxTrackerBytes = 4096;

// Name of a parity file: this prefix, a number of three digits starting at 0, kParitySuffix.
inline constexpr std::string_view kParityPrefix = "ckptkit-parity-";
inline constexpr std::string_view kParitySuffix = ".xor";
[[nodiscard]] std::string ParityName(std::size_t number);
inline constexpr std::uint64_t kManifestBlockBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 30;

struct ManifestFile {
  std::string name;  // relative to the manifest's directory, '/' between components
  std::uint64_t size_bytes = 0;
  // CRC-32C of each block of kManifestBlockBytes. The last block may be shorter.
  std::vector<std::uint32_t> block_crc32c;
  // CRC-32 of the same blocks. One checksum makes a flipped bit likely, two prove it (see
  // CompareBlock). Empty if the writer did not store it.
  std::vector<std::uint32_t> block_crc32 = {};

  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

// A group of files. Any one of them can be rebuilt from the others: `parity_file` is the exclusive
// or of all members, each extended with zeros to the length of the longest.
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

// How the files of the origin were split, so that converting back gives the same files.
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
  std::vector<ManifestFile> files;       // sorted by the bytes of the name
  std::vector<ParityGroup> parity = {};  // disjoint; all their files are among `files`
  bool has_copy = false;                 // there is a kManifestCopyName file
  std::vector<ManifestTensor> tensors;   // sorted by the bytes of the key
  std::optional<ManifestOrigin> origin;

  // Position in `files`, which must be sorted. Nothing if there is no file of this name.
  [[nodiscard]] std::optional<std::size_t> FindFile(std::string_view name) const;
  // The same for the tracker.
  [[nodiscard]] std::optional<std::size_t> FindTracker() const;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// One value for a whole file: XXH3-128 of its size and the checksums of its blocks.
[[nodiscard]] std::string FileRoot(const ManifestFile& file);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_MANIFEST_H_
