#include "formats/torch_save/internal/archive_records.h"

#include <string_view>
#include <utility>

namespace ckpt::torch_save {
namespace {

// torch computes these digits from names and checksums of the records, and does not read them.
constexpr std::string_view kSerializationId = "0000000000000000000000000000000000000000";

}  // namespace

void AddLeadingRecords(ByteSpan pickle, zip::Writer& zip) {
  zip.Add("data.pkl", pickle);
  zip.Add(".format_version", AsBytes("1"));
  zip.Add(".storage_alignment", AsBytes(std::to_string(zip::Writer::kDefaultAlignment)));
  zip.Add("byteorder", AsBytes("little"));
}

void AddTrailingRecords(zip::Writer& zip) {
  zip.Add("version", AsBytes("3\n"));
  zip.Add(".data/serialization_id", AsBytes(kSerializationId));
}

std::string StorageRecord(std::size_t number) { return "data/" + std::to_string(number); }

FramedStorages FrameStorages(ByteSpan pickle, const std::vector<ForeignStorage>& storages,
                             const OwnRecords& own) {
  zip::Writer zip;
  AddLeadingRecords(pickle, zip);
  if (!own.whole.empty()) zip.Add(kWholeRecord, AsBytes(own.whole));
  if (!own.origin.empty()) zip.Add(kOriginRecord, AsBytes(own.origin));
  FramedStorages framed;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    framed.storage_offsets.push_back(
        zip.AddForeign(StorageRecord(i), storages[i].size_bytes, storages[i].crc32));
  }
  AddTrailingRecords(zip);
  framed.parts = std::move(zip).Finish();
  return framed;
}

}  // namespace ckpt::torch_save
