#include "formats/hdf5/internal/virtual_map.h"

#include <utility>

#include "core/base/quote.h"
#include "core/base/units.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/global_heap.h"
#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {
namespace {

// How many bytes of names that parts share there may be for each byte of the map.
constexpr std::uint64_t kTimesCopied = 16;

class MapReader {
 public:
  MapReader(const StructureFile& file, std::uint64_t at, FieldReader fields)
      : file_(file), at_(at), fields_(fields), copies_left_(fields.left() * kTimesCopied + kMiB) {}

  Result<std::vector<VirtualPart>> Read() {
    constexpr std::uint8_t kFileOfEarlierPart = 0x01;
    constexpr std::uint8_t kDataSetOfEarlierPart = 0x02;
    constexpr std::uint8_t kThisFile = 0x04;
    const std::uint8_t version = fields_.U8();
    if (version > 1) return file_.Unsupported(at_, "a virtual data set of another version");
    const std::uint64_t count = fields_.U64();
    std::vector<VirtualPart> parts;
    for (std::uint64_t p = 0; p < count; ++p) {
      VirtualPart part;
      const std::uint8_t flags = version == 0 ? std::uint8_t{0} : fields_.U8();
      if ((flags & kThisFile) != 0) {
        part.file = ".";
      } else {
        CKPT_ASSIGN_OR_RETURN(
            part.file, ReadName((flags & kFileOfEarlierPart) != 0, parts, &VirtualPart::file));
      }
      CKPT_ASSIGN_OR_RETURN(part.data_set, ReadName((flags & kDataSetOfEarlierPart) != 0, parts,
                                                    &VirtualPart::data_set));
      CKPT_ASSIGN_OR_RETURN(part.from, ReadSelection());
      CKPT_ASSIGN_OR_RETURN(part.to, ReadSelection());
      if (!fields_.ok()) break;
      parts.push_back(std::move(part));
    }
    if (!fields_.ok()) return file_.Bad(at_, "the map of a virtual data set is cut off");
    return parts;
  }

 private:
  // A name, or the number of an earlier part that has the same one.
  Result<std::string> ReadName(bool is_number, const std::vector<VirtualPart>& parts,
                               std::string VirtualPart::*name) {
    if (!is_number) {
      const std::string_view written = fields_.TextToNul();
      std::optional<std::string> found = NameOfSource(written);
      if (found) return *std::move(found);
      return file_.Unsupported(at_, "a virtual data set of sources whose names have a pattern")
          .Actual(Quote(written));
    }
    const std::uint64_t number = fields_.U64();
    if (number >= parts.size()) {
      return file_.Bad(at_,
                       "a part of a virtual data set has the name of a part that is not there");
    }
    const std::string& earlier = parts[number].*name;
    if (earlier.size() > copies_left_) {
      return Error(ErrorKind::kResource, "the names in a virtual data set are too long")
          .File(file_.file().name());
    }
    copies_left_ -= earlier.size();
    return earlier;
  }

  // Nothing: everything.
  Result<std::optional<Box>> ReadSelection() {
    const std::uint32_t type = fields_.U32();
    const std::uint32_t version = fields_.U32();
    if (!fields_.ok()) return file_.Bad(at_, "the map of a virtual data set is cut off");
    if (type == kSelectsAll) {
      fields_.Skip(8);
      return std::optional<Box>();
    }
    if (type == kSelectsHyperslab && version == 1) return ReadBlocks();
    if (type == kSelectsHyperslab && (version == 2 || version == 3)) return ReadRegular(version);
    return file_.Unsupported(at_, "a virtual data set of selected points");
  }

  Result<std::optional<Box>> ReadBlocks() {
    fields_.Skip(8);
    const std::uint32_t rank = fields_.U32();
    const std::uint32_t blocks = fields_.U32();
    if (rank > kMaxRank) return file_.Bad(at_, "a selection of more than 32 dims");
    Box box;
    for (std::uint32_t d = 0; d < rank; ++d) box.offsets.push_back(fields_.U32());
    for (std::uint32_t d = 0; d < rank; ++d) {
      const std::int64_t last = fields_.U32();
      box.sizes.push_back(last - box.offsets[d] + 1);
      if (last < box.offsets[d]) return file_.Bad(at_, "a selection ends before it begins");
    }
    if (blocks != 1) {
      return file_.Unsupported(at_, "a virtual data set with a selection that is not one box");
    }
    return std::optional(std::move(box));
  }

  Result<std::optional<Box>> ReadRegular(std::uint32_t version) {
    constexpr std::uint8_t kIsRegular = 0x01;
    const std::uint8_t flags = fields_.U8();
    const std::uint8_t number_bytes = version == 3 ? fields_.U8() : std::uint8_t{8};
    if (version == 2) fields_.Skip(4);
    const std::uint32_t rank = fields_.U32();
    if (rank > kMaxRank || (number_bytes != 2 && number_bytes != 4 && number_bytes != 8)) {
      return file_.Bad(at_, "a selection is damaged");
    }
    if ((flags & kIsRegular) == 0) {
      return file_.Unsupported(at_, "a virtual data set with a selection that is not one box");
    }
    Box box;
    for (std::uint32_t d = 0; d < rank; ++d) {
      const std::uint64_t start = fields_.Uint(number_bytes);
      const std::uint64_t stride = fields_.Uint(number_bytes);
      const std::uint64_t count = fields_.Uint(number_bytes);
      const std::uint64_t block = fields_.Uint(number_bytes);
      constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
      // Of numbers of any width.
      const std::uint64_t no_limit = ~std::uint64_t{0} >> (64 - 8 * number_bytes);
      const bool is_unlimited = block == no_limit ? count == 1 : count == no_limit;
      const bool is_dense = count == 1 || stride == block;
      const bool is_counted =
          block <= kMax && count <= kMax && (count <= 1 || block <= kMax / count);
      if (!is_dense || start > kMax || (!is_unlimited && !is_counted)) {
        return file_.Unsupported(at_, "a virtual data set with a selection that is not one box");
      }
      box.offsets.push_back(static_cast<std::int64_t>(start));
      box.sizes.push_back(is_unlimited ? kUnlimited : static_cast<std::int64_t>(block * count));
    }
    return std::optional(std::move(box));
  }

  const StructureFile& file_;
  std::uint64_t at_;
  FieldReader fields_;
  std::uint64_t copies_left_;  // bytes
};

}  // namespace

Result<std::vector<VirtualPart>> ReadVirtualMap(StructureFile& file, const DataSet& set) {
  const VirtualLayout& layout = *set.virtual_layout;
  if (layout.heap_at == kUndefined) return std::vector<VirtualPart>();
  CKPT_ASSIGN_OR_RETURN(const ByteSpan map,
                        ReadHeapObject(file, layout.heap_at, layout.heap_index));
  CKPT_RETURN_IF_ERROR(file.CheckSum(layout.heap_at, map));
  return MapReader(file, layout.heap_at, FieldReader(map, layout.heap_at)).Read();
}

}  // namespace ckpt::hdf5
