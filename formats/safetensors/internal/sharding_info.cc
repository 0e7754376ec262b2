#include "formats/safetensors/internal/sharding_info.h"

#include <utility>

#include "core/base/quote.h"
#include "core/json/json_scanner.h"

namespace ckpt::safetensors {

Result<ShardingInfo> ParseShardingInfo(std::string_view json, std::string_view file) {
  ShardingInfo info;
  JsonScanner scan(json, file);
  std::string name;
  for (scan.BeginObject(); scan.NextMember(name);) {
    Dims offsets;
    bool has_offsets = false;
    std::string field;
    for (scan.BeginObject(); scan.NextMember(field);) {
      if (field != "saved_offsets") {
        scan.Skip();
        continue;
      }
      if (has_offsets) scan.Fail(ErrorKind::kBadMetadata, "saved_offsets twice", Quote(name));
      has_offsets = true;
      offsets = scan.Ints();
    }
    if (!has_offsets) scan.Fail(ErrorKind::kBadMetadata, "no saved_offsets", Quote(name));
    if (!info.emplace(name, std::move(offsets)).second) {
      scan.Fail(ErrorKind::kBadMetadata, "tensor is listed twice", Quote(name));
    }
  }
  CKPT_RETURN_IF_ERROR(scan.Finish().While("reading DCP_SHARDING_INFO"));
  return info;
}

}  // namespace ckpt::safetensors
