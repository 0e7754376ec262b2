#include "core/exec/executor.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/codec/zstd.h"
#include "core/exec/block_checksums.h"
#include "core/exec/internal/copy_side_file.h"
#include "core/exec/internal/item_placement.h"
#include "core/exec/internal/item_writer.h"
#include "core/exec/internal/journal.h"
#include "core/exec/internal/output_file.h"
#include "core/exec/internal/prepare_output.h"
#include "core/exec/internal/produce_payload.h"
#include "core/exec/internal/read_back.h"
#include "core/exec/internal/resume.h"
#include "core/exec/internal/schedule.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxReadBackBytes = kMiB;

class Execution {
 public:
  Execution(const ConversionPlan& plan, const CheckpointSource& source, Storage& storage,
            const Path& directory, const ExecuteOptions& options)
      : plan_(plan), source_(source), storage_(storage), directory_(directory), options_(options) {}

  Result<ExecuteResult> Run();

 private:
  [[nodiscard]] bool Makes(std::uint32_t file) const {
    return !options_.worker && (!options_.share || options_.share->files[file]);
  }
  [[nodiscard]] bool Writes(std::size_t item) const {
    if (options_.worker) return options_.worker->tensors[plan_.write.items[item].tensor];
    return !options_.share || options_.share->items[item];
  }
  // Whether this process writes what is known only after all items.
  [[nodiscard]] bool WritesLate() const { return plan_.write.late_bytes && !options_.worker; }
  void IndexItems();
  Status PrepareFiles();
  using PreparedFile = Result<std::unique_ptr<OutputFile>>;
  PreparedFile PrepareShared(std::uint32_t file, const PlannedFile& planned);
  void AddParts();
  [[nodiscard]] std::vector<bool> FilesWithOwnItems() const;
  Status TakeOver(const JournalRecord& record);
  ItemExtent Place(std::size_t item, std::uint64_t size_bytes);
  // Whether this process reads back what it wrote.
  [[nodiscard]] bool ReadsBack() const {
    return options_.reads_back && !placement_ && !options_.share && !options_.worker &&
           std::ranges::find(done_, true) == done_.end();
  }
  Status ReadBack(std::size_t tensor, Worker& worker);
  Status ReadBack(const std::vector<WriteLiteral>& literals) const;
  Status WriteTensors();
  Status WriteTensor(std::size_t tensor, Worker& worker);
  Status ProduceItem(std::size_t position, Worker& worker, TensorInProgress& tensor);
  Status WriteIndex();
  Status CopySideFiles();
  Status FinishFiles();
  void Report(std::string_view item, std::uint64_t bytes) const {
    if (options_.progress != nullptr) options_.progress->OnDone(item, bytes);
  }

  const ConversionPlan& plan_;
  const CheckpointSource& source_;
  Storage& storage_;
  const Path& directory_;
  const ExecuteOptions& options_;

  std::vector<std::unique_ptr<OutputFile>> files_;
  std::unique_ptr<Journal> journal_;
  // First item of each tensor, and one past the last tensor's.
  std::vector<std::size_t> first_item_;
  std::vector<bool> done_;
  std::optional<ItemPlacement> placement_;  // of compressed items
  // For the late bytes and for tails that are read back, parallel to the plan's items. A tensor's
  // items belong to the thread that writes it.
  std::vector<WrittenItem> written_;

  Mutex mutex_;
  ExecuteResult result_ CKPT_GUARDED_BY(mutex_);
};

void Execution::IndexItems() {
  const std::size_t count = plan_.write.tensors.size();
  first_item_.assign(count + 1, 0);
  for (const WriteItem& item : plan_.write.items) ++first_item_[item.tensor + 1];
  for (std::size_t t = 0; t < count; ++t) first_item_[t + 1] += first_item_[t];
}

std::vector<bool> Execution::FilesWithOwnItems() const {
  std::vector<bool> files(plan_.write.files.size());
  for (std::size_t i = 0; i < plan_.write.items.size(); ++i) {
    if (Writes(i)) files[plan_.write.items[i].file] = true;
  }
  return files;
}

// Of a job whose processes share the plan: a file that this process creates or has open; null for
// all others.
Execution::PreparedFile Execution::PrepareShared(std::uint32_t file, const PlannedFile& planned) {
  if (const auto open = options_.share->open.find(file); open != options_.share->open.end()) {
    return std::make_unique<OutputFile>(storage_, planned.path, planned.size_bytes, open->second);
  }
  return Makes(file) ? CreateOutput(storage_, planned) : std::unique_ptr<OutputFile>();
}

Status Execution::PrepareFiles() {
  const std::vector<bool> own = FilesWithOwnItems();
  const auto prepare = [&](std::uint32_t file) -> PreparedFile {
    const WriteFile& of_plan = plan_.write.files[file];
    const PlannedFile planned = {.path = directory_ / of_plan.name,
                                 .size_bytes = of_plan.size_bytes,
                                 .is_compressed = plan_.write.compression.has_value()};
    if (options_.share) return PrepareShared(file, planned);
    if (options_.worker && !own[file]) return std::unique_ptr<OutputFile>();
    return PrepareOutput(storage_, planned);
  };
  for (std::uint32_t file = 0; file < plan_.write.files.size(); ++file) {
    CKPT_ASSIGN_OR_RETURN(files_.emplace_back(), prepare(file));
  }
  AddParts();
  return OkStatus();
}

// Tells each file what this process puts into it.
void Execution::AddParts() {
  if (plan_.write.compression) placement_.emplace(plan_.write);
  for (std::size_t i = 0; i < plan_.write.items.size(); ++i) {
    if (Writes(i)) files_[plan_.write.items[i].file]->AddPart();
  }
  written_.resize(plan_.write.items.size());
  if (plan_.write.late_bytes && WritesLate()) {
    for (const std::uint32_t file : plan_.write.late_bytes->files) files_[file]->AddPart();
  }
  const MutexLock lock(mutex_);
  for (const WriteLiteral& literal : plan_.write.literals) {
    if (!Makes(literal.file)) continue;
    files_[literal.file]->AddLiteral(literal);
    result_.bytes_written += literal.bytes.size();
  }
}

// Accepts a finished tensor if the bytes on disk are the recorded ones.
Status Execution::TakeOver(const JournalRecord& record) {
  if (record.tensor >= done_.size() || done_[record.tensor]) return OkStatus();
  const std::size_t first = first_item_[record.tensor];
  const std::size_t end = first_item_[record.tensor + 1];
  if (plan_.write.late_bytes && record.items.size() != end - first) return OkStatus();
  if (placement_) {
    // Its bytes are where this run would put them only if they directly follow the items before it.
    std::vector<ItemExtent> extents;
    for (const WrittenItem& item : record.items) extents.push_back(item.extent);
    if (!placement_->Continues(first, extents)) return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<PiecesByFile> pieces,
                        FindRecorded(storage_, directory_, plan_.write, record));
  if (!pieces) return OkStatus();
  for (const auto& [file_id, of_file] : *pieces) files_[file_id]->AddPieces(of_file);
  for (std::size_t i = first; i < end; ++i) {
    if (placement_) Place(i, record.items[i - first].extent.size_bytes);
    if (plan_.write.late_bytes) written_[i] = record.items[i - first];
    CKPT_RETURN_IF_ERROR(files_[plan_.write.items[i].file]->PartDone());
  }
  done_[record.tensor] = true;
  const MutexLock lock(mutex_);
  result_.tensor_xxh3[record.tensor] = record.digest;
  result_.cast_overflows += record.cast_overflows;
  ++result_.resumed_tensors;
  return OkStatus();
}

// Records the length of a compressed item, and returns where it lies.
ItemExtent Execution::Place(std::size_t item, std::uint64_t size_bytes) {
  const std::uint32_t file = plan_.write.items[item].file;
  const ItemExtent extent = placement_->Place(item, size_bytes);
  files_[file]->SetSize(placement_->end_of_file(file));
  return extent;
}

// `position`: of the item in the plan.
Status Execution::ProduceItem(std::size_t position, Worker& worker, TensorInProgress& tensor) {
  const WriteItem& item = plan_.write.items[position];
  const TargetTensor& target = plan_.write.tensors[item.tensor];
  const ItemFraming& framing = *plan_.write.framing;
  OutputFile& file = *files_[item.file];
  CKPT_ASSIGN_OR_RETURN(WritableFile* const out, file.Open());
  ZstdEncoder* const encoder = item.is_plain ? nullptr : worker.encoder.get();
  if (encoder != nullptr) encoder->Begin(item.size_bytes);
  ItemWriter writer(*out, placement_ ? placement_->end_of_file(item.file) : item.offset_bytes,
                    worker.buffers, encoder);
  CKPT_RETURN_IF_ERROR(writer.Write(framing.Head(target, item)));
  CKPT_ASSIGN_OR_RETURN(const std::uint32_t crc32,
                        ProducePayload(plan_, item, options_, worker, writer, tensor));
  CKPT_RETURN_IF_ERROR(writer.Write(framing.Tail(target, item, crc32)));
  CKPT_RETURN_IF_ERROR(writer.Finish());
  ItemExtent extent = {.offset_bytes = item.offset_bytes, .size_bytes = writer.size_bytes()};
  if (placement_) extent = Place(position, writer.size_bytes());
  written_[position] = {.extent = extent, .payload_crc32 = crc32};
  if (plan_.write.late_bytes) tensor.record.items.push_back(written_[position]);
  for (const ChecksumPiece& piece : writer.pieces()) {
    tensor.record.pieces.emplace_back(item.file, piece);
  }
  tensor.written_bytes += writer.size_bytes();
  file.AddPieces(writer.pieces());
  return file.PartDone();
}

Status Execution::WriteTensor(std::size_t tensor, Worker& worker) {
  TensorInProgress progress;
  JournalRecord& record = progress.record;
  record.tensor = static_cast<std::uint32_t>(tensor);
  bool is_whole = true;
  worker.reader.Reset();
  for (std::size_t i = first_item_[tensor]; i < first_item_[tensor + 1]; ++i) {
    if (Writes(i)) {
      CKPT_RETURN_IF_ERROR(ProduceItem(i, worker, progress));
    } else {
      is_whole = false;
    }
  }
  if (is_whole) record.digest = progress.hasher.Finish();
  if (journal_ != nullptr) CKPT_RETURN_IF_ERROR(journal_->Append(record));
  const MutexLock lock(mutex_);
  result_.tensor_xxh3[tensor] = record.digest;
  result_.cast_overflows += record.cast_overflows;
  result_.bytes_written += progress.written_bytes;
  return OkStatus();
}

// Compares a tensor's items, where they were written, with its digest.
Status Execution::ReadBack(std::size_t tensor, Worker& worker) {
  const WrittenFiles files = {.plan = plan_.write, .storage = storage_, .directory = directory_};
  const std::size_t first = first_item_[tensor];
  const std::size_t end = first_item_[tensor + 1];
  const MutableByteSpan buffer =
      worker.gathered.First(std::min(kMaxReadBackBytes, worker.window_bytes));
  if (options_.read_later.contains(tensor)) {
    return ReadBackAround(files, first, end, written_, buffer);
  }
  CKPT_ASSIGN_OR_RETURN(const std::string actual, ReadBackItems(files, first, end, buffer));
  const MutexLock lock(mutex_);
  if (actual == result_.tensor_xxh3[tensor]) return OkStatus();
  return Error(ErrorKind::kValueMismatch, "the result read back is not what was written")
      .File(directory_.string())
      .Tensor(plan_.write.tensors[tensor].key)
      .Expected(result_.tensor_xxh3[tensor])
      .Actual(actual);
}

// The same for bytes of the plan that belong to no tensor.
Status Execution::ReadBack(const std::vector<WriteLiteral>& literals) const {
  if (!options_.reads_back || options_.share || options_.worker) return OkStatus();
  return ReadBackLiterals({.plan = plan_.write, .storage = storage_, .directory = directory_},
                          literals);
}

Status Execution::WriteTensors() {
  const auto& compression = plan_.write.compression;
  const bool reads_back = ReadsBack();
  CKPT_ASSIGN_OR_RETURN(const std::size_t threads,
                        CountWorkers(plan_, source_, options_.memory_budget_bytes, options_.threads,
                                     [this](std::size_t item) { return Writes(item); }));
  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t w = 0; w < threads; ++w) {
    workers.push_back(std::make_unique<Worker>(source_, options_.memory_budget_bytes / threads));
  }
  if (compression) {
    workers.front()->encoder = std::make_unique<ZstdEncoder>(ZstdEncoder::Options{
        .level = compression->zstd_level, .threads = std::max(options_.threads, 1)});
  }
  const auto write_tensor = [&](std::size_t tensor, std::size_t worker) -> Status {
    if (options_.worker && !options_.worker->tensors[tensor]) return OkStatus();
    if (!done_[tensor]) {
      return WriteTensor(tensor, *workers[worker])
          .While("writing " + plan_.write.tensors[tensor].key);
    }
    for (std::size_t i = first_item_[tensor]; i < first_item_[tensor + 1]; ++i) {
      Report(plan_.write.tensors[tensor].key, plan_.write.items[i].payload_bytes);
    }
    return OkStatus();
  };
  const auto write_batch = [&](const Batch& batch, std::size_t worker) -> Status {
    for (const std::size_t tensor : batch) CKPT_RETURN_IF_ERROR(write_tensor(tensor, worker));
    return OkStatus();
  };
  const std::vector<Batch> batches = CutIntoBatches(plan_, options_.read_in_order, threads);
  if (reads_back) {
    const auto read_back = [&](const Batch& batch, std::size_t worker) -> Status {
      for (const std::size_t tensor : batch) {
        CKPT_RETURN_IF_ERROR(ReadBack(tensor, *workers[worker]));
      }
      return OkStatus();
    };
    CKPT_RETURN_IF_ERROR(WriteAndReadBack(batches, threads, options_.stop, write_batch, read_back));
  } else {
    CKPT_RETURN_IF_ERROR(RunTasks(batches.size(), static_cast<int>(threads), options_.stop,
                                  [&](std::size_t batch, std::size_t worker) {
                                    return write_batch(batches[batch], worker);
                                  }));
  }
  const MutexLock lock(mutex_);
  result_.is_read_back = reads_back;
  if (reads_back) result_.read_later = options_.read_later;
  for (const auto& worker : workers) result_.bytes_read += worker->reader.bytes_read();
  return OkStatus();
}

// Writes what says where items lie, or what their checksums are.
Status Execution::WriteIndex() {
  if (!WritesLate()) return OkStatus();
  const LateBytes& late = *plan_.write.late_bytes;
  const std::vector<WriteLiteral> literals = late.encode(plan_.write, written_);
  std::uint64_t written = 0;
  for (const WriteLiteral& literal : literals) {
    OutputFile& file = *files_[literal.file];
    CKPT_ASSIGN_OR_RETURN(WritableFile* const out, file.Open());
    CKPT_RETURN_IF_ERROR(out->WriteAt(literal.offset_bytes, literal.bytes));
    ChecksumStream sums(literal.offset_bytes);
    sums.Update(literal.bytes);
    file.AddPieces(sums.pieces());
    const std::uint64_t end = literal.offset_bytes + literal.bytes.size();
    file.SetSize(std::max(file.size_bytes(), end));
    written += literal.bytes.size();
  }
  for (const std::uint32_t file : late.files) CKPT_RETURN_IF_ERROR(files_[file]->PartDone());
  CKPT_RETURN_IF_ERROR(ReadBack(literals));
  const MutexLock lock(mutex_);
  result_.bytes_written += written;
  return OkStatus();
}

Status Execution::CopySideFiles() {
  for (const WriteCopy& copy : plan_.write.copies) {
    CKPT_ASSIGN_OR_RETURN(ManifestFile written, CopySideFile(storage_, copy, directory_));
    if (ReadsBack()) {
      CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                            storage_.Open(directory_ / copy.name));
      CKPT_RETURN_IF_ERROR(ReadBackFile(*file, written));
    }
    Report(copy.name, 0);
    const MutexLock lock(mutex_);
    result_.bytes_read += written.size_bytes;
    result_.bytes_written += written.size_bytes;
    result_.files.push_back(std::move(written));
  }
  return OkStatus();
}

Status Execution::FinishFiles() {
  std::vector<ManifestFile> finished(files_.size());
  const auto finish_file = [&](std::size_t f, std::size_t /*worker*/) -> Status {
    if (files_[f] == nullptr) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(BlockChecksums blocks, files_[f]->Finish());
    finished[f].block_crc32c = std::move(blocks.crc32c);
    finished[f].block_crc32 = std::move(blocks.crc32);
    finished[f].name = plan_.write.files[f].name;
    finished[f].size_bytes = files_[f]->size_bytes();
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunTasks(files_.size(), options_.threads, options_.stop, finish_file));
  std::erase_if(finished, [](const ManifestFile& file) { return file.name.empty(); });
  const MutexLock lock(mutex_);
  result_.files = std::move(finished);
  return OkStatus();
}

Result<ExecuteResult> Execution::Run() {
  {
    const MutexLock lock(mutex_);
    result_.tensor_xxh3.resize(plan_.write.tensors.size());
  }
  if (options_.progress != nullptr) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < plan_.write.items.size(); ++i) {
      if (Writes(i)) bytes += plan_.write.items[i].payload_bytes;
    }
    options_.progress->OnPhase(options_.phase, bytes, plan_.write.tensors.size());
  }
  done_.assign(plan_.write.tensors.size(), false);
  std::vector<JournalRecord> records;
  if (!options_.share) {
    CKPT_ASSIGN_OR_RETURN(OpenedJournal opened, OpenJournal(storage_, directory_, plan_, options_));
    journal_ = std::move(opened.journal);
    records = std::move(opened.records);
  }
  IndexItems();
  CKPT_RETURN_IF_ERROR(PrepareFiles());
  for (const JournalRecord& record : records) CKPT_RETURN_IF_ERROR(TakeOver(record));
  CKPT_RETURN_IF_ERROR(WriteTensors());
  CKPT_RETURN_IF_ERROR(WriteIndex());
  CKPT_RETURN_IF_ERROR(FinishFiles());
  CKPT_RETURN_IF_ERROR(ReadBack(plan_.write.literals));
  if (options_.worker) CKPT_RETURN_IF_ERROR(journal_->Sync());
  if (Makes(0)) CKPT_RETURN_IF_ERROR(CopySideFiles());
  const MutexLock lock(mutex_);
  return std::move(result_);
}

}  // namespace

Result<ExecuteResult> Execute(const ConversionPlan& plan, const CheckpointSource& source,
                              Storage& storage, const Path& directory,
                              const ExecuteOptions& options) {
  return Execution(plan, source, storage, directory, options).Run();
}

}  // namespace ckpt
