// Random models through chains of writers and readers: whatever the containers, cuts and orders in
// between, the same bits come out, and the same choice writes the same files.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/registry/registry.h"
#include "tests/reliability/random_tensors.h"
#include "tests/reliability/random_writer.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

enum class Origin : std::uint8_t { kMemory, kScattered, kTorchSave };

// Where a model comes from and the two checkpoints that it passes through.
struct Chain {
  Origin origin = Origin::kMemory;
  WriterChoice first;
  WriterChoice second;
};

Chain RandomChain(std::mt19937_64& rng) {
  const auto writer = [&] {
    return WriterChoice{.container = kContainers[rng() % std::size(kContainers)], .seed = rng()};
  };
  Chain chain;
  chain.origin = static_cast<Origin>(rng() % 3);
  chain.first = writer();
  chain.second = writer();
  return chain;
}

// What both containers can hold.
std::vector<DType> CommonDTypes(const Chain& chain) {
  const std::vector<DType> first = DTypesOf(chain.first.container);
  const std::vector<DType> second = DTypesOf(chain.second.container);
  std::vector<DType> common;
  std::set_intersection(first.begin(), first.end(), second.begin(), second.end(),
                        std::back_inserter(common));
  return common;
}

Result<std::shared_ptr<const CheckpointSource>> OpenOrigin(Origin origin, Storage& storage,
                                                           const std::vector<MemoryTensor>& model,
                                                           std::mt19937_64& rng) {
  if (origin != Origin::kTorchSave) {
    CKPT_ASSIGN_OR_RETURN(auto source, origin == Origin::kMemory ? MakeMemorySource(model)
                                                                 : ScatteredSource(model, rng));
    return std::shared_ptr<const CheckpointSource>(std::move(source));
  }
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories("/origin"));
  CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, "/origin/model.pt", TorchSaveFile(model, rng)));
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint opened, OpenCheckpoint(storage, "/origin/model.pt"));
  return opened.source;
}

// Writes a checkpoint and opens it.
Result<std::shared_ptr<const CheckpointSource>> Pass(Storage& storage, const Path& directory,
                                                     const CheckpointSource& source,
                                                     const WriterChoice& choice) {
  CKPT_RETURN_IF_ERROR(WriteRandomly(storage, directory, source, choice).status());
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint opened,
                        OpenCheckpoint(storage, PathToOpen(choice, directory)));
  return opened.source;
}

Status RunChain(std::uint64_t seed, std::string& what) {
  std::mt19937_64 rng(seed);
  const Chain chain = RandomChain(rng);
  what = fmt::format("from {}, {}, then {}", static_cast<int>(chain.origin), Describe(chain.first),
                     Describe(chain.second));
  const std::vector<MemoryTensor> model = RandomTensors(CommonDTypes(chain), rng);
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();

  CKPT_ASSIGN_OR_RETURN(const auto origin, OpenOrigin(chain.origin, *storage, model, rng));
  CKPT_RETURN_IF_ERROR(CheckTensors(*origin, model));
  CKPT_ASSIGN_OR_RETURN(const auto first, Pass(*storage, "/first", *origin, chain.first));
  CKPT_RETURN_IF_ERROR(CheckTensors(*first, model));
  CKPT_ASSIGN_OR_RETURN(const auto second, Pass(*storage, "/second", *first, chain.second));
  CKPT_RETURN_IF_ERROR(CheckTensors(*second, model));
  CKPT_RETURN_IF_ERROR(Pass(*storage, "/again", *second, chain.first).status());
  CKPT_ASSIGN_OR_RETURN(const Tree once, ReadTree(*storage, "/first"));
  CKPT_ASSIGN_OR_RETURN(const Tree again, ReadTree(*storage, "/again"));
  if (once != again) return Error(ErrorKind::kValueMismatch, "the way back writes other files");
  return OkStatus();
}

TEST(MetamorphicTest, RandomModelsComeBackBitForBit) {
  const std::uint64_t models = IsLongRun() ? 50'000 : 4'000;
  Suite suite("metamorphic, random models");
  for (std::uint64_t model = 0; model < models; ++model) {
    const std::uint64_t seed = TestSeed(kDefaultSeed) + model;
    std::string what;
    const Status status = RunChain(seed, what);
    suite.Count();
    if (!status.ok()) suite.Fail(fmt::format("model {}, {}: {}", seed, what, status.ToString()));
  }
}

}  // namespace
}  // namespace ckpt::testing
