#include "trainer/data/line_index.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/mutex.h"
#include "core/base/units.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kBytesPerMark = 64 * kKiB;
constexpr std::size_t kMostKept = kMiB / kBytesPerMark;
constexpr std::string_view kWhiteSpace = " \t\r";

using Block = std::shared_ptr<const std::string>;

Result<Block> ReadBlock(const ReadableFile& file, std::uint64_t offset, std::uint64_t most_bytes) {
  std::string block(std::min(most_bytes, file.size_bytes() - offset), '\0');
  CKPT_RETURN_IF_ERROR(
      file.ReadAt(offset, std::as_writable_bytes(std::span(block.data(), block.size()))));
  return std::make_shared<const std::string>(std::move(block));
}

// Gives one line after another of what `read` reads from an offset on.
class LineScanner {
 public:
  using Read = std::function<Result<Block>(std::uint64_t offset)>;

  LineScanner(const ReadableFile& file, std::uint64_t offset, std::int64_t number, Read read)
      : file_(file), read_(std::move(read)), next_read_(offset), line_offset_(offset) {
    line_.number = number - 1;
  }

  // Moves to the next line, which may be blank. False at the end of the file.
  Result<bool> Next() {
    line_offset_ += consumed_bytes_;
    ++line_.number;
    line_.text.clear();
    for (;;) {
      const std::size_t end = block_->find('\n', at_);
      line_.text.append(*block_, at_, end - at_);
      if (line_.text.size() > kMaxLineBytes) {
        return Error(ErrorKind::kResource, "the line is too long")
            .File(fmt::format("{}:{}", file_.name(), line_.number))
            .Expected("at most " + FormatByteSize(kMaxLineBytes));
      }
      if (end != std::string::npos) {
        at_ = end + 1;
        consumed_bytes_ = line_.text.size() + 1;
        return true;
      }
      if (next_read_ == file_.size_bytes()) {
        at_ = block_->size();
        consumed_bytes_ = line_.text.size();
        return consumed_bytes_ != 0;
      }
      CKPT_ASSIGN_OR_RETURN(block_, read_(next_read_));
      next_read_ += block_->size();
      at_ = 0;
    }
  }

  [[nodiscard]] bool IsBlank() const {
    return line_.text.find_first_not_of(kWhiteSpace) == std::string::npos;
  }
  [[nodiscard]] std::uint64_t line_offset() const { return line_offset_; }
  [[nodiscard]] const Line& line() const { return line_; }
  [[nodiscard]] Line TakeLine() { return std::move(line_); }

 private:
  const ReadableFile& file_;
  const Read read_;
  std::uint64_t next_read_;
  std::uint64_t line_offset_;
  std::uint64_t consumed_bytes_ = 0;  // by the current line and its end
  Block block_ = std::make_shared<const std::string>();
  std::size_t at_ = 0;
  Line line_;
};

}  // namespace

// The blocks that were read last. Thread-safe.
class LineIndex::KeptBlocks {
 public:
  Result<Block> Read(const ReadableFile& file, std::uint64_t offset) CKPT_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (const auto found = blocks_.find(offset); found != blocks_.end()) return found->second;
    }
    CKPT_ASSIGN_OR_RETURN(Block block, ReadBlock(file, offset, kBytesPerMark));
    const MutexLock lock(mutex_);
    if (blocks_.size() == kMostKept) blocks_.clear();
    return blocks_.emplace(offset, std::move(block)).first->second;
  }

 private:
  Mutex mutex_;
  std::map<std::uint64_t, Block> blocks_ CKPT_GUARDED_BY(mutex_);  // by where they begin
};

LineIndex::LineIndex(std::shared_ptr<const ReadableFile> file)
    : file_(std::move(file)), blocks_(std::make_unique<KeptBlocks>()) {}
LineIndex::LineIndex(LineIndex&&) noexcept = default;
LineIndex& LineIndex::operator=(LineIndex&&) noexcept = default;
LineIndex::~LineIndex() = default;

Result<LineIndex> LineIndex::Build(std::shared_ptr<const ReadableFile> file,
                                   const std::function<Status(const Line&)>& visit) {
  LineIndex index(std::move(file));
  LineScanner scan(*index.file_, 0, 1,
                   [&](std::uint64_t offset) { return ReadBlock(*index.file_, offset, kMiB); });
  for (;;) {
    CKPT_ASSIGN_OR_RETURN(const bool found, scan.Next());
    if (!found) return index;
    if (scan.IsBlank()) continue;
    if (index.marks_.empty() || scan.line_offset() - index.marks_.back().offset >= kBytesPerMark) {
      index.marks_.push_back({scan.line_offset(), index.num_lines_, scan.line().number});
    }
    CKPT_RETURN_IF_ERROR(visit(scan.line()));
    ++index.num_lines_;
  }
}

Result<Line> LineIndex::Read(std::int64_t index) const {
  CKPT_CHECK(index >= 0 && index < num_lines_);
  const Mark& mark =
      *std::prev(std::upper_bound(marks_.begin(), marks_.end(), index,
                                  [](std::int64_t i, const Mark& m) { return i < m.index; }));
  LineScanner scan(*file_, mark.offset, mark.number,
                   [&](std::uint64_t offset) { return blocks_->Read(*file_, offset); });
  for (std::int64_t at = mark.index;;) {
    CKPT_ASSIGN_OR_RETURN(const bool found, scan.Next());
    if (!found) {
      return Error(ErrorKind::kOutOfRange, "the file has fewer lines than when it was opened")
          .File(file_->name());
    }
    if (scan.IsBlank()) continue;
    if (at++ == index) return scan.TakeLine();
  }
}

}  // namespace ckpt::trainer
