// Leaves random models on disk, each as one of our writers makes it, for real software to load:
//
//   dump-random-models DIR COUNT SEED
//
// DIR/account.json lists the checkpoints: container, path, and shape, dtype and SHA-256 of every
// tensor.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/hash.h"
#include "core/io/posix_storage.h"
#include "core/json/json_writer.h"
#include "tests/reliability/random_tensors.h"
#include "tests/reliability/random_writer.h"

namespace {

using ckpt::Status;

void Describe(const std::string& container, const std::string& path,
              const std::vector<ckpt::MemoryTensor>& tensors, ckpt::JsonWriter& json) {
  json.BeginObject().Key("container").Text(container).Key("path").Text(path);
  json.Key("tensors").BeginObject();
  for (const ckpt::MemoryTensor& tensor : tensors) {
    json.Key(tensor.key).BeginObject().Key("shape").Ints(tensor.shape);
    json.Key("dtype").Text(ckpt::DTypeName(tensor.dtype));
    json.Key("sha256").Text(ckpt::HashHex(ckpt::HashAlgorithm::kSha256, tensor.values)).End();
  }
  json.End().End();
}

Status DumpOne(const ckpt::Path& directory, std::uint64_t seed, ckpt::JsonWriter& json) {
  ckpt::Storage& storage = ckpt::PosixStorage();
  std::mt19937_64 rng(seed);
  const auto choice = rng() % (std::size(ckpt::testing::kContainers) + 1);
  const std::string name = fmt::format("{}", seed);
  if (choice == std::size(ckpt::testing::kContainers)) {
    const auto model =
        ckpt::testing::RandomTensors(ckpt::testing::DTypesOf(ckpt::testing::Container::kDcp), rng);
    Describe("torch_save", name + ".pt", model, json);
    return ckpt::WriteSmallFile(storage, directory / (name + ".pt"),
                                ckpt::testing::TorchSaveFile(model, rng));
  }
  const ckpt::testing::WriterChoice writer = {.container = ckpt::testing::kContainers[choice],
                                              .seed = rng()};
  const auto model = ckpt::testing::RandomTensors(ckpt::testing::DTypesOf(writer.container), rng);
  CKPT_ASSIGN_OR_RETURN(const auto source, ckpt::testing::ScatteredSource(model, rng));
  const bool is_release = writer.container == ckpt::testing::Container::kFsdpDtensor ||
                          writer.container == ckpt::testing::Container::kTorchDist;
  const bool is_hdf5 = writer.container == ckpt::testing::Container::kHdf5;
  const bool is_torch_save = writer.container == ckpt::testing::Container::kTorchSave;
  const bool is_safetensors = writer.container == ckpt::testing::Container::kSafetensors;
  Describe(is_hdf5          ? "hdf5"
           : is_torch_save  ? "torch_save"
           : is_safetensors ? "safetensors"
                            : "dcp",
           is_release ? name + "/release" : PathToOpen(writer, name).string(), model, json);
  return WriteRandomly(storage, directory / name, *source, writer).status();
}

Status Dump(const ckpt::Path& directory, std::uint64_t count, std::uint64_t seed) {
  CKPT_RETURN_IF_ERROR(ckpt::PosixStorage().MakeDirectories(directory));
  ckpt::JsonWriter json(1);
  json.BeginArray();
  for (std::uint64_t i = 0; i < count; ++i) {
    CKPT_RETURN_IF_ERROR(DumpOne(directory, seed + i, json));
  }
  json.End();
  return ckpt::WriteSmallFile(ckpt::PosixStorage(), directory / "account.json",
                              ckpt::AsBytes(json.Take()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: dump-random-models DIR COUNT SEED\n");
    return 2;
  }
  const Status status =
      Dump(argv[1], std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 3;
}
