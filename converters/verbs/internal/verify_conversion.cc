#include "converters/verbs/internal/verify_conversion.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/internal/link_tensors.h"
#include "converters/verbs/model_digest.h"
#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/exec/nest_reader.h"
#include "core/exec/task_pool.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "core/tensor/cast.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

// The digest of the source's values after the cast.
Result<std::string> DigestOfCast(const CheckpointSource& source, const TensorRecipe& recipe,
                                 const TargetTensor& target, std::uint64_t budget_bytes) {
  Hasher hasher(HashAlgorithm::kXxh3);
  Bytes cast;
  const auto add = [&](ByteSpan block) {
    if (recipe.source_dtype != target.dtype) {
      cast.resize(block.size() / ElementBytes(recipe.source_dtype) * ElementBytes(target.dtype));
      CastElements(recipe.source_dtype, block, target.dtype, cast);
      block = cast;
    }
    hasher.Update(block);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(StreamRecipe(source, recipe, target.shape, budget_bytes, add));
  return hasher.Finish();
}

// Every stored tensor must have the digest that was computed while it was written. A run that was
// resumed may have read another source under the same name before: then the digest is computed
// again from the source.
Status CompareWithWritten(const PreparedConversion& prepared, const ExecuteResult& executed,
                          const CheckpointSource& written, const ConvertOptions& options) {
  const std::vector<TargetTensor>& tensors = prepared.plan.write.tensors;
  const std::uint64_t budget =
      options.memory_budget_bytes / static_cast<std::uint64_t>(std::max(options.threads, 1));
  const auto compare = [&](std::size_t t, std::size_t /*worker*/) -> Status {
    const GlobalTensor* stored = written.index().FindTensor(tensors[t].key);
    if (stored == nullptr) {
      return Error(ErrorKind::kMissing, "the result lacks a tensor").Tensor(tensors[t].key);
    }
    CKPT_ASSIGN_OR_RETURN(const std::string digest,
                          DigestTensor(written, *stored, HashAlgorithm::kXxh3, budget));
    std::string expected = executed.tensor_xxh3[t];
    if (executed.resumed_tensors != 0) {
      CKPT_ASSIGN_OR_RETURN(expected, DigestOfCast(prepared.model.source(),
                                                   prepared.plan.recipes[t], tensors[t], budget));
    }
    if (digest == expected) return OkStatus();
    return Error(ErrorKind::kValueMismatch, "the result read back is not what was written")
        .Tensor(tensors[t].key)
        .Expected(expected)
        .Actual(digest);
  };
  return RunTasks(tensors.size(), options.threads, options.stop, compare);
}

// Of tensors that kept their keys.
Result<VerifiedDigests> VerifyStored(Storage& storage, const PreparedConversion& prepared,
                                     const ConvertOptions& options, const ExecuteResult& executed,
                                     const Path& path) {
  const std::vector<TargetTensor>& tensors = prepared.plan.write.tensors;
  if (options.progress != nullptr) {
    std::uint64_t bytes = 0;
    for (const TargetTensor& tensor : tensors) bytes += NumBytes(tensor.shape, tensor.dtype);
    options.progress->OnPhase("verify", bytes, tensors.size());
  }
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint written,
                        OpenCheckpoint(storage, path, {.verify = false}));
  if (options.link) {
    CKPT_RETURN_IF_ERROR(CheckLinks(*written.source, prepared.model, prepared.links));
    return VerifiedDigests();  // no element was read
  }
  if (written.source->index().tensors().size() != tensors.size()) {
    return Error(ErrorKind::kValueMismatch, "the result read back has other tensors")
        .File(path.string())
        .Expected(fmt::format("{} tensors", tensors.size()))
        .Actual(fmt::format("{} tensors", written.source->index().tensors().size()));
  }
  CKPT_RETURN_IF_ERROR(CompareWithWritten(prepared, executed, *written.source, options));
  std::vector<TensorDigest> digests;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    digests.push_back({.key = tensors[t].key,
                       .dtype = tensors[t].dtype,
                       .shape = tensors[t].shape,
                       .hex = executed.tensor_xxh3[t]});
  }
  const std::string digest = CombineDigests(std::move(digests), HashAlgorithm::kXxh3);
  // What was read back is what was digested while it came from the source. Of a source that was
  // cast there is no digest.
  return VerifiedDigests{.source = prepared.changes_dtype ? std::string() : digest,
                         .target = digest};
}

}  // namespace

Status CheckSourceManifest(Storage& storage, const PreparedConversion& prepared,
                           const ConvertOptions& options) {
  const ModelSource& model = prepared.model;
  // A manifest without files is an account of the origin alone.
  if (!model.manifest || model.manifest->files.empty() || !options.verify) return OkStatus();
  VerifyOptions verify;
  verify.threads = options.threads;
  verify.leaves_blocks = HeldBy(model.source().index());
  verify.stop = options.stop;
  if (options.progress != nullptr) {
    std::uint64_t bytes = 0;
    for (const ManifestFile& file : model.manifest->files) {
      if (!verify.leaves_blocks(file.name)) bytes += file.size_bytes;
    }
    options.progress->OnPhase("check", bytes, model.manifest->files.size());
    verify.on_progress = [&](std::uint64_t read) { options.progress->OnDone(kManifestName, read); };
  }
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, model.checkpoint->path));
  CKPT_ASSIGN_OR_RETURN(
      std::vector<Problem> problems,
      VerifyManifest(storage, directory, *model.manifest, KnownRunRoot(), verify));
  std::erase_if(problems,
                [](const Problem& problem) { return problem.severity != Severity::kError; });
  return Status(std::move(problems)).While("checking the source against its manifest");
}

Status CompareModels(const ModelDigest& source, const ModelDigest& target, const Path& result) {
  Status status;
  auto stored = target.tensors.begin();
  const auto add_extra = [&] {
    status.Add(
        Error(ErrorKind::kValueMismatch, "the result read back has a tensor that the source lacks")
            .File(result.string())
            .Tensor(stored->key));
    ++stored;
  };
  for (const TensorDigest& tensor : source.tensors) {
    while (stored != target.tensors.end() && stored->key < tensor.key) add_extra();
    if (stored == target.tensors.end() || stored->key != tensor.key) {
      status.Add(Error(ErrorKind::kMissing, "the result read back lacks a tensor of the source")
                     .File(result.string())
                     .Tensor(tensor.key));
      continue;
    }
    if (stored->hex != tensor.hex) {
      status.Add(Error(ErrorKind::kValueMismatch, "the result read back differs from the source")
                     .File(result.string())
                     .Tensor(tensor.key)
                     .Expected(tensor.hex)
                     .Actual(stored->hex));
    }
    ++stored;
  }
  while (stored != target.tensors.end()) add_extra();
  return status;
}

Result<VerifiedDigests> VerifyConversion(Storage& storage, const PreparedConversion& prepared,
                                         const ConvertOptions& options,
                                         const ExecuteResult& executed, const Path& staging) {
  ModelDigestOptions digest_options{.memory_budget_bytes = options.memory_budget_bytes,
                                    .threads = options.threads,
                                    .progress = options.progress,
                                    .phase = "verify",
                                    .stop = options.stop};
  const Path path = staging / prepared.checkpoint_directory;
  if (const Format& format = *prepared.to.container; format.prove != nullptr) {
    CKPT_RETURN_IF_ERROR(format.prove(storage, path, prepared.plan.write));
  }
  if (!prepared.model.family) return VerifyStored(storage, prepared, options, executed, path);
  OpenModelOptions reopen;
  reopen.open.verify = false;  // everything is compared below
  reopen.model_type = options.model.model_type;
  reopen.mapping = options.model.mapping;
  reopen.naming = prepared.to.NamingInUse();
  reopen.allow_missing = true;
  reopen.assets = prepared.model.assets;
  CKPT_ASSIGN_OR_RETURN(const ModelSource written, OpenModel(storage, path, reopen));
  CKPT_ASSIGN_OR_RETURN(const ModelDigest target, DigestModel(written, digest_options));
  digest_options.phase = "verify source";
  CKPT_ASSIGN_OR_RETURN(const ModelDigest source, DigestModel(prepared.model, digest_options));
  const VerifiedDigests digests{.source = source.checkpoint, .target = target.checkpoint};
  // The model's digest says nothing of what the optimizer keeps.
  if (prepared.is_run) {
    CKPT_RETURN_IF_ERROR(CompareWithWritten(prepared, executed, written.source(), options));
  }
  if (digests.source == digests.target) return digests;
  if (prepared.changes_dtype) {
    CKPT_RETURN_IF_ERROR(CompareWithWritten(prepared, executed, written.source(), options));
    return digests;
  }
  CKPT_RETURN_IF_ERROR(CompareModels(source, target, staging));
  return Error(ErrorKind::kInternal, "two models of the same tensors have two digests")
      .File(staging.string())
      .Expected(digests.source)
      .Actual(digests.target);
}

}  // namespace ckpt
