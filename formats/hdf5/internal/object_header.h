// The messages that describe one object of an HDF5 file: a group or a data set.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_OBJECT_HEADER_H_
#define CKPT_FORMATS_HDF5_INTERNAL_OBJECT_HEADER_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Numbers of the file format.
enum class MessageType : std::uint16_t {
  kNil = 0x00,
  kDataspace = 0x01,
  kLinkInfo = 0x02,
  kDatatype = 0x03,
  kOldFillValue = 0x04,
  kFillValue = 0x05,
  kLink = 0x06,
  kExternalFiles = 0x07,
  kLayout = 0x08,
  kFilters = 0x0b,
  kAttribute = 0x0c,
  kContinuation = 0x10,
  kSymbolTable = 0x11,
  kDriverInfo = 0x14,
  kAttributeInfo = 0x15,
  kLast = 0x17,
};

struct Message {
  MessageType type = MessageType::kNil;
  // The body is a reference to a message that several objects share, which is not followed.
  bool is_shared = false;
  ByteSpan body;
  std::uint64_t at = 0;  // of the body in the file

  [[nodiscard]] FieldReader fields() const { return {body, at}; }
};

struct ObjectHeader {
  std::uint64_t at = 0;
  std::vector<Message> messages;  // without kNil and kContinuation
  std::vector<Bytes> blocks;      // that hold the messages
  bool has_checksums = false;     // of the blocks, which were compared

  // The first one; null if there is none.
  [[nodiscard]] const Message* Find(MessageType type) const;
};

// A header of version 1 has no checksum. So the lengths of its messages must be multiples of 8, as
// the HDF5 library asks for, and another number of messages than it says is a warning of the file.
//
// Errors: kBadMetadata, kChecksum, kUnsupported (a message of which its writer says that nobody may
// ignore it), those of StructureFile::Read.
Result<ObjectHeader> ReadObjectHeader(StructureFile& file, std::uint64_t at);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_OBJECT_HEADER_H_
