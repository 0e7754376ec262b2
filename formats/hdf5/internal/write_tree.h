// Version-1 B-trees of a structure that is written.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_WRITE_TREE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_WRITE_TREE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "formats/hdf5/internal/tail.h"

namespace ckpt::hdf5 {

// An entry of a tree: what comes before it, and its address.
struct TreeEntry {
  Bytes key;
  std::uint64_t at = 0;
};

// Writes the nodes over `entries`, at most `fan_out` a node, and returns the root's address.
// `last`: the key behind the last entry. `type`: kTreeOfLinks or kTreeOfChunks.
std::uint64_t WriteTree(std::vector<TreeEntry> entries, const Bytes& last, std::uint8_t type,
                        std::size_t fan_out, Tail& tail);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_WRITE_TREE_H_
