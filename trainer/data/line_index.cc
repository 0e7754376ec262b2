#include "trainer/data/line_index.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/units.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kBytesPerMark = 64 << 10;
constexpr std::string_view kWhiteSpace = " \t\r";

// Reads lines one after another, `block_bytes` at a time.
class LineScanner {
 public:
  LineScanner(const ReadableFile& file, std::uint64_t offset, std::int64_t number,
              std::uint64_t block_bytes)
      : file_(file), next_read_(offset), line_offset_(offset), block_bytes_(block_bytes) {
    line_.number = number - 1;
  }

  // Moves to the next line, which may be blank. False at the end of the file.
  Result<bool> Next() {
    line_offset_ += consumed_bytes_;
    ++line_.number;
    line_.text.clear();
    for (;;) {
      const std::size_t end = block_.find('\n', at_);
      line_.text.append(block_, at_, end - at_);
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
        at_ = block_.size();
        consumed_bytes_ = line_.text.size();
        return consumed_bytes_ != 0;
      }
      CKPT_RETURN_IF_ERROR(ReadBlock());
    }
  }

  [[nodiscard]] bool IsBlank() const {
    return line_.text.find_first_not_of(kWhiteSpace) == std::string::npos;
  }
  [[nodiscard]] std::uint64_t line_offset() const { return line_offset_; }
  [[nodiscard]] const Line& line() const { return line_; }
  [[nodiscard]] Line TakeLine() { return std::move(line_); }

 private:
  Status ReadBlock() {
    block_.resize(std::min(block_bytes_, file_.size_bytes() - next_read_));
    at_ = 0;
    CKPT_RETURN_IF_ERROR(
        file_.ReadAt(next_read_, std::as_writable_bytes(std::span(block_.data(), block_.size()))));
    next_read_ += block_.size();
    return OkStatus();
  }

  const ReadableFile& file_;
  std::uint64_t next_read_;
  std::uint64_t line_offset_;
  std::uint64_t block_bytes_;
  std::uint64_t consumed_bytes_ = 0;  // by the current line and its end
  std::string block_;
  std::size_t at_ = 0;
  Line line_;
};

}  // namespace

Result<LineIndex> LineIndex::Build(std::shared_ptr<const ReadableFile> file,
                                   const std::function<Status(const Line&)>& visit) {
  LineIndex index(std::move(file));
  LineScanner scan(*index.file_, 0, 1, 1 << 20);
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
  LineScanner scan(*file_, mark.offset, mark.number, kBytesPerMark);
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
