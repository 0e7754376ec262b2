// The records of an archive of torch.save, in the order in which torch writes them.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARCHIVE_RECORDS_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARCHIVE_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "formats/zip/writer.h"

namespace ckpt::torch_save {

// Before the storages, and behind them.
void AddLeadingRecords(ByteSpan pickle, zip::Writer& zip);
void AddTrailingRecords(zip::Writer& zip);
// "data/7"
[[nodiscard]] std::string StorageRecord(std::size_t number);

// A storage whose bytes are written elsewhere.
struct ForeignStorage {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32 = 0;  // no place in the archive depends on it
};

struct FramedStorages {
  std::vector<zip::Part> parts;                // around the storages
  std::vector<std::uint64_t> storage_offsets;  // parallel to the storages
};

// Records of this program's files, at which torch.load does not look.
inline constexpr std::string_view kWholeRecord = "ckptkit_objects.json";
inline constexpr std::string_view kOriginRecord = "ckptkit_origin.json";

// Their content; empty: there is no such record.
struct OwnRecords {
  std::string whole = {};   // which values are one entry each (whole_paths.h)
  std::string origin = {};  // a manifest without files: where the checkpoint came from
};

// The archive of a pickle that refers to these storages by their number, all but their bytes.
[[nodiscard]] FramedStorages FrameStorages(ByteSpan pickle,
                                           const std::vector<ForeignStorage>& storages,
                                           const OwnRecords& own = {});

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_ARCHIVE_RECORDS_H_
