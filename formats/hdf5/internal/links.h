// The way from the start of an HDF5 file to its objects: superblock, groups and the links in them.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LINKS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LINKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Where the root group's object header lies. Errors: kBadMetadata, kChecksum, kUnsupported (a user
// block, sizes of other than eight bytes, a driver), kTruncated (the file is shorter than it says),
// kIncomplete (it was not closed).
Result<std::uint64_t> ReadSuperblock(StructureFile& file);

enum class LinkKind : std::uint8_t { kHard, kSoft, kExternal };

struct Link {
  std::string name;
  LinkKind kind = LinkKind::kHard;
  std::uint64_t at = 0;  // of the object header, for a hard link
};

// Whether anything of the object says that it is a group: it may be one without links.
[[nodiscard]] bool IsGroup(const ObjectHeader& header);

// The links of a group, sorted by the bytes of their names. Tables of links have no checksum: their
// names must ascend, by which the HDF5 library finds one, a symbolic link has no object, and what
// is behind the last entry of a node is a warning of the file.
//
// Errors: kBadMetadata (also for a name that occurs twice, is empty, or contains '/', and for what
// is no group), kUnsupported.
Result<std::vector<Link>> ReadLinks(StructureFile& file, const ObjectHeader& header);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LINKS_H_
