// Groups of a structure that is written.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_WRITE_GROUP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_WRITE_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "formats/hdf5/internal/tail.h"

namespace ckpt::hdf5 {

struct NewLink {
  std::string name;
  std::uint64_t at = 0;  // of the object's header
};

// The header of a group: a table of links, and how many there are, for the table has no checksum.
// `attributes`: further ones, encoded. Returns the header's address.
std::uint64_t WriteGroup(std::vector<NewLink> links, std::vector<Bytes> attributes, Tail& tail);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_WRITE_GROUP_H_
