// How an HDF5 file that this program writes is laid out: docs/formats/hdf5.md.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_NAMES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::hdf5 {

// The file of a checkpoint that must be a directory, as a run's must.
inline constexpr std::string_view kFileInDirectory = "checkpoint.h5";

// The attribute of the root group by which such a file is known; its value is kLayoutVersion.
inline constexpr char kLayoutAttribute[] = "ckptkit_layout";
inline constexpr std::int64_t kLayoutVersion = 1;

inline constexpr char kTensorsGroup[] = "tensors";
inline constexpr char kObjectsGroup[] = "objects";
inline constexpr char kChunksGroup[] = "chunks";
// A data set of the root: the manifest's account of where the checkpoint came from.
inline constexpr char kOriginName[] = "ckptkit_origin";
// An attribute of a group: how many links it has.
inline constexpr char kLinksAttribute[] = "links";
// Attributes of a data set.
inline constexpr char kKeyAttribute[] = "key";
inline constexpr char kDtypeAttribute[] = "dtype";
inline constexpr char kTypeAttribute[] = "type";
inline constexpr char kNumbersAttribute[] = "numbers";
inline constexpr char kPathAttribute[] = "path";
// The CRC-32 of the data set's bytes, where they lie in the file in one piece.
inline constexpr char kCrc32Attribute[] = "crc32";

// A key as the name of a link: '/' and '%' become %2F and %25, an empty key "%", and "." %2E.
[[nodiscard]] std::string LinkNameOf(std::string_view key);

// The name of a file or a data set as the map of a virtual data set has it, where "%b" stands for
// the number of a block: '%' becomes "%%".
[[nodiscard]] std::string SourceNameIn(std::string_view name);
// The name that stands there so; nothing if it has the number of a block, or another '%'.
[[nodiscard]] std::optional<std::string> NameOfSource(std::string_view written);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_NAMES_H_
