#include "formats/verl/internal/source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/verl/internal/rank_files.h"

namespace ckpt::verl {
namespace {

// Of the mesh that the ranks' places span, by its dims.
using MeshSizes = std::vector<std::int64_t>;

// The rank's box by torch's rule for Shard: along each dim of the mesh in turn, pieces of equal
// size, rounded up, of what is left of the tensor's dim; the last ones may be short or empty.
Result<Box> BoxOf(const RankPart& part, const MeshSizes& mesh) {
  Box box = WholeBox(part.shape);
  for (std::size_t i = 0; i < part.cut_dims.size(); ++i) {
    if (!part.cut_dims[i]) continue;
    const std::int64_t ndim = static_cast<std::int64_t>(part.shape.size());
    const std::int64_t dim = *part.cut_dims[i] < 0 ? *part.cut_dims[i] + ndim : *part.cut_dims[i];
    if (dim < 0 || dim >= ndim) {
      return Error(ErrorKind::kBadMetadata, "a placement cuts a dim that the tensor lacks")
          .Expected(fmt::format("one of {} dims", ndim))
          .Actual(fmt::format("{}", *part.cut_dims[i]));
    }
    std::int64_t& offset = box.offsets[static_cast<std::size_t>(dim)];
    std::int64_t& size = box.sizes[static_cast<std::size_t>(dim)];
    const std::int64_t piece = size / mesh[i] + (size % mesh[i] != 0 ? 1 : 0);
    // The place is below the mesh's size, so the product is less than size + mesh size.
    const std::int64_t begin = std::min(size, piece * part.coordinate[i]);
    const std::int64_t end = std::min(size, begin + piece);
    offset += begin;
    size = end - begin;
  }
  return box;
}

bool IsSameTensor(const RankPart& a, const RankPart& b) {
  return a.shape == b.shape && a.local.array.dtype == b.local.array.dtype &&
         a.cut_dims == b.cut_dims;
}

std::string Describe(const RankPart& part) {
  return fmt::format("{} {}, {} mesh dims", DTypeName(part.local.array.dtype),
                     FormatDims(part.shape), part.cut_dims.size());
}

// Whether the checksums of two parts of the same box show that their elements are equal. Otherwise,
// the elements may still be equal: a storage may hold more than them.
bool AreProvedEqual(const RankPart& a, const RankPart& b) {
  const StoredArray& x = a.local.array;
  const StoredArray& y = b.local.array;
  return a.local.storage->crc32 && a.local.storage->crc32 == b.local.storage->crc32 &&
         a.local.storage->size_bytes == b.local.storage->size_bytes && x.strides == y.strides &&
         x.offset_bytes - a.local.storage->offset_bytes ==
             y.offset_bytes - b.local.storage->offset_bytes &&
         x.byte_swapped == y.byte_swapped && x.negated == y.negated && x.conjugated == y.conjugated;
}

// What lies beside the model and is not read: the other states of the same save.
std::optional<Problem> WarnOfOtherStates(Storage& storage, const Path& directory,
                                         std::span<const DirectoryEntry> entries) {
  std::set<std::string> states;
  std::uint64_t size_bytes = 0;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<RankFile> file = ParseRankFile(entry.name);
    if (!file || IsModelFile(entry.name)) continue;
    states.emplace(file->state);
    const Result<FileStat> stat = storage.Stat(directory / entry.name);
    if (stat.ok()) size_bytes += stat->size_bytes;
  }
  if (states.empty()) return std::nullopt;
  Problem warning =
      Warning(ErrorKind::kLeftover, "states beside the model are not read", directory.string(), "");
  warning.actual = fmt::format("{}, {}", NameSome(std::vector(states.begin(), states.end())),
                               FormatByteSize(size_bytes));
  warning.hint = "open their files one by one";
  return warning;
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> VerlSource::Open(Storage& storage,
                                                           const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  std::unique_ptr<VerlSource> source(new VerlSource());
  CKPT_ASSIGN_OR_RETURN(source->names_, FindModelFiles(directory, entries));
  Status failures;
  for (const std::string& name : source->names_) {
    Result<std::unique_ptr<TorchSaveSource>> file =
        TorchSaveSource::Open(storage, directory / name);
    if (file.ok()) {
      source->files_.push_back(*std::move(file));
    } else {
      failures.Add(std::move(file).status());
    }
  }
  if (!failures.ok()) return failures;
  CKPT_RETURN_IF_ERROR(source->Collect());
  CKPT_RETURN_IF_ERROR(source->BuildIndex(WarnOfOtherStates(storage, directory, entries)));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

Status VerlSource::Collect() {
  Status failures;
  for (std::size_t rank = 0; rank < files_.size(); ++rank) {
    Result<std::vector<RankPart>> parts = files_[rank]->RankParts();
    if (!parts.ok()) {
      failures.Add(std::move(parts).status());
      continue;
    }
    for (RankPart& part : *parts) {
      const std::string key = part.key;
      tensors_[key].push_back({.rank = rank, .part = std::move(part)});
    }
  }
  return failures;
}

Status VerlSource::BuildIndex(const std::optional<Problem>& warning) {
  IndexBuilder builder;
  if (warning) builder.AddProblem(*warning);
  for (const std::string& name : names_) builder.AddFile(name);
  const EncodingId encoding = builder.AddEncoding(files_.front()->index().encodings().front());
  for (const auto& [key, parts] : tensors_) {
    builder.AddTensor(key, parts.front().part.local.array.dtype, parts.front().part.shape);
    if (Status status = Place(parts, encoding, builder); !status.ok()) {
      builder.AddProblems(std::move(status).Tensor(key));
    }
  }
  std::set<std::string_view> objects;
  for (FileId file = 0; file < files_.size(); ++file) {
    const CheckpointIndex& of_rank = files_[file]->index();
    for (const Problem& problem : of_rank.problems()) {
      if (!tensors_.contains(problem.tensor)) builder.AddProblem(problem);
    }
    for (ObjectEntry object : of_rank.objects()) {
      const bool is_part = tensors_.contains(object.key);
      if (is_part || !objects.insert(of_rank.FindObject(object.key)->key).second) continue;
      object.file = file;
      object.encoding = encoding;
      builder.AddObject(std::move(object));
    }
  }
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

Status VerlSource::Place(const Parts& parts, EncodingId encoding, IndexBuilder& builder) {
  const RankPart& pattern = parts.front().part;
  if (parts.size() != names_.size()) {
    std::vector<std::string> lacking = names_;
    for (const OfRank& has : parts | std::views::reverse) {
      lacking.erase(lacking.begin() + static_cast<std::ptrdiff_t>(has.rank));
    }
    return Error(ErrorKind::kMissing, "a rank has no part of the tensor")
        .File(lacking.front())
        .Expected(fmt::format("a part in each of {} files", names_.size()))
        .Actual("none in " + NameSome(lacking));
  }
  MeshSizes mesh(pattern.cut_dims.size(), 1);
  for (const OfRank& of_rank : parts) {
    if (!IsSameTensor(of_rank.part, pattern)) {
      return Error(ErrorKind::kBadMetadata, "the ranks describe a tensor differently")
          .File(names_[of_rank.rank])
          .Expected(Describe(pattern))
          .Actual(Describe(of_rank.part));
    }
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      mesh[i] = std::max(mesh[i], of_rank.part.coordinate[i] + 1);
    }
  }
  std::map<std::pair<Dims, Dims>, const OfRank*> placed;
  for (const OfRank& of_rank : parts) {
    const RankPart& part = of_rank.part;
    CKPT_ASSIGN_OR_RETURN(const Box box, BoxOf(part, mesh));
    if (part.local.shape != box.sizes) {
      return Error(ErrorKind::kShapeMismatch, "a rank's part has another size than its place")
          .File(names_[of_rank.rank])
          .Expected(fmt::format("{}, the part {} of {}", FormatDims(box.sizes), FormatBox(box),
                                FormatDims(part.shape)))
          .Actual(FormatDims(part.local.shape));
    }
    if (IsEmpty(box)) continue;
    const auto [entry, is_first] = placed.emplace(std::pair(box.offsets, box.sizes), &of_rank);
    if (is_first) {
      builder.AddChunk(box, static_cast<FileId>(of_rank.rank), encoding,
                       part.local.storage->offset_bytes, part.local.storage->size_bytes);
    } else if (!AreProvedEqual(entry->second->part, part)) {
      unproven_[entry->second].push_back(&of_rank);
    }
  }
  return OkStatus();
}

Status VerlSource::CheckReplicas(const OfRank& first) const {
  const auto replicas = unproven_.find(&first);
  if (replicas == unproven_.end()) return OkStatus();
  {
    const MutexLock lock(mutex_);
    if (proven_.contains(&first)) return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::string expected, files_[first.rank]->DigestPart(first.part));
  for (const OfRank* replica : replicas->second) {
    CKPT_ASSIGN_OR_RETURN(const std::string actual,
                          files_[replica->rank]->DigestPart(replica->part));
    if (actual == expected) continue;
    return Error(ErrorKind::kChecksum, "two ranks hold different values of the same elements")
        .File(names_[replica->rank])
        .Tensor(first.part.key)
        .Expected(fmt::format("the values of {}, SHA-256 {}", names_[first.rank], expected))
        .Actual(actual);
  }
  const MutexLock lock(mutex_);
  proven_.insert(&first);
  return OkStatus();
}

Result<StoredArray> VerlSource::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  const auto found = tensors_.find(tensor.key);
  if (found == tensors_.end()) {
    return Error(ErrorKind::kNotFound, "no such tensor").Tensor(tensor.key);
  }
  const OfRank& of_rank = found->second[chunk.file];  // a tensor without errors has all ranks
  CKPT_RETURN_IF_ERROR(CheckReplicas(of_rank));
  return files_[of_rank.rank]->LocatePart(of_rank.part);
}

Result<RenderedObject> VerlSource::ReadObject(const ObjectEntry& object) const {
  return files_[object.file]->ReadObject(object);
}

Status VerlSource::VerifyRest() const {
  Status status;
  for (const auto& file : files_) status.Add(file->VerifyRest());
  return status;
}

Result<std::uint64_t> VerlSource::FileSize(FileId file) const { return files_[file]->FileSize(0); }

Protection VerlSource::protection() const {
  Protection weakest = Protection::kManifest;
  for (const auto& file : files_) weakest = std::min(weakest, file->protection());
  return weakest;
}

}  // namespace ckpt::verl
