#include "formats/torch_save/rank_set.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"

namespace ckpt::torch_save {
namespace {

// Whether the checksums of two parts of the same box show that their elements are equal. Otherwise,
// the elements may still be equal: a storage may hold more than them.
bool AreProvedEqual(const RebuiltTensor& a, const RebuiltTensor& b) {
  const StoredArray& x = a.array;
  const StoredArray& y = b.array;
  return a.storage->crc32 && a.storage->crc32 == b.storage->crc32 &&
         a.storage->size_bytes == b.storage->size_bytes && x.strides == y.strides &&
         x.offset_bytes - a.storage->offset_bytes == y.offset_bytes - b.storage->offset_bytes &&
         x.byte_swapped == y.byte_swapped && x.negated == y.negated && x.conjugated == y.conjugated;
}

// Where a part's elements lie in its file, from the first to the last: other parts' elements may be
// between them.
struct PartExtent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};
PartExtent ExtentOf(const RebuiltTensor& part) {
  std::uint64_t last_elem = 0;
  for (std::size_t d = 0; d < part.shape.size(); ++d) {
    last_elem += static_cast<std::uint64_t>((part.shape[d] - 1) * part.array.strides[d]);
  }
  return {.offset_bytes = part.array.offset_bytes,
          .size_bytes = (last_elem + 1) * ElementBytes(part.array.dtype)};
}

}  // namespace

void AddHint(std::string_view hint, Problem& problem) {
  problem.hint = problem.hint.empty() ? hint : fmt::format("{}; {}", problem.hint, hint);
}

Result<RankSet> OpenRankFiles(Storage& storage, const Path& directory,
                              std::vector<std::string> names) {
  RankSet set;
  Status failures;
  for (const std::string& name : names) {
    Result<std::unique_ptr<TorchSaveSource>> file =
        TorchSaveSource::Open(storage, directory / name);
    if (file.ok()) {
      set.files.push_back(*std::move(file));
    } else {
      failures.Add(std::move(file).status());
    }
  }
  if (!failures.ok()) return failures;
  set.names = std::move(names);
  return set;
}

Result<std::unique_ptr<CheckpointSource>> RankSetSource::Make(RankSet set) {
  CKPT_CHECK(!set.files.empty() && set.files.size() == set.names.size());
  std::unique_ptr<RankSetSource> source(new RankSetSource(std::move(set)));
  CKPT_RETURN_IF_ERROR(source->BuildIndex());
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

Status RankSetSource::BuildIndex() {
  IndexBuilder builder;
  for (const Problem& problem : set_.problems) builder.AddProblem(problem);
  for (const std::string& name : set_.names) builder.AddFile(name);
  const EncodingId encoding = builder.AddEncoding(set_.files.front()->index().encodings().front());
  for (const RankTensor& tensor : set_.tensors) {
    builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
    builder.AddProblems(Status(tensor.problem).Tensor(tensor.key));
    AddChunks(tensor, encoding, builder);
  }
  std::set<std::string_view> keys;
  for (const ObjectEntry& object : set_.objects) {
    ObjectEntry entry = object;
    entry.encoding = encoding;
    if (keys.insert(object.key).second) {
      builder.AddObject(std::move(entry));
    } else {
      builder.AddObjectCopy(std::move(entry));
    }
  }
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

void RankSetSource::AddChunks(const RankTensor& tensor, EncodingId encoding,
                              IndexBuilder& builder) {
  std::map<std::pair<Dims, Dims>, const PlacedPart*> placed;
  for (const PlacedPart& part : tensor.parts) {
    CKPT_CHECK(part.local.shape == part.box.sizes);
    if (IsEmpty(part.box)) continue;
    const PartExtent extent = ExtentOf(part.local);
    builder.AddChunk(part.box, static_cast<FileId>(part.file), encoding, extent.offset_bytes,
                     extent.size_bytes);
    located_.push_back(&part);
    const auto [entry, is_first] =
        placed.emplace(std::pair(part.box.offsets, part.box.sizes), &part);
    if (!is_first && !AreProvedEqual(entry->second->local, part.local)) {
      unproven_[entry->second].push_back(&part);
    }
  }
}

Status RankSetSource::CheckReplicas(const std::string& key, const PlacedPart& first) const {
  const auto replicas = unproven_.find(&first);
  if (replicas == unproven_.end()) return OkStatus();
  {
    const MutexLock lock(mutex_);
    if (proven_.contains(&first)) return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::string expected,
                        set_.files[first.file]->DigestPart(first.local));
  for (const PlacedPart* replica : replicas->second) {
    CKPT_ASSIGN_OR_RETURN(const std::string actual,
                          set_.files[replica->file]->DigestPart(replica->local));
    if (actual == expected) continue;
    return Error(ErrorKind::kChecksum, "two ranks hold different values of the same elements")
        .File(set_.names[replica->file])
        .Tensor(key)
        .Expected(fmt::format("the values of {}, SHA-256 {}", set_.names[first.file], expected))
        .Actual(actual);
  }
  const MutexLock lock(mutex_);
  proven_.insert(&first);
  return OkStatus();
}

Result<StoredArray> RankSetSource::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  const auto position = static_cast<std::size_t>(&chunk - index_.chunks().data());
  CKPT_CHECK(position < located_.size());
  const PlacedPart& part = *located_[position];
  Result<StoredArray> array = set_.files[part.file]->LocatePart(part.local);
  if (!array.ok()) return std::move(array).status().Tensor(tensor.key);
  // Then all files of the set are: one storage opened them.
  if (array->file->is_checked()) return array;
  if (Status equal = CheckReplicas(tensor.key, part); !equal.ok()) {
    return std::move(equal).Tensor(tensor.key);
  }
  return array;
}

Result<RenderedObject> RankSetSource::ReadObject(const ObjectEntry& object) const {
  const auto made = set_.made.find(object.key);
  if (made != set_.made.end()) return made->second(set_, object.file);
  return set_.files[object.file]->ReadObject(object);
}

Result<std::optional<PickledObject>> RankSetSource::ReadPickled(const ObjectEntry& object) const {
  if (set_.made.contains(object.key)) return std::optional<PickledObject>();
  return set_.files[object.file]->ReadPickled(object);
}

Status RankSetSource::VerifyRest() const {
  Status status;
  for (const auto& file : set_.files) status.Add(file->VerifyRest());
  return status;
}

Result<std::uint64_t> RankSetSource::FileSize(FileId file) const {
  return set_.files[file]->FileSize(0);
}

Protection RankSetSource::protection() const {
  Protection weakest = Protection::kManifest;
  for (const auto& file : set_.files) weakest = std::min(weakest, file->protection());
  return weakest;
}

}  // namespace ckpt::torch_save
