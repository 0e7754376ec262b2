// Attributes of groups and data sets, as text and as JSON.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_ATTRIBUTE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_ATTRIBUTE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

struct Attribute {
  std::string name;
  Datatype type;
  Dataspace space;
  Bytes value;
  std::uint64_t at = 0;       // of the value
  bool has_checksum = false;  // that of its header, which was compared
};

struct UnreadAttribute {
  std::string name;  // empty if not even that is known
  Status why;        // kBadMetadata, kUnsupported, …
};

struct FoundAttributes {
  std::vector<Attribute> read;
  std::vector<UnreadAttribute> unread;

  // Why one is unread that has the name, or is so damaged that it may have it; OK if there is none.
  [[nodiscard]] Status WhyUnread(std::string_view name) const;
};

// One that cannot be read leaves the others readable. Errors: those of files that cannot be read.
Result<FoundAttributes> ReadEachAttribute(StructureFile& file, const ObjectHeader& header);
// All of them. Errors: kBadMetadata, kUnsupported, ….
Result<std::vector<Attribute>> ReadAttributes(StructureFile& file, const ObjectHeader& header);

// The first of that name; null if there is none. It belongs to `attributes`.
[[nodiscard]] const Attribute* FindAttribute(const std::vector<Attribute>& attributes,
                                             std::string_view name);

// Fills in `checksum` of a data set of a file that this program wrote, from its attribute. Another
// program may have stored the data set again in several pieces: of these, the attribute says
// nothing. Errors: kBadMetadata (it is not one unsigned number of 32 bits), kOutOfRange.
Status TakeChecksum(const StructureFile& file, const std::vector<Attribute>& attributes,
                    DataSet& set);

// The text of a single value, without the padding; nothing if it is no text.
// Errors: those of ReadHeapObject.
Result<std::optional<std::string>> TextOf(StructureFile& file, const Attribute& attribute);

// Text, numbers and bools, and arrays of them, as docs/formats/objects.md has them; anything else
// by the name of its type. Errors: those of ReadHeapObject.
Result<RenderedObject> Render(StructureFile& file, const Attribute& attribute);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_ATTRIBUTE_H_
