#include "core/checkpoint/index.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace ckpt {
namespace {

constexpr DimsId kEmptySlot = 0xFFFFFFFF;

std::uint64_t HashDims(DimsView dims) {
  // Steps of splitmix64: dims are small, similar numbers, so every bit must spread.
  std::uint64_t hash = dims.size() + 0x9E3779B97F4A7C15ULL;
  for (const std::int64_t dim : dims) {
    hash ^= static_cast<std::uint64_t>(dim);
    hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
    hash ^= hash >> 31;
  }
  return hash;
}

template <typename Entry>
const Entry* FindByKey(std::span<const Entry> entries, std::string_view key) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), key,
                                   [](const Entry& e, std::string_view k) { return e.key < k; });
  return it != entries.end() && it->key == key ? &*it : nullptr;
}

}  // namespace

DimsId DimsPool::Intern(DimsView dims) {
  if ((size() + 1) * 2 > slots_.size()) Grow();
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = HashDims(dims) & mask;; slot = (slot + 1) & mask) {
    if (slots_[slot] == kEmptySlot) {
      const auto id = static_cast<DimsId>(size());
      CKPT_CHECK(id != kEmptySlot);
      values_.insert(values_.end(), dims.begin(), dims.end());
      starts_.push_back(values_.size());
      slots_[slot] = id;
      return id;
    }
    if (SameDims(Get(slots_[slot]), dims)) return slots_[slot];
  }
}

void DimsPool::Grow() {
  slots_.assign(std::max<std::size_t>(64, slots_.size() * 2), kEmptySlot);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t id = 0; id < size(); ++id) {
    std::size_t slot = HashDims(Get(static_cast<DimsId>(id))) & mask;
    while (slots_[slot] != kEmptySlot) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<DimsId>(id);
  }
}

Box CheckpointIndex::box(const Chunk& chunk) const {
  const DimsView o = offsets(chunk);
  const DimsView s = sizes(chunk);
  return {Dims(o.begin(), o.end()), Dims(s.begin(), s.end())};
}

std::size_t CheckpointIndex::NumCopies(const GlobalTensor& tensor) const {
  std::vector<std::pair<DimsId, DimsId>> boxes;
  for (const Chunk& chunk : chunks(tensor)) boxes.emplace_back(chunk.offsets, chunk.sizes);
  std::ranges::sort(boxes);
  std::size_t most = 0;
  for (std::size_t begin = 0, i = 0; i < boxes.size(); ++i) {
    if (boxes[i] != boxes[begin]) begin = i;
    most = std::max(most, i + 1 - begin);
  }
  return most;
}

std::span<const ObjectEntry> CheckpointIndex::copies(const ObjectEntry& object) const {
  const auto first = std::ranges::lower_bound(object_copies_, object.key, {}, &ObjectEntry::key);
  const auto last = std::ranges::upper_bound(object_copies_, object.key, {}, &ObjectEntry::key);
  return {first, last};
}

const GlobalTensor* CheckpointIndex::FindTensor(std::string_view key) const {
  return FindByKey(tensors(), key);
}

const ObjectEntry* CheckpointIndex::FindObject(std::string_view key) const {
  return FindByKey(objects(), key);
}

Status CheckpointIndex::CheckDeliverable(std::string_view key) const {
  const auto found = errors_.find(key);
  if (found == errors_.end()) return OkStatus();
  std::vector<Problem> errors;
  for (const std::size_t i : found->second) errors.push_back(problems_[i]);
  return Status(std::move(errors));
}

FileId IndexBuilder::AddFile(std::string_view name) {
  const auto [it, added] =
      file_ids_.try_emplace(std::string(name), static_cast<FileId>(index_.files_.size()));
  if (added) index_.files_.emplace_back(name);
  return it->second;
}

EncodingId IndexBuilder::AddEncoding(std::string_view name) {
  // A checkpoint has only a few encodings.
  const auto it = std::find(index_.encodings_.begin(), index_.encodings_.end(), name);
  if (it == index_.encodings_.end()) {
    index_.encodings_.emplace_back(name);
    return static_cast<EncodingId>(index_.encodings_.size() - 1);
  }
  return static_cast<EncodingId>(it - index_.encodings_.begin());
}

void IndexBuilder::AddTensor(std::string_view key, DType dtype, Dims shape) {
  GlobalTensor tensor;
  tensor.key = key;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.first_chunk = index_.chunks_.size();
  index_.tensors_.push_back(std::move(tensor));
}

void IndexBuilder::AddChunk(const Chunk& chunk) {
  CKPT_CHECK(!index_.tensors_.empty());
  index_.chunks_.push_back(chunk);
  ++index_.tensors_.back().num_chunks;
}

void IndexBuilder::AddChunk(const Box& box, FileId file, EncodingId encoding,
                            std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  AddChunk({.offsets = AddDims(box.offsets),
            .sizes = AddDims(box.sizes),
            .file = file,
            .encoding = encoding,
            .offset_bytes = offset_bytes,
            .size_bytes = size_bytes});
}

void IndexBuilder::AddProblems(const Status& status) {
  for (const Problem& problem : status.problems()) AddProblem(problem);
}

Result<CheckpointIndex> IndexBuilder::Build() {
  const auto by_key = [](const auto& a, const auto& b) { return a.key < b.key; };
  std::sort(index_.tensors_.begin(), index_.tensors_.end(), by_key);
  std::sort(index_.objects_.begin(), index_.objects_.end(), by_key);
  std::ranges::stable_sort(index_.object_copies_, {}, &ObjectEntry::key);
  const auto twice = [](const std::string& key) {
    return Error(ErrorKind::kBadMetadata, "the same key twice").Tensor(key);
  };
  for (std::size_t i = 1; i < index_.tensors_.size(); ++i) {
    const std::string& key = index_.tensors_[i].key;
    if (key == index_.tensors_[i - 1].key) return twice(key);
  }
  for (std::size_t i = 0; i < index_.objects_.size(); ++i) {
    const std::string& key = index_.objects_[i].key;
    if (i > 0 && key == index_.objects_[i - 1].key) return twice(key);
    if (index_.FindTensor(key) != nullptr) return twice(key);
  }
  for (std::size_t i = 0; i < index_.problems_.size(); ++i) {
    const Problem& problem = index_.problems_[i];
    if (problem.severity == Severity::kError) index_.errors_[problem.tensor].push_back(i);
  }
  return std::move(index_);
}

}  // namespace ckpt
