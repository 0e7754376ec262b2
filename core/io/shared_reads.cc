#include "core/io/shared_reads.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/mutex.h"

namespace ckpt {
namespace {

constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

// A read in a record; the file's identity and the bytes follow. Who takes it is on the same
// machine.
struct ReadHeader {
  std::uint64_t identity_bytes = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

std::string IdentityOf(const Path& path, const FileStat& stat) {
  return fmt::format("{} {} {}", stat.size_bytes, stat.modified_ns, path.string());
}

}  // namespace

// The record that is written or answered from.
class SharedReads::Log {
 public:
  [[nodiscard]] bool is_on() const { return state_.load(std::memory_order_relaxed) != State::kOff; }

  void Record() { state_ = State::kRecords; }

  void Note(const std::string& file, std::uint64_t offset, ByteSpan bytes) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (state_ != State::kRecords) return;
    const ReadHeader header = {
        .identity_bytes = file.size(), .offset_bytes = offset, .size_bytes = bytes.size()};
    const std::size_t room = kMaxRecordBytes - record_.size();
    if (room < sizeof(header) + file.size() || room - sizeof(header) - file.size() < bytes.size()) {
      return;
    }
    record_ += AsText(std::as_bytes(std::span(&header, 1)));
    record_ += file;
    record_ += AsText(bytes);
  }

  Status Answer(std::string record) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    record_ = std::move(record);
    for (std::string_view left = record_; !left.empty();) {
      ReadHeader header;
      const bool has_header = left.size() >= sizeof(header);
      if (has_header) std::memcpy(&header, left.data(), sizeof(header));
      const std::size_t room = has_header ? left.size() - sizeof(header) : 0;
      if (!has_header || header.identity_bytes > room ||
          header.size_bytes > room - header.identity_bytes) {
        return Error(ErrorKind::kInternal, "a record of shared reads ends inside a read");
      }
      left.remove_prefix(sizeof(header));
      const std::string_view file = left.substr(0, header.identity_bytes);
      left.remove_prefix(file.size());
      std::string_view& known = reads_[std::string(file)][header.offset_bytes];
      if (header.size_bytes > known.size()) known = left.substr(0, header.size_bytes);
      left.remove_prefix(header.size_bytes);
    }
    state_ = State::kAnswers;
    return OkStatus();
  }

  // Fills `out`, if one recorded read holds all of it.
  bool Find(const std::string& file, std::uint64_t offset, MutableByteSpan out)
      CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto reads = reads_.find(file);
    if (reads == reads_.end()) return false;
    auto read = reads->second.upper_bound(offset);
    if (read == reads->second.begin()) return false;
    --read;
    const std::uint64_t skipped = offset - read->first;
    if (skipped > read->second.size() || read->second.size() - skipped < out.size()) return false;
    if (!out.empty()) std::memcpy(out.data(), read->second.data() + skipped, out.size());
    return true;
  }

  std::string Stop() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    state_ = State::kOff;
    reads_.clear();
    return std::exchange(record_, {});
  }

 private:
  enum class State : std::uint8_t { kOff, kRecords, kAnswers };

  std::atomic<State> state_{State::kOff};
  Mutex mutex_;
  std::string record_ CKPT_GUARDED_BY(mutex_);
  // By file and offset; the bytes lie in `record_`.
  std::map<std::string, std::map<std::uint64_t, std::string_view>> reads_ CKPT_GUARDED_BY(mutex_);
};

class SharedReads::File final : public ReadableFile {
 public:
  File(std::shared_ptr<const ReadableFile> behind, std::string identity, std::shared_ptr<Log> log)
      : behind_(std::move(behind)), identity_(std::move(identity)), log_(std::move(log)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  [[nodiscard]] bool is_checked() const override { return behind_->is_checked(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (!log_->is_on()) return behind_->ReadAt(offset, out);
    if (log_->Find(identity_, offset, out)) return OkStatus();
    CKPT_RETURN_IF_ERROR(behind_->ReadAt(offset, out));
    log_->Note(identity_, offset, out);
    return OkStatus();
  }
  Status ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                      const std::function<Status(ByteSpan)>& seen) const override {
    return log_->is_on() ? ReadableFile::ReadInPieces(offset, out, seen)
                         : behind_->ReadInPieces(offset, out, seen);
  }
  [[nodiscard]] Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  const std::shared_ptr<const ReadableFile> behind_;
  const std::string identity_;
  const std::shared_ptr<Log> log_;
};

SharedReads::SharedReads(Storage& behind)
    : ForwardingStorage(behind), log_(std::make_shared<Log>()) {}

void SharedReads::Record() { log_->Record(); }
std::string SharedReads::TakeRecord() { return log_->Stop(); }
Status SharedReads::Answer(std::string record) { return log_->Answer(std::move(record)); }
void SharedReads::Forget() { log_->Stop(); }

Result<std::shared_ptr<const ReadableFile>> SharedReads::Open(const Path& path) {
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
  if (!log_->is_on()) return file;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, behind().Stat(path));
  return std::shared_ptr<const ReadableFile>(
      std::make_shared<File>(std::move(file), IdentityOf(path, stat), log_));
}

}  // namespace ckpt
