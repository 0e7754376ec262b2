// Numbers of the zip format that reader and writer share (docs/formats/torch_save.md).
#ifndef CKPT_FORMATS_ZIP_INTERNAL_FORMAT_H_
#define CKPT_FORMATS_ZIP_INTERNAL_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace ckpt::zip {

inline constexpr std::uint32_t kLocalHeaderSignature = 0x04034B50;
inline constexpr std::uint32_t kDataDescriptorSignature = 0x08074B50;
inline constexpr std::uint32_t kCentralEntrySignature = 0x02014B50;
inline constexpr std::uint32_t kZip64EndSignature = 0x06064B50;
inline constexpr std::uint32_t kZip64LocatorSignature = 0x07064B50;
inline constexpr std::uint32_t kEndSignature = 0x06054B50;

inline constexpr std::size_t kLocalHeaderBytes = 30;   // without name and extra field
inline constexpr std::size_t kCentralEntryBytes = 46;  // without name, extra field and comment
inline constexpr std::size_t kZip64EndBytes = 56;
inline constexpr std::size_t kZip64LocatorBytes = 20;
inline constexpr std::size_t kEndBytes = 22;  // without comment

// Encrypted, a patch, strongly encrypted, encrypted headers: bytes that are not the record's own.
inline constexpr std::uint16_t kFlagsEncrypted = 0x0001 | 0x0020 | 0x0040 | 0x2000;
inline constexpr std::uint16_t kFlagDataDescriptor = 0x0008;
inline constexpr std::uint16_t kFlagUtf8 = 0x0800;

inline constexpr std::uint16_t kZip64ExtraId = 0x0001;

// A field that holds this says: look into the zip64 extra field or end record.
inline constexpr std::uint32_t kSeeZip64 = 0xFFFFFFFF;
inline constexpr std::uint16_t kSeeZip64Count = 0xFFFF;

}  // namespace ckpt::zip

#endif  // CKPT_FORMATS_ZIP_INTERNAL_FORMAT_H_
