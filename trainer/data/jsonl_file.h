// JsonlFile: the lines of a file, both as examples and as documents.
#ifndef CKPT_TRAINER_DATA_JSONL_FILE_H_
#define CKPT_TRAINER_DATA_JSONL_FILE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/document_set.h"
#include "trainer/data/example.h"
#include "trainer/data/line_index.h"

namespace ckpt::trainer {

// Opening reads and checks every line, so that a bad one is found before training starts. Tokens
// are not kept: each request parses the line again. Memory: four bytes per document, eight per
// example, and LineIndex.
//
// Thread-safety: const methods may run concurrently.
class JsonlFile final : public DocumentSet {
 public:
  // Errors: kNotFound, kIo, kUsage (text for a model with another vocabulary than bytes), kResource
  // (2³² lines), those of ParseExample.
  static Result<std::unique_ptr<JsonlFile>> Open(Storage& storage, const Path& path,
                                                 const ExampleFormat& format);

  [[nodiscard]] std::int64_t num_examples() const { return lines_.num_lines(); }
  [[nodiscard]] const std::string& file_name() const { return lines_.file_name(); }
  // Tokens of every example.
  [[nodiscard]] std::span<const std::uint32_t> lengths() const { return lengths_; }
  // The first place of every example whose token is learned, counted from 1 because the first token
  // is never a label; kNoLabels if none is learned. Empty for documents.
  [[nodiscard]] std::span<const std::uint32_t> first_labels() const { return first_labels_; }
  static constexpr std::uint32_t kNoLabels = std::numeric_limits<std::uint32_t>::max();
  // REQUIRES: 0 <= index < num_examples(). Errors: kIo; kValueMismatch (the file has changed since
  // it was opened).
  [[nodiscard]] Result<Example> ReadExample(std::int64_t index) const;
  // "data.jsonl:17", for messages. REQUIRES: as ReadExample.
  [[nodiscard]] std::string Where(std::int64_t index) const;

  [[nodiscard]] std::int64_t num_documents() const override { return num_examples(); }
  [[nodiscard]] std::int64_t DocumentLength(std::int64_t document) const override {
    return lengths_[static_cast<std::size_t>(document)];
  }
  Status ReadTokens(std::int64_t document, std::int64_t begin,
                    std::span<std::int32_t> out) const override;

 private:
  JsonlFile(LineIndex lines, std::vector<std::uint32_t> lengths,
            std::vector<std::uint32_t> first_labels, const ExampleFormat& format)
      : lines_(std::move(lines)),
        lengths_(std::move(lengths)),
        first_labels_(std::move(first_labels)),
        format_(format) {}

  LineIndex lines_;
  std::vector<std::uint32_t> lengths_;
  std::vector<std::uint32_t> first_labels_;
  ExampleFormat format_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_JSONL_FILE_H_
