#include "tests/reliability/small_zarr.h"

#include <map>
#include <string>

#include "core/base/bytes.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::testing {
namespace {

// Of different bytes, so that no two chunks are the same.
std::string Elements(std::size_t size_bytes, char first) {
  std::string bytes;
  for (std::size_t i = 0; i < size_bytes; ++i) {
    bytes += static_cast<char>(first + static_cast<char>(i));
  }
  return bytes;
}

std::string Item(std::int64_t number) {
  pickle::PickleWriter value(pickle::Dialect::kWeightsOnly);
  value.BeginDict().Text("iteration").Int(number).EndDict();
  return std::string(AsText(torch_save::ObjectItem(value.Take())));
}

}  // namespace

Status WriteSmallZarr(Storage& storage, const Path& directory) {
  const std::map<std::string, std::string> files = {
      {"metadata.json", R"({"sharded_backend": "zarr", "sharded_backend_version": 1})"},
      {"common.pt", Item(7)},
      {"rng_state/shard_0_1.pt", Item(8)},
      {"model.rows/.zarray",
       R"({"zarr_format": 2, "shape": [3, 3], "chunks": [2, 2], "dtype": "<f4", "order": "C"})"},
      {"model.rows/0.0", Elements(16, 1)},
      {"model.rows/0.1", Elements(16, 21)},
      {"model.rows/1.0", Elements(16, 41)},
      {"model.rows/1.1", Elements(16, 61)},
      {"model.norm/.zarray",
       R"({"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "bfloat16", "filters": null})"},
      {"model.norm/0", Elements(8, 81)}};
  for (const auto& [name, content] : files) {
    CKPT_RETURN_IF_ERROR(storage.MakeDirectories((directory / name).parent_path()));
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, directory / name, AsBytes(content)));
  }
  return OkStatus();
}

}  // namespace ckpt::testing
