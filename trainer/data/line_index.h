// LineIndex: finds the lines of a large text file by number without storing the place of each.
#ifndef CKPT_TRAINER_DATA_LINE_INDEX_H_
#define CKPT_TRAINER_DATA_LINE_INDEX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::trainer {

// A longer line is an error, which keeps memory bounded. No real example is that long.
inline constexpr std::uint64_t kMaxLineBytes = 64ULL << 20;

// A line that is not blank, without its end.
struct Line {
  std::string text;
  std::int64_t number = 0;  // in the file, from 1
};

// Lines end with '\n'; the last one may end with the file. Blank lines are skipped: they count in
// `Line::number`, but have no index.
//
// Keeps 24 bytes per 64 KiB of the file, however long the lines are, and the last 1 MiB that was
// read: lines that lie together are read together, and a small file is read once.
//
// Thread-safety: const methods may run concurrently.
class LineIndex {
 public:
  // Reads the file once and passes every line to `visit`; an error from `visit` stops it.
  // Errors: kResource (a line past kMaxLineBytes), kIo, those of `visit`.
  static Result<LineIndex> Build(std::shared_ptr<const ReadableFile> file,
                                 const std::function<Status(const Line&)>& visit);
  LineIndex(LineIndex&&) noexcept;
  LineIndex& operator=(LineIndex&&) noexcept;
  ~LineIndex();

  [[nodiscard]] std::int64_t num_lines() const { return num_lines_; }
  [[nodiscard]] const std::string& file_name() const { return file_->name(); }

  // REQUIRES: 0 <= index < num_lines(). Errors: kIo, kOutOfRange (the file has changed since).
  // Cost: reads at most 64 KiB and the line.
  [[nodiscard]] Result<Line> Read(std::int64_t index) const;

 private:
  // A line from which a search can start.
  struct Mark {
    std::uint64_t offset = 0;
    std::int64_t index = 0;
    std::int64_t number = 1;
  };

  class KeptBlocks;

  explicit LineIndex(std::shared_ptr<const ReadableFile> file);

  std::shared_ptr<const ReadableFile> file_;
  std::unique_ptr<KeptBlocks> blocks_;
  std::vector<Mark> marks_;  // ascending
  std::int64_t num_lines_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_LINE_INDEX_H_
