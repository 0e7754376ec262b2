#include "tools/ckpt-inspect/tensor_diff.h"

#include <algorithm>
#include <numeric>
#include <stop_token>
#include <tuple>
#include <utility>

#include "converters/verbs/model_source.h"
#include "core/base/scratch.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/exec/nest_reader.h"
#include "core/io/unproved_storage.h"
#include "core/tensor/blocks.h"
#include "core/tensor/cast.h"
#include "formats/registry/stored_run.h"
#include "tools/ckpt-inspect/health.h"

namespace ckpt::inspect {
namespace {

constexpr std::uint64_t kMinBlockBytes = 64 * kKiB;
constexpr std::uint64_t kMaxBlockBytes = 4 * kMiB;  // two of them stay in a cache

// Whether the bytes are wrong and others may still be read.
bool IsOfData(ErrorKind kind) { return !IsUnread(kind) && kind != ErrorKind::kUsage; }

// What a manifest finds in bytes that can be read without it.
bool IsOfManifest(ErrorKind kind) {
  return kind == ErrorKind::kChecksum || kind == ErrorKind::kTruncated ||
         kind == ErrorKind::kSizeMismatch || kind == ErrorKind::kMissingFile;
}

// Equal tensors, so that positions in one index are positions in the other.
bool HasSameTensors(const CheckpointIndex& a, const CheckpointIndex& b) {
  return std::ranges::equal(a.tensors(), b.tensors(),
                            [](const GlobalTensor& x, const GlobalTensor& y) {
                              return x.key == y.key && x.dtype == y.dtype && x.shape == y.shape;
                            });
}

struct Sources {
  const CheckpointSource* a = nullptr;
  const CheckpointSource* b = nullptr;
};

// A thread's memory.
struct Blocks {
  Scratch a;
  Scratch b;
  Scratch read;  // what is rounded into one of them
};

enum class WhichSide : std::uint8_t { kA, kB };

// A block of one side, in the dtype in which it is compared.
Result<ByteSpan> ReadAsked(const TensorAsked& asked, const Box& block, NestReader& reader,
                           Scratch& into, Scratch& read) {
  const Box whole = WholeBox(asked.shape);
  const DType stored = asked.recipe.source_dtype;
  const MutableByteSpan bytes = into.First(NumBytes(block.sizes, asked.dtype));
  if (stored == asked.dtype) return reader.ReadInOrder(asked.recipe, whole, block, bytes);
  CKPT_ASSIGN_OR_RETURN(
      const ByteSpan exact,
      reader.ReadInOrder(asked.recipe, whole, block, read.First(NumBytes(block.sizes, stored))));
  CastElements(stored, exact, asked.dtype, bytes);
  return ByteSpan(bytes);
}

// The bytes of an element while it is read.
std::uint64_t BytesRead(const TensorAsked& asked) {
  return std::max(ElementBytes(asked.dtype), ElementBytes(asked.recipe.source_dtype));
}

// Compares one pair in blocks. `failed` says on which side an error was met.
Status CompareOnce(const Sources& sources, const TensorDiffOptions& options,
                   std::uint64_t budget_bytes, Blocks& blocks, TensorDiff& diff,
                   WhichSide& failed) {
  const TensorAsked& a = diff.pair->a;
  const TensorAsked& b = diff.pair->b;
  const std::uint64_t block_bytes = std::clamp(budget_bytes / 8, kMinBlockBytes, kMaxBlockBytes);
  const std::uint64_t element_bytes = std::max(BytesRead(a), BytesRead(b));
  NestReader reader_a(*sources.a, budget_bytes / 8 * 3, diff.pair->copy);
  NestReader reader_b(*sources.b, budget_bytes / 8 * 3, diff.pair->copy);
  ElementComparer comparer(a.dtype, b.dtype, options.tolerance);
  Status status =
      ForEachBlock(WholeBox(a.shape), static_cast<std::int64_t>(block_bytes / element_bytes),
                   [&](const Box& block) {
                     failed = WhichSide::kA;
                     CKPT_ASSIGN_OR_RETURN(const ByteSpan bytes_a,
                                           ReadAsked(a, block, reader_a, blocks.a, blocks.read));
                     failed = WhichSide::kB;
                     CKPT_ASSIGN_OR_RETURN(const ByteSpan bytes_b,
                                           ReadAsked(b, block, reader_b, blocks.b, blocks.read));
                     comparer.Add(bytes_a, bytes_b);
                     return OkStatus();
                   });
  diff.elements = comparer.diff();
  return status;
}

// The same; a side whose checksums do not match is read again without them.
Status ComparePair(DiffSide& a, DiffSide& b, const TensorDiffOptions& options,
                   std::uint64_t budget_bytes, Blocks& blocks, TensorDiff& diff) {
  Sources sources{.a = a.opened()->source.get(), .b = b.opened()->source.get()};
  Status status;
  for (int attempt = 0; attempt < 3; ++attempt) {  // as stored, and without the checksums of each
    WhichSide failed = WhichSide::kA;
    status = CompareOnce(sources, options, budget_bytes, blocks, diff, failed);
    if (status.ok() || !IsOfManifest(status.kind())) break;
    DiffSide& side = failed == WhichSide::kA ? a : b;
    const CheckpointSource*& source = failed == WhichSide::kA ? sources.a : sources.b;
    status = std::move(status).Tensor(diff.pair->Name());
    const Result<const CheckpointSource*> unproved = side.Unproved(status);
    if (!unproved.ok()) return unproved.status();
    if (*unproved == source) break;  // it was without them already
    source = *unproved;
  }
  return status;
}

Result<std::shared_ptr<const OpenedCheckpoint>> SeeValues(
    Storage& storage, std::shared_ptr<const OpenedCheckpoint> checkpoint) {
  CKPT_ASSIGN_OR_RETURN(checkpoint, ckpt::SeeParameters(std::move(checkpoint)));
  return SeeDecoded(storage, std::move(checkpoint));
}

}  // namespace

DiffSide::DiffSide(Storage& storage, Path path)
    : storage_(&storage), path_(std::move(path)), unproved_storage_(MakeUnprovedStorage(storage)) {}

Result<std::unique_ptr<DiffSide>> DiffSide::Open(Storage& storage, const Path& path) {
  std::unique_ptr<DiffSide> side(new DiffSide(storage, path));
  Result<OpenedCheckpoint> opened = OpenCheckpoint(storage, path);
  if (opened.ok()) {
    side->opened_ = std::make_shared<const OpenedCheckpoint>(*std::move(opened));
    return side;
  }
  if (!IsOfManifest(opened.status().kind())) return opened.status();
  if (!side->Distrust(opened.status()).ok()) return opened.status();
  return side;
}

Status DiffSide::SeeParameters() {
  Result<std::shared_ptr<const OpenedCheckpoint>> seen = SeeValues(*storage_, opened_);
  sees_parameters_ = true;
  if (seen.ok()) {
    opened_ = *std::move(seen);
    return OkStatus();
  }
  // Which values show where parameters lie, may be damaged, and the others as they were.
  if (IsOfManifest(seen.status().kind()) && Distrust(seen.status()).ok()) return OkStatus();
  sees_parameters_ = false;
  return std::move(seen).status();
}

Status DiffSide::OpenUnproved() {
  if (unproved_) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint opened,
                        OpenCheckpoint(*unproved_storage_, path_, {.verify = false}));
  auto unproved = std::make_shared<const OpenedCheckpoint>(std::move(opened));
  if (!sees_parameters_) {
    unproved_ = std::move(unproved);
    return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(unproved_, SeeValues(*unproved_storage_, std::move(unproved)));
  return OkStatus();
}

void DiffSide::Note(const Status& damage) {
  for (const Problem& problem : damage.problems()) problems_.push_back(problem);
}

Status DiffSide::Distrust(const Status& damage) {
  const MutexLock lock(mutex_);
  CKPT_RETURN_IF_ERROR(OpenUnproved());
  Note(damage);
  opened_ = unproved_;
  return OkStatus();
}

Result<const CheckpointSource*> DiffSide::Unproved(const Status& damage) {
  const MutexLock lock(mutex_);
  Note(damage);
  CKPT_RETURN_IF_ERROR(OpenUnproved());
  if (!HasSameTensors(opened_->source->index(), unproved_->source->index())) {
    return Error(ErrorKind::kIo, "the checkpoint changed while it was compared")
        .File(path_.string());
  }
  return unproved_->source.get();
}

std::vector<Problem> DiffSide::problems() {
  const MutexLock lock(mutex_);
  std::vector<Problem> problems = problems_;
  // Threads note damage in any order.
  std::ranges::stable_sort(problems, [](const Problem& x, const Problem& y) {
    return std::tie(x.file, x.tensor) < std::tie(y.file, y.tensor);
  });
  RemoveRepeated(problems);
  return problems;
}

Result<std::vector<TensorDiff>> DiffTensors(DiffSide& a, DiffSide& b,
                                            std::span<const TensorPair> pairs,
                                            const TensorDiffOptions& options,
                                            ProgressSink& progress) {
  std::vector<TensorDiff> diffs;
  std::uint64_t total = 0;
  std::vector<std::uint64_t> sizes;
  for (const TensorPair& pair : pairs) {
    diffs.push_back({.pair = &pair,
                     .has_same_shape = pair.a.shape == pair.b.shape,
                     .has_same_dtype = pair.a.dtype == pair.b.dtype,
                     .unreadable = {},
                     .elements = {}});
    sizes.push_back(diffs.back().has_same_shape ? NumBytes(pair.a.shape, pair.a.dtype) : 0);
    total += sizes.back();
  }
  progress.OnPhase("diff", total, pairs.size());
  // The largest first, so that no thread ends long after the others.
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return sizes[i]; });
  const std::uint64_t budget =
      options.memory_budget_bytes / static_cast<std::uint64_t>(std::max(options.threads, 1));
  std::vector<Blocks> blocks(static_cast<std::size_t>(std::max(options.threads, 1)));
  const auto compare = [&](std::size_t task, std::size_t worker) -> Status {
    TensorDiff& diff = diffs[order[task]];
    if (diff.has_same_shape) {
      Status status = ComparePair(a, b, options, budget, blocks[worker], diff);
      if (!status.ok()) {
        status = std::move(status).Tensor(diff.pair->Name());
        if (!IsOfData(status.kind())) return status;
        diff.unreadable = std::move(status);
      }
    }
    progress.OnDone(diff.pair->Name(), sizes[order[task]]);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(diffs.size(), options.threads, std::stop_token(), compare));
  return diffs;
}

}  // namespace ckpt::inspect
