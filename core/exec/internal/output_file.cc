#include "core/exec/internal/output_file.h"

namespace ckpt {

void OutputFile::AddLiteral(const WriteLiteral& literal) {
  const MutexLock lock(mutex_);
  literals_.push_back(&literal);
}

void OutputFile::AddPart() {
  const MutexLock lock(mutex_);
  ++parts_left_;
}

void OutputFile::SetSize(std::uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  size_bytes_ = size_bytes;
  has_late_size_ = true;
}

std::uint64_t OutputFile::size_bytes() {
  const MutexLock lock(mutex_);
  return size_bytes_;
}

Result<WritableFile*> OutputFile::Open() {
  const MutexLock lock(mutex_);
  CKPT_RETURN_IF_ERROR(EnsureOpen());
  return file_.get();
}

void OutputFile::AddPieces(const std::vector<ChecksumPiece>& pieces) {
  const MutexLock lock(mutex_);
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
}

Status OutputFile::PartDone() {
  const MutexLock lock(mutex_);
  return --parts_left_ == 0 ? SyncAndClose() : OkStatus();
}

Result<BlockChecksums> OutputFile::Finish() {
  const MutexLock lock(mutex_);
  if (!is_durable_) CKPT_RETURN_IF_ERROR(SyncAndClose());  // a file that has only literals
  return CombineChecksums(std::move(pieces_), size_bytes_);
}

Status OutputFile::EnsureOpen() {
  if (file_ == nullptr) {
    CKPT_ASSIGN_OR_RETURN(file_, storage_.OpenForUpdate(path_));
  }
  if (has_literals_) return OkStatus();
  for (const WriteLiteral* literal : literals_) {
    ChecksumStream sums(literal->offset_bytes);
    sums.Update(literal->bytes);
    CKPT_RETURN_IF_ERROR(file_->WriteAt(literal->offset_bytes, literal->bytes));
    pieces_.insert(pieces_.end(), sums.pieces().begin(), sums.pieces().end());
  }
  has_literals_ = true;
  return OkStatus();
}

Status OutputFile::SyncAndClose() {
  CKPT_RETURN_IF_ERROR(EnsureOpen());
  if (has_late_size_) CKPT_RETURN_IF_ERROR(file_->Resize(size_bytes_));
  if (Status synced = file_->Sync(); !synced.ok()) {
    // The system reports lost bytes once. Later it returns them from memory as if they were
    // written. A resumed run must not find them.
    file_ = nullptr;
    if (!is_open_elsewhere_) synced.Add(storage_.RemoveAll(path_));
    return synced;
  }
  CKPT_RETURN_IF_ERROR(file_->Close());
  file_ = nullptr;
  is_durable_ = true;
  return OkStatus();
}

}  // namespace ckpt
