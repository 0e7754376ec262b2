#include "tests/reliability/random_writer.h"

#include <cstddef>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "core/checkpoint/digest.h"
#include "core/checkpoint/read.h"
#include "core/layout/affine.h"
#include "core/plan/plan_check.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/dcp/writer.h"
#include "formats/fsdp_dtensor/internal/writer.h"
#include "formats/hdf5/internal/writer.h"
#include "formats/safetensors/internal/writer.h"
#include "formats/safetensors/stored_dtype.h"
#include "formats/torch_dist/internal/writer.h"
#include "formats/torch_save/internal/writer.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kReadBudget = 64 << 10;
constexpr char kHdf5Name[] = "model.h5";
constexpr char kTorchName[] = "model.pt";

std::uint64_t DrawBelow(std::uint64_t bound, std::mt19937_64& rng) { return rng() % bound; }

std::optional<int> RandomLevel(std::mt19937_64& rng) {
  if (DrawBelow(3, rng) != 0) return std::nullopt;
  return 1 + static_cast<int>(DrawBelow(4, rng));
}

// As ranks of a run own rows: some have none, some own several blocks that do not follow each
// other.
std::vector<std::vector<dcp::PlacedRows>> RandomPlaces(const std::vector<TargetTensor>& tensors,
                                                       std::mt19937_64& rng) {
  const std::uint64_t writers = 1 + DrawBelow(4, rng);
  std::vector<std::vector<dcp::PlacedRows>> placed;
  for (const TargetTensor& tensor : tensors) {
    std::vector<dcp::PlacedRows>& rows = placed.emplace_back();
    const auto writer = [&] { return static_cast<std::uint32_t>(DrawBelow(writers, rng)); };
    const Box whole = WholeBox(tensor.shape);
    if (tensor.shape.empty() || IsEmpty(whole)) {
      rows.push_back({.box = whole, .writer = writer()});
      continue;
    }
    for (std::int64_t begin = 0; begin < tensor.shape[0];) {
      const std::int64_t left = tensor.shape[0] - begin;
      const std::int64_t count =
          DrawBelow(3, rng) == 0
              ? left
              : 1 + static_cast<std::int64_t>(DrawBelow(static_cast<std::uint64_t>(left), rng));
      Box box = whole;
      box.offsets[0] = begin;
      box.sizes[0] = count;
      rows.push_back({.box = std::move(box), .writer = writer()});
      begin += count;
    }
  }
  return placed;
}

Result<WritePlan> PlanRandomly(Container container, std::vector<TargetTensor> tensors,
                               std::mt19937_64& rng) {
  const int files = DrawBelow(2, rng) == 0 ? 0 : 1 + static_cast<int>(DrawBelow(5, rng));
  const std::uint64_t max_file_bytes = DrawBelow(2, rng) == 0 ? 0 : 64 + DrawBelow(8192, rng);
  switch (container) {
    case Container::kDcp: {
      dcp::WriterOptions options;
      if (DrawBelow(2, rng) == 0) {
        options.placed = RandomPlaces(tensors, rng);
      } else {
        options.files = files;
        options.max_file_bytes = max_file_bytes;
        options.max_chunk_bytes = 1 + DrawBelow(4096, rng);
        options.zstd_level = RandomLevel(rng);
      }
      return dcp::PlanDcp(std::move(tensors), options);
    }
    case Container::kFsdpDtensor: {
      fsdp_dtensor::WriterOptions options;
      options.args = {{"seed", layout::Value(std::int64_t{1})}};
      options.files = files;
      options.max_file_bytes = max_file_bytes;
      options.zstd_level = RandomLevel(rng);
      return fsdp_dtensor::PlanRelease(std::move(tensors), std::move(options));
    }
    case Container::kTorchDist: {
      WeightsRequest request;
      request.tensors = std::move(tensors);
      request.objects = {{.key = "module._extra_state", .grid = {2, 3}}};
      request.forms["torch-dist-generation"] =
          torch_dist::kGenerations[DrawBelow(torch_dist::kGenerations.size(), rng)];
      request.files = files;
      request.max_file_bytes = max_file_bytes;
      request.zstd_level = RandomLevel(rng);
      CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned, torch_dist::PlanRelease(std::move(request)));
      return std::move(planned.plan);
    }
    case Container::kSafetensors: {
      safetensors::WriterOptions options;
      options.files = files;
      options.max_shard_bytes = max_file_bytes == 0 ? options.max_shard_bytes : max_file_bytes;
      return safetensors::PlanSafetensors(std::move(tensors), options);
    }
    case Container::kHdf5: {
      WeightsRequest request;
      request.tensors = std::move(tensors);
      request.file_name = kHdf5Name;
      if (DrawBelow(3, rng) == 0) {
        request.zstd_level = 1 + static_cast<int>(DrawBelow(4, rng));
      } else {
        request.files = files;
        request.max_file_bytes = files == 0 ? max_file_bytes : 0;
      }
      CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned, hdf5::PlanHdf5(std::move(request)));
      return std::move(planned.plan);
    }
    case Container::kTorchSave: {
      WeightsRequest request;
      request.tensors = std::move(tensors);
      request.file_name = kTorchName;
      CKPT_ASSIGN_OR_RETURN(PlannedCheckpoint planned,
                            torch_save::PlanStateDict(std::move(request)));
      return std::move(planned.plan);
    }
  }
  return Error(ErrorKind::kInternal, "no such container");
}

// Every target tensor is a copy of the source tensor of the same key.
TensorRecipe CopyOf(const CheckpointIndex& source, const TargetTensor& target) {
  const GlobalTensor* tensor = source.FindTensor(target.key);
  TensorRecipe recipe;
  recipe.source_dtype = tensor->dtype;
  if (!IsEmpty(WholeBox(tensor->shape))) {
    const auto position = static_cast<std::uint32_t>(tensor - source.tensors().data());
    recipe.nests.push_back(layout::IdentityNest(position, tensor->shape));
  }
  return recipe;
}

}  // namespace

std::vector<DType> DTypesOf(Container container) {
  std::vector<DType> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (container == Container::kSafetensors && !safetensors::FromDType(dtype)) continue;
    dtypes.push_back(dtype);
  }
  return dtypes;
}

std::string Describe(const WriterChoice& choice) {
  constexpr const char* kNames[] = {"dcp",         "fsdp_dtensor", "torch_dist",
                                    "safetensors", "hdf5",         "torch_save"};
  return fmt::format("{} of seed {}", kNames[static_cast<std::size_t>(choice.container)],
                     choice.seed);
}

Result<ExecuteResult> WriteRandomly(Storage& storage, const Path& directory,
                                    const CheckpointSource& source, const WriterChoice& choice) {
  std::mt19937_64 rng(choice.seed);
  std::vector<TargetTensor> targets;
  for (const GlobalTensor& tensor : source.index().tensors()) {
    targets.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  ConversionPlan plan;
  CKPT_ASSIGN_OR_RETURN(plan.write, PlanRandomly(choice.container, std::move(targets), rng));
  for (const TargetTensor& target : plan.write.tensors) {
    plan.recipes.push_back(CopyOf(source.index(), target));
  }
  CKPT_RETURN_IF_ERROR(CheckPlan(plan, source.index()));
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(directory));
  const ExecuteOptions options = {.memory_budget_bytes = 4096 + DrawBelow(1 << 20, rng),
                                  .threads = 1 + static_cast<int>(DrawBelow(2, rng))};
  CKPT_ASSIGN_OR_RETURN(ExecuteResult written, Execute(plan, source, storage, directory, options));
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(directory / kJournalName));
  // The executor's digests are in the plan's order.
  for (std::size_t t = 0; t < plan.write.tensors.size(); ++t) {
    const GlobalTensor* tensor = source.index().FindTensor(plan.write.tensors[t].key);
    CKPT_ASSIGN_OR_RETURN(const std::string hex,
                          DigestTensor(source, *tensor, HashAlgorithm::kXxh3, kReadBudget));
    if (written.tensor_xxh3[t] != hex) {
      return Error(ErrorKind::kValueMismatch, "the executor computed another digest")
          .Tensor(tensor->key);
    }
  }
  return written;
}

Path PathToOpen(const WriterChoice& choice, const Path& directory) {
  if (choice.container == Container::kHdf5) return directory / kHdf5Name;
  return choice.container == Container::kTorchSave ? directory / kTorchName : directory;
}

Status CheckTensors(const CheckpointSource& source, std::span<const MemoryTensor> expected) {
  const CheckpointIndex& index = source.index();
  if (index.tensors().size() != expected.size()) {
    return Error(ErrorKind::kValueMismatch, "another number of tensors")
        .Expected(std::to_string(expected.size()))
        .Actual(std::to_string(index.tensors().size()));
  }
  for (const MemoryTensor& tensor : expected) {
    const GlobalTensor* found = index.FindTensor(tensor.key);
    if (found == nullptr) return Error(ErrorKind::kMissing, "a tensor is gone").Tensor(tensor.key);
    if (found->dtype != tensor.dtype || found->shape != tensor.shape) {
      return Error(ErrorKind::kValueMismatch, "another dtype or shape").Tensor(tensor.key);
    }
    Bytes values(tensor.values.size());
    CKPT_RETURN_IF_ERROR(ReadBox(source, *found, WholeBox(tensor.shape), values, kReadBudget));
    if (values != tensor.values) {
      return Error(ErrorKind::kValueMismatch, "other values").Tensor(tensor.key);
    }
    CKPT_ASSIGN_OR_RETURN(const std::string hex,
                          DigestTensor(source, *found, HashAlgorithm::kSha256, kReadBudget));
    if (hex != HashHex(HashAlgorithm::kSha256, tensor.values)) {
      return Error(ErrorKind::kValueMismatch, "another digest").Tensor(tensor.key);
    }
  }
  return OkStatus();
}

}  // namespace ckpt::testing
