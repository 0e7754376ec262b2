// Writes a small torch.distributed.checkpoint folder with one tensor of every dtype asked for, and
// an account of it.
//
//   example-write-state-dict DIR ACCOUNT.json float32,bfloat16,…
//
// `dcp.load` in PyTorch reads the folder; ACCOUNT.json lists each tensor's shape, dtype and
// SHA-256.

#include <cstdio>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/executor.h"
#include "core/io/posix_storage.h"
#include "core/io/staged_directory.h"
#include "core/json/json_writer.h"
#include "core/layout/affine.h"
#include "core/plan/plan_check.h"
#include "formats/dcp/writer.h"

namespace {

using ckpt::Result;
using ckpt::Status;

// A few shapes that matter: a scalar, an empty tensor, odd sizes.
const std::vector<ckpt::Dims> kShapes = {{}, {0, 4}, {5, 3}, {2, 3, 7}};

std::vector<ckpt::MemoryTensor> MakeTensors(const std::vector<ckpt::DType>& dtypes) {
  std::mt19937_64 rng(1);
  std::vector<ckpt::MemoryTensor> tensors;
  for (const ckpt::DType dtype : dtypes) {
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      ckpt::MemoryTensor tensor;
      tensor.key = "state." + std::string(ckpt::DTypeName(dtype)) + "." + std::to_string(i);
      tensor.dtype = dtype;
      tensor.shape = kShapes[i];
      tensor.values.resize(ckpt::NumBytes(tensor.shape, dtype));
      // Any bit pattern is a value of every type but bool.
      const std::uint64_t range = dtype == ckpt::DType::kBool ? 2 : 256;
      for (std::byte& b : tensor.values) b = static_cast<std::byte>(rng() % range);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::string Account(const std::vector<ckpt::MemoryTensor>& tensors) {
  ckpt::JsonWriter json(1);
  json.BeginObject().Key("tensors").BeginObject();
  for (const ckpt::MemoryTensor& tensor : tensors) {
    json.Key(tensor.key).BeginObject().Key("shape").Ints(tensor.shape);
    json.Key("dtype").Text(ckpt::DTypeName(tensor.dtype));
    json.Key("sha256").Text(ckpt::HashHex(ckpt::HashAlgorithm::kSha256, tensor.values)).End();
  }
  json.End().End();
  return json.Take();
}

// Every target tensor is a copy of the source tensor of the same key.
ckpt::TensorRecipe CopyOf(const ckpt::CheckpointIndex& source, const ckpt::TargetTensor& target) {
  const ckpt::GlobalTensor* tensor = source.FindTensor(target.key);
  ckpt::TensorRecipe recipe;
  recipe.source_dtype = tensor->dtype;
  if (!ckpt::IsEmpty(ckpt::WholeBox(tensor->shape))) {
    const auto position = static_cast<std::uint32_t>(tensor - source.tensors().data());
    recipe.nests.push_back(ckpt::layout::IdentityNest(position, tensor->shape));
  }
  return recipe;
}

Status Save(const ckpt::Path& directory, std::vector<ckpt::MemoryTensor> tensors) {
  std::vector<ckpt::TargetTensor> targets;
  for (const ckpt::MemoryTensor& tensor : tensors) {
    targets.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  CKPT_ASSIGN_OR_RETURN(const auto source, ckpt::MakeMemorySource(std::move(tensors)));
  ckpt::ConversionPlan plan;
  CKPT_ASSIGN_OR_RETURN(plan.write, ckpt::dcp::PlanDcp(std::move(targets), {.files = 2}));
  for (const ckpt::TargetTensor& target : plan.write.tensors) {
    plan.recipes.push_back(CopyOf(source->index(), target));
  }
  CKPT_RETURN_IF_ERROR(CheckPlan(plan, source->index()));

  ckpt::Storage& storage = ckpt::PosixStorage();
  CKPT_ASSIGN_OR_RETURN(ckpt::StagedDirectory staged,
                        ckpt::StagedDirectory::Open(storage, directory, {}));
  CKPT_ASSIGN_OR_RETURN(const ckpt::ExecuteResult written,
                        Execute(plan, *source, storage, staged.path(), {.threads = 2}));
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path() / ckpt::kJournalName));
  std::printf("wrote %zu files, %llu bytes\n", written.files.size(),
              static_cast<unsigned long long>(written.bytes_written));
  return staged.Publish();
}

Status Run(const std::string& directory, const std::string& account, const std::string& names) {
  std::vector<ckpt::DType> dtypes;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const auto dtype = ckpt::ParseDType(name);
    if (!dtype) return ckpt::Error(ckpt::ErrorKind::kUsage, "unknown dtype").Actual(name);
    dtypes.push_back(*dtype);
  }
  std::vector<ckpt::MemoryTensor> tensors = MakeTensors(dtypes);
  CKPT_RETURN_IF_ERROR(
      ckpt::WriteSmallFile(ckpt::PosixStorage(), account, ckpt::AsBytes(Account(tensors))));
  return Save(directory, std::move(tensors));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: example-write-state-dict DIR ACCOUNT.json DTYPE,DTYPE,…\n");
    return 2;
  }
  const Status status = Run(argv[1], argv[2], argv[3]);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 3;
}
