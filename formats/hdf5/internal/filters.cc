#include "formats/hdf5/internal/filters.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/codec/lzf.h"
#include "core/codec/zlib.h"
#include "core/codec/zstd.h"
#include "formats/hdf5/internal/format_numbers.h"

namespace ckpt::hdf5 {
namespace {

struct KnownFilter {
  std::uint16_t id;
  Filtering filtering;
  std::string_view name;
  bool has_checksum;  // always; frames of zstd may have one
};

// The numbers from 32000 on are registered with the HDF Group.
constexpr std::array<KnownFilter, 5> kKnown = {{{1, Filtering::kDeflate, "deflate", true},
                                                {2, Filtering::kShuffle, "shuffle", false},
                                                {3, Filtering::kFletcher32, "fletcher32", true},
                                                {32000, Filtering::kLzf, "lzf", false},
                                                {kZstdFilter, Filtering::kZstd, "zstd", false}}};

constexpr std::size_t kFletcherBytes = 4;

const KnownFilter& AboutFilter(Filtering filtering) {
  return *std::ranges::find(kKnown, filtering, &KnownFilter::filtering);
}

// Bytes of elements that were stored all first bytes first, then all second ones.
Bytes Unshuffle(ByteSpan shuffled, std::uint64_t element_bytes) {
  Bytes out(shuffled.size());
  const std::uint64_t count = shuffled.size() / element_bytes;
  for (std::uint64_t b = 0; b < element_bytes; ++b) {
    for (std::uint64_t e = 0; e < count; ++e) out[e * element_bytes + b] = shuffled[b * count + e];
  }
  // What does not fill an element is left as it is.
  const std::uint64_t whole = count * element_bytes;
  std::ranges::copy(shuffled.subspan(whole), out.begin() + static_cast<std::ptrdiff_t>(whole));
  return out;
}

// HDF5's form of Fletcher's checksum: over 16-bit words whose first byte is the high one.
std::uint32_t Fletcher32(ByteSpan bytes) {
  std::uint64_t sum1 = 0;
  std::uint64_t sum2 = 0;
  const auto add = [&](std::uint64_t word) {
    sum1 = (sum1 + word) % 0xFFFF;
    sum2 = (sum2 + sum1) % 0xFFFF;
  };
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    add(std::to_integer<std::uint64_t>(bytes[i]) << 8U |
        std::to_integer<std::uint64_t>(bytes[i + 1]));
  }
  if (bytes.size() % 2 != 0) add(std::to_integer<std::uint64_t>(bytes.back()) << 8U);
  return static_cast<std::uint32_t>(sum2 << 16U | sum1);
}

// Zero and 0xFFFF are one sum, of which the library stores either.
std::uint32_t Normalized(std::uint32_t sum) {
  const std::uint32_t high = sum >> 16U;
  const std::uint32_t low = sum & 0xFFFFU;
  return (high == 0xFFFFU ? 0 : high) << 16U | (low == 0xFFFFU ? 0 : low);
}

Result<Bytes> CheckFletcher(Bytes bytes) {
  if (bytes.size() < kFletcherBytes) {
    return Error(ErrorKind::kTruncated, "a chunk is shorter than its checksum");
  }
  const std::size_t size = bytes.size() - kFletcherBytes;
  const auto stored = LoadLe<std::uint32_t>(bytes.data() + size);
  const std::uint32_t actual = Fletcher32(ByteSpan(bytes).first(size));
  if (Normalized(stored) != Normalized(actual)) {
    return Error(ErrorKind::kChecksum, "the checksum of a chunk differs")
        .Expected(fmt::format("{:08x}", stored))
        .Actual(fmt::format("{:08x}", actual));
  }
  bytes.resize(size);
  return bytes;
}

Result<Bytes> Undo(Bytes bytes, Filtering filtering, std::uint64_t max_bytes,
                   std::uint64_t element_bytes) {
  switch (filtering) {
    case Filtering::kShuffle:
      return Unshuffle(bytes, element_bytes);
    case Filtering::kFletcher32:
      return CheckFletcher(std::move(bytes));
    case Filtering::kDeflate:
      return ZlibDecompress(bytes, max_bytes);
    case Filtering::kLzf:
      return LzfDecompress(bytes, max_bytes);
    case Filtering::kZstd:
      return ZstdDecompress(bytes, {.max_output_bytes = max_bytes});
  }
  return bytes;
}

// Whether a frame says that it holds all of so many bytes, and ends with their checksum (RFC 8878,
// section 3.1.1.1). One that does not say its size may be followed by a frame without a checksum.
bool IsFrameWithChecksum(ByteSpan head, std::uint64_t content_bytes) {
  constexpr std::uint32_t kMagic = 0xFD2FB528;
  constexpr std::uint32_t kHasChecksum = 0x04;
  constexpr std::uint32_t kIsSingleSegment = 0x20;
  constexpr std::array<std::size_t, 4> kDictionaryBytes = {0, 1, 2, 4};
  constexpr std::array<std::size_t, 4> kSizeBytes = {0, 2, 4, 8};
  constexpr std::uint64_t kLeastOfTwoBytes = 256;
  FieldReader fields(head, 0);
  const bool is_frame = fields.U32() == kMagic;
  const std::uint32_t descriptor = fields.U8();
  const bool is_single_segment = (descriptor & kIsSingleSegment) != 0;
  if (!is_single_segment) fields.Skip(1);  // the size of the window
  fields.Skip(kDictionaryBytes[descriptor & 0x03U]);
  std::size_t size_bytes = kSizeBytes[descriptor >> 6U];
  if (size_bytes == 0 && is_single_segment) size_bytes = 1;
  const std::uint64_t stated = fields.Uint(size_bytes) + (size_bytes == 2 ? kLeastOfTwoBytes : 0);
  return fields.ok() && is_frame && (descriptor & kHasChecksum) != 0 && size_bytes != 0 &&
         stated == content_bytes;
}

}  // namespace

std::string NamesOf(const Filterings& filterings) {
  std::string names;
  for (const Filtering filtering : filterings) {
    if (!names.empty()) names += '+';
    names += AboutFilter(filtering).name;
  }
  return names;
}

Result<Filterings> FilteringsOf(const StructureFile& file, const DataSet& set,
                                std::uint32_t skipped) {
  Filterings filterings;
  bool are_known = true;
  for (std::size_t f = 0; f < set.filters.size(); ++f) {
    if (f < 32 && (skipped >> f & 1U) != 0) continue;
    const auto* const known = std::ranges::find(kKnown, set.filters[f].id, &KnownFilter::id);
    if (known == kKnown.end()) {
      are_known = false;
    } else {
      filterings.push_back(known->filtering);
    }
  }
  if (are_known) return filterings;
  std::string names;
  for (const Filter& filter : set.filters) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", filter.id);
    if (!filter.name.empty()) names += fmt::format(" ({})", EscapeControls(filter.name));
  }
  std::string expected;
  for (const KnownFilter& known : kKnown) {
    expected += fmt::format("{}{} ({})", expected.empty() ? "" : ", ", known.name, known.id);
  }
  return Error(ErrorKind::kUnsupported, "a filter that this build does not read")
      .File(file.file().name())
      .Expected(expected)
      .Actual(names)
      .Hint("write the data set again without the filter (h5repack -f NONE)");
}

Result<Bytes> UndoFilters(Bytes stored, const Filterings& filterings, std::uint64_t decoded_bytes,
                          std::uint64_t element_bytes) {
  // What is not made smaller grows: by an eighth at most, where zlib-ng stores it, and a few bytes
  // of headers and checksums.
  const std::uint64_t max_packed_bytes = decoded_bytes + decoded_bytes / 8 + 4 * kKiB;
  Bytes bytes = std::move(stored);
  for (std::size_t f = filterings.size(); f-- > 0;) {
    const std::uint64_t max_bytes = f == 0 ? decoded_bytes : max_packed_bytes;
    CKPT_ASSIGN_OR_RETURN(bytes, Undo(std::move(bytes), filterings[f], max_bytes, element_bytes));
  }
  if (bytes.size() == decoded_bytes) return bytes;
  return Error(ErrorKind::kSizeMismatch, "a chunk decodes to another size")
      .Expected(fmt::format("{} bytes", decoded_bytes))
      .Actual(fmt::format("{} bytes", bytes.size()));
}

bool HaveChecksum(const Filterings& filterings, ByteSpan head, std::uint64_t decoded_bytes) {
  const auto has_one = [](Filtering filtering) { return AboutFilter(filtering).has_checksum; };
  if (std::ranges::any_of(filterings, has_one)) return true;
  const bool is_frame = !filterings.empty() && filterings.back() == Filtering::kZstd;
  return is_frame && IsFrameWithChecksum(head, decoded_bytes);
}

}  // namespace ckpt::hdf5
