#include "tests/reliability/small_foreign.h"

#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/bytes.h"
#include "formats/pickle/writer.h"
#include "formats/registry/registry.h"
#include "formats/torch_save/torch_item.h"
#include "tests/formats/mp_rank/run_files.h"
#include "tests/reliability/small_model.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 16;

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

Status Write(Storage& storage, const Path& path, ByteSpan content) {
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(path.parent_path()));
  return WriteSmallFile(storage, path, content);
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
    CKPT_RETURN_IF_ERROR(Write(storage, directory / name, AsBytes(content)));
  }
  return OkStatus();
}

Status WriteSmallMegatronRun(Storage& storage, const Path& directory) {
  for (int rank = 0; rank < 2; ++rank) {
    const Path folder = directory / fmt::format("mp_rank_{:02}", rank);
    const std::vector<mp_rank::RunParameter> parameters = mp_rank::ParametersOfRank(rank);
    CKPT_RETURN_IF_ERROR(
        Write(storage, folder / "model_optim_rng.pt", mp_rank::EncodeRunFile(parameters, {})));
    CKPT_RETURN_IF_ERROR(
        Write(storage, folder / "distrib_optim.pt", mp_rank::EncodeBuffers(parameters)));
  }
  return OkStatus();
}

Status WriteSmallTorchRepository(Storage& storage, const Path& directory) {
  const Path source = directory.string() + "-source";
  CKPT_RETURN_IF_ERROR(WriteSmallModel(storage, source, {.hidden = 16}));
  CKPT_ASSIGN_OR_RETURN(const std::string config,
                        ReadSmallFile(storage, source / "config.json", kMaxConfigBytes));
  CKPT_RETURN_IF_ERROR(Write(storage, directory / "config.json", AsBytes(config)));
  std::vector<std::string> entries;  // of the index
  int number = 0;
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"*.layers.*"}, {"*embed*", "model.norm*"}}) {
    const std::string name = fmt::format("pytorch_model-{:05}-of-00002.bin", ++number);
    ConvertOptions options = ConvertTo("torch_save", source, directory / name);
    options.model.only = keys;
    CKPT_RETURN_IF_ERROR(Convert(storage, options).status());
    CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint file, OpenCheckpoint(storage, options.target));
    for (const GlobalTensor& tensor : file.source->index().tensors()) {
      entries.push_back(fmt::format(R"("{}": "{}")", tensor.key, name));
    }
  }
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(source));
  const std::string index =
      fmt::format(R"({{"metadata": {{}}, "weight_map": {{{}}}}})", fmt::join(entries, ", "));
  return Write(storage, directory / "pytorch_model.bin.index.json", AsBytes(index));
}

}  // namespace ckpt::testing
