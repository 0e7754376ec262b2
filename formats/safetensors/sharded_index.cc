#include "formats/safetensors/sharded_index.h"

#include <algorithm>
#include <utility>

#include "core/io/path.h"
#include "core/json/json_scanner.h"
#include "core/json/json_writer.h"
#include "formats/safetensors/internal/distinct_names.h"

namespace ckpt::safetensors {
namespace {

// In some repositories total_size is a float or a text. It is only information, so these are
// ignored.
std::optional<std::uint64_t> ScanCount(JsonScanner& scan) {
  JsonScanner attempt = scan;
  const std::uint64_t value = attempt.Uint();
  if (!attempt.ok()) {
    scan.Skip();
    return std::nullopt;
  }
  scan = attempt;
  return value;
}

void ScanMetadata(JsonScanner& scan, ShardedIndex& index) {
  if (scan.Peek() != JsonKind::kObject) return scan.Skip();
  std::string key;
  for (scan.BeginObject(); scan.NextMember(key);) {
    if (key == "total_size") {
      index.total_size = ScanCount(scan);
    } else if (key == "total_parameters") {
      index.total_parameters = ScanCount(scan);
    } else {
      scan.Skip();
    }
  }
}

Status CheckNames(const ShardedIndex& index) {
  std::vector<std::string_view> names;
  names.reserve(index.weight_map.size());
  for (const auto& [name, file] : index.weight_map) {
    names.push_back(name);
    if (Status status = JoinInside(Path("."), file).status(); !status.ok()) {
      return std::move(status).Tensor(name);
    }
  }
  return CheckDistinctNames(std::move(names));
}

}  // namespace

Result<ShardedIndex> ParseShardedIndex(std::string_view json, std::string_view file) {
  ShardedIndex index;
  JsonScanner scan(json, file);
  bool has_weight_map = false;
  std::string key;
  for (scan.BeginObject(); scan.NextMember(key);) {
    if (key == "metadata") {
      ScanMetadata(scan, index);
    } else if (key == "weight_map") {
      if (has_weight_map) scan.Fail(ErrorKind::kBadMetadata, "weight_map twice");
      has_weight_map = true;
      std::string name;
      for (scan.BeginObject(); scan.NextMember(name);) {
        index.weight_map.emplace_back(name, scan.Text());
      }
    } else {
      scan.Skip();
    }
  }
  CKPT_RETURN_IF_ERROR(scan.Finish());
  if (!has_weight_map) return Error(ErrorKind::kBadMetadata, "no weight_map").File(file);
  CKPT_RETURN_IF_ERROR(CheckNames(index).File(file));
  return index;
}

Status CheckWeightMap(const ShardedIndex& index, const std::set<std::string_view>& found,
                      const std::vector<std::string>& missing_files) {
  Status status;
  for (const auto& [tensor, file] : index.weight_map) {
    if (found.contains(tensor)) continue;
    const bool no_file = std::binary_search(missing_files.begin(), missing_files.end(), file);
    status.Add(Error(no_file ? ErrorKind::kMissingFile : ErrorKind::kMissing,
                     no_file ? "the file that holds the tensor is missing"
                             : "the index names a tensor that its file lacks")
                   .Tensor(tensor)
                   .File(file));
  }
  return status;
}

std::string SerializeShardedIndex(const ShardedIndex& index) {
  JsonWriter json(2);
  json.BeginObject().Key("metadata").BeginObject();
  if (index.total_parameters) json.Key("total_parameters").Int(*index.total_parameters);
  if (index.total_size) json.Key("total_size").Int(*index.total_size);
  json.End().Key("weight_map").BeginObject();
  for (const auto& [name, file] : index.weight_map) json.Key(name).Text(file);
  return json.End().End().Take() + "\n";
}

}  // namespace ckpt::safetensors
