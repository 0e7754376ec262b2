#include "converters/verbs/internal/verify_conversion.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/verbs/internal/link_tensors.h"
#include "converters/verbs/model_digest.h"
#include "core/base/counted.h"
#include "core/base/hash.h"
#include "core/base/task_pool.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/lies_in_order.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/nest_reader.h"
#include "core/io/unproved_storage.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "core/plan/as_stored.h"
#include "core/tensor/cast.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

// How the result is read. Checksums of the format would be compared by reading every item twice.
// They were made of the same bytes as the digests here, and need not be compared where these were
// read back, or where the result has a manifest.
class ResultStorage {
 public:
  ResultStorage(Storage& storage, const PreparedConversion& prepared, const ExecuteResult& executed)
      : behind_(storage),
        unproved_(executed.is_read_back ? MakeUnprovedStorage(storage) : nullptr),
        compares_manifest_(!executed.is_read_back && !prepared.to.container->is_one_file) {}

  [[nodiscard]] Storage& storage() const { return unproved_ ? *unproved_ : behind_; }
  [[nodiscard]] bool compares_manifest() const { return compares_manifest_; }

 private:
  Storage& behind_;
  const std::unique_ptr<Storage> unproved_;
  const bool compares_manifest_;
};

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

// Whether a reader takes the chunk's elements from where the item was written.
Result<bool> IsFromItem(const CheckpointSource& written, const GlobalTensor& stored,
                        const Chunk& chunk, const WriteItem& item, std::string_view file) {
  CKPT_ASSIGN_OR_RETURN(const StoredArray array, written.Locate(stored, chunk));
  return array.resident_bytes == 0 && array.offset_bytes == item.payload_offset &&
         array.dtype == stored.dtype && array.file->name().ends_with(file) &&
         LiesInOrder(array, item.box.sizes);
}

// The same for a whole tensor. `items` are those of the tensor.
Result<bool> IsFromItems(const CheckpointSource& written, const GlobalTensor& stored,
                         const TargetTensor& tensor, const WritePlan& plan,
                         std::span<const WriteItem> items) {
  if (stored.dtype != tensor.dtype || stored.shape != tensor.shape) return false;
  std::map<Box, const WriteItem*,
           decltype([](const Box& a, const Box& b) { return a.offsets < b.offsets; })>
      by_place;
  for (const WriteItem& item : items) {
    if (!IsEmpty(item.box)) by_place[item.box] = &item;
  }
  const auto chunks = written.index().chunks(stored);
  if (chunks.size() != by_place.size()) return false;
  for (const Chunk& chunk : chunks) {
    const auto found = by_place.find(written.index().box(chunk));
    if (found == by_place.end() || found->first != written.index().box(chunk)) return false;
    const WriteItem& item = *found->second;
    CKPT_ASSIGN_OR_RETURN(const bool is_from_item,
                          IsFromItem(written, stored, chunk, item, plan.files[item.file].name));
    if (!is_from_item) return false;
  }
  return true;
}

// Where the items of each tensor begin in the plan, and one past the last.
std::vector<std::size_t> FirstItems(const WritePlan& plan) {
  std::vector<std::size_t> first(plan.tensors.size() + 1);
  for (const WriteItem& item : plan.items) ++first[item.tensor + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  return first;
}

// Every stored tensor must have the digest that was computed while it was written. A run that was
// resumed may have read another source under the same name before: then the digest is computed
// again from the source. What was read back while it was written is not read again if the result's
// reader takes it from there; nor what waits for the digest of the result, which reads it whole if
// `digested` has its key.
Status CompareWithWritten(const PreparedConversion& prepared, const ExecuteResult& executed,
                          const CheckpointSource& written, const std::set<std::string>& digested,
                          const ConvertOptions& options) {
  const std::vector<TargetTensor>& tensors = prepared.plan.write.tensors;
  const std::uint64_t budget =
      options.memory_budget_bytes / static_cast<std::uint64_t>(std::max(options.threads, 1));
  const std::vector<std::size_t> first = FirstItems(prepared.plan.write);
  const auto compare = [&](std::size_t t, std::size_t /*worker*/) -> Status {
    const GlobalTensor* stored = written.index().FindTensor(tensors[t].key);
    if (stored == nullptr) {
      return Error(ErrorKind::kMissing, "the result lacks a tensor").Tensor(tensors[t].key);
    }
    if (executed.read_later.contains(t)) {
      if (digested.contains(tensors[t].key)) return OkStatus();
    } else if (executed.is_read_back) {
      const std::span items =
          std::span(prepared.plan.write.items).subspan(first[t], first[t + 1] - first[t]);
      CKPT_ASSIGN_OR_RETURN(const bool is_read,
                            IsFromItems(written, *stored, tensors[t], prepared.plan.write, items));
      if (is_read) return OkStatus();
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

// What the source's tensors were while they streamed, by the recipes that read them. A resumed run
// may have read another source under the same name before.
KnownDigests DigestsOfStream(const ConversionPlan& plan, const ExecuteResult& executed) {
  KnownDigests known;
  if (executed.resumed_tensors != 0) return known;
  for (std::size_t t = 0; t < plan.recipes.size(); ++t) {
    const TargetTensor& tensor = plan.write.tensors[t];
    const bool is_cast = plan.recipes[t].source_dtype != tensor.dtype;
    if (!is_cast && !executed.tensor_xxh3[t].empty()) {
      known.Add(plan.recipes[t], tensor.shape, executed.tensor_xxh3[t]);
    }
  }
  return known;
}

// The digest of a tensor of the source: as it streamed to the target, or as it was read.
FindDigest DigestsOfSource(const KnownDigests& streamed, const CheckpointIndex& index,
                           const DigestingSource& read) {
  return [&streamed, &index, &read](const TensorRecipe& recipe,
                                    DimsView shape) -> std::optional<std::string> {
    if (std::optional<std::string> known = streamed.Find(recipe, shape)) return known;
    const auto stored = TensorAsStored(recipe, shape, index);
    return stored ? read.Digest(*stored) : std::nullopt;
  };
}

// The digests of the result's tensors as they were written, by the positions at which `index` has
// them; empty where it is not known. REQUIRES: `index` is of a result that was compared with what
// was written.
std::vector<std::string> WrittenDigests(const ConversionPlan& plan, const ExecuteResult& executed,
                                        const CheckpointIndex& index) {
  std::vector<std::string> written(index.tensors().size());
  if (executed.resumed_tensors != 0) return written;
  for (std::size_t t = 0; t < plan.recipes.size(); ++t) {
    const GlobalTensor* const found = index.FindTensor(plan.write.tensors[t].key);
    if (found == nullptr) continue;
    written[static_cast<std::size_t>(found - index.tensors().data())] = executed.tensor_xxh3[t];
  }
  return written;
}

// The digest of a tensor of the result that it stores as it is. Of others it is computed of the
// result's bytes: only so a mistake in what the layout says, or in the copying, is seen.
FindDigest DigestsOfResult(std::vector<std::string> written, const CheckpointIndex& index) {
  return [written = std::move(written), &index](const TensorRecipe& recipe,
                                                DimsView shape) -> std::optional<std::string> {
    const auto stored = TensorAsStored(recipe, shape, index);
    if (!stored || written[*stored].empty()) return std::nullopt;
    return written[*stored];
  };
}

// How the result is understood as a model.
OpenModelOptions OptionsOfResult(const PreparedConversion& prepared,
                                 const ConvertOptions& options) {
  OpenModelOptions result;
  result.model_type = options.model.model_type;
  result.mapping = options.model.mapping;
  result.naming = prepared.to.NamingInUse();
  result.allow_missing = true;
  result.assets = prepared.model.assets;
  result.config = prepared.model.config;  // plain tensors do not say what model they are
  result.with_vocabulary_padding = prepared.keeps_padding;
  return result;
}

// Keys of tensors of which a model's digest is computed of every element, and not of the digests
// that they have as they are stored.
Result<std::set<std::string>> ReadByDigest(const ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(const ModelView view, ViewToDigest(model, {}));
  std::vector<TargetTensor> tensors;
  std::vector<TensorRecipe> recipes;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    if (view.derived[t]) continue;
    tensors.push_back(view.tensors[t]);
    recipes.push_back(view.recipes[t]);
  }
  const CheckpointIndex& index = model.source().index();
  std::set<std::string> keys;
  for (const std::uint32_t position : TensorsTakenApart(tensors, recipes, index)) {
    keys.insert(index.tensors()[position].key);
  }
  return keys;
}

// A checkpoint of these tensors that nobody can read.
Result<std::shared_ptr<const OpenedCheckpoint>> WithoutElements(
    std::span<const TargetTensor> tensors) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("");
  const EncodingId encoding = builder.AddEncoding("raw");
  for (const TargetTensor& tensor : tensors) {
    builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
    builder.AddChunk(WholeBox(tensor.shape), file, encoding, 0,
                     NumBytes(tensor.shape, tensor.dtype));
  }
  CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const CheckpointSource> source,
                        MakePartialSource(std::move(index), {nullptr}));
  return std::make_shared<const OpenedCheckpoint>(
      OpenedCheckpoint{.path = {}, .source = std::move(source)});
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
  const ResultStorage result(storage, prepared, executed);
  CKPT_ASSIGN_OR_RETURN(
      const OpenedCheckpoint written,
      OpenCheckpoint(result.storage(), path, {.verify = result.compares_manifest()}));
  if (options.link) {
    CKPT_RETURN_IF_ERROR(CheckLinks(*written.source, prepared.model, prepared.links));
    return VerifiedDigests();  // no element was read
  }
  if (written.source->index().tensors().size() != tensors.size()) {
    return Error(ErrorKind::kValueMismatch, "the result read back has other tensors")
        .File(path.string())
        .Expected(Counted(tensors.size(), "tensor"))
        .Actual(Counted(written.source->index().tensors().size(), "tensor"));
  }
  CKPT_RETURN_IF_ERROR(
      CompareWithWritten(prepared, executed, *written.source, {}, options).File(path.string()));
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

Result<std::vector<std::uint32_t>> TensorsToDigest(const PreparedConversion& prepared,
                                                   const ConvertOptions& options) {
  std::vector<std::uint32_t> tensors;
  if (!options.verify || !prepared.model.family) return tensors;
  KnownDigests streamed;  // of which tensors the digest will be known, not what it is
  for (std::size_t t = 0; t < prepared.plan.recipes.size(); ++t) {
    const TargetTensor& tensor = prepared.plan.write.tensors[t];
    const TensorRecipe& recipe = prepared.plan.recipes[t];
    if (recipe.source_dtype == tensor.dtype) streamed.Add(recipe, tensor.shape, {});
  }
  CKPT_ASSIGN_OR_RETURN(const ModelView view, ViewToDigest(prepared.model, {}));
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const TensorRecipe& recipe = view.recipes[t];
    const DimsView shape = view.tensors[t].shape;
    if (view.derived[t] || streamed.Find(recipe, shape)) continue;
    const auto stored = TensorAsStored(recipe, shape, prepared.model.source().index());
    if (stored) tensors.push_back(*stored);
  }
  return tensors;
}

std::set<std::size_t> TensorsToReadLater(const PreparedConversion& prepared,
                                         const ConvertOptions& options) {
  // Else nothing is read back at once; with a cast, the digest of the result is not compared with
  // the source's.
  const bool reads_back = options.verify && !options.link && !options.zstd_level &&
                          !options.resume && !options.finalize;
  if (!reads_back || !prepared.model.family || prepared.changes_dtype) return {};
  const std::vector<TargetTensor>& tensors = prepared.plan.write.tensors;
  Result<std::shared_ptr<const OpenedCheckpoint>> planned = WithoutElements(tensors);
  if (!planned.ok()) return {};
  const Result<ModelSource> model =
      MatchModel(*std::move(planned), prepared.model.config, OptionsOfResult(prepared, options));
  if (!model.ok()) return {};
  const Result<std::set<std::string>> digested = ReadByDigest(*model);
  if (!digested.ok()) return {};
  std::set<std::size_t> later;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (digested->contains(tensors[t].key)) later.insert(t);
  }
  return later;
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
                                         const ExecuteResult& executed, const DigestingSource& read,
                                         const Path& staging) {
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
  OpenModelOptions reopen = OptionsOfResult(prepared, options);
  const ResultStorage result(storage, prepared, executed);
  reopen.open.verify = result.compares_manifest();
  CKPT_ASSIGN_OR_RETURN(const ModelSource written, OpenModel(result.storage(), path, reopen));
  // The model's digest says nothing of what the optimizer keeps, and not that a cast is right.
  const bool compares_stored = prepared.is_run || prepared.changes_dtype || executed.is_read_back;
  if (compares_stored) {
    const CheckpointIndex& index = written.source().index();
    std::set<std::string> digested;
    if (!executed.read_later.empty()) {
      CKPT_ASSIGN_OR_RETURN(digested, ReadByDigest(written));
    }
    CKPT_RETURN_IF_ERROR(CompareWithWritten(prepared, executed, written.source(), digested, options)
                             .File(path.string()));
    digest_options.known = DigestsOfResult(WrittenDigests(prepared.plan, executed, index), index);
  }
  CKPT_ASSIGN_OR_RETURN(const ModelDigest target, DigestModel(written, digest_options));
  digest_options.phase = "verify source";
  const KnownDigests streamed = DigestsOfStream(prepared.plan, executed);
  digest_options.known = DigestsOfSource(streamed, prepared.model.source().index(), read);
  CKPT_ASSIGN_OR_RETURN(const ModelDigest source, DigestModel(prepared.model, digest_options));
  const VerifiedDigests digests{.source = source.checkpoint, .target = target.checkpoint};
  if (digests.source == digests.target || prepared.changes_dtype) return digests;
  CKPT_RETURN_IF_ERROR(CompareModels(source, target, staging));
  return Error(ErrorKind::kInternal, "two models of the same tensors have two digests")
      .File(staging.string())
      .Expected(digests.source)
      .Actual(digests.target);
}

}  // namespace ckpt
