// Numbers of the file format that readers and writers share. Those of headers' messages are in
// object_header.h.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_FORMAT_NUMBERS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_FORMAT_NUMBERS_H_

#include <cstdint>

namespace ckpt::hdf5 {

// A filter. Those from 32000 on are registered with the HDF Group.
inline constexpr std::uint16_t kZstdFilter = 32015;

// What a version-1 tree holds.
inline constexpr std::uint8_t kTreeOfLinks = 0;
inline constexpr std::uint8_t kTreeOfChunks = 1;

// The form of a selection.
inline constexpr std::uint32_t kSelectsHyperslab = 2;
inline constexpr std::uint32_t kSelectsAll = 3;

// Of a chunk, decoded: the library's own limit.
inline constexpr std::uint64_t kMaxChunkBytes = 0xffffffff;

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_FORMAT_NUMBERS_H_
