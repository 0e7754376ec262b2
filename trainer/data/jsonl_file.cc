#include "trainer/data/jsonl_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {
namespace {

// See JsonlFile::first_labels.
std::uint32_t FirstLabel(const Example& example) {
  const auto labels = std::span(example.targets).subspan(1);
  const auto first =
      std::ranges::find_if(labels, [](std::int32_t label) { return label != kNoLabel; });
  if (first == labels.end()) return JsonlFile::kNoLabels;
  return static_cast<std::uint32_t>(first - labels.begin()) + 1;
}

std::string PlaceOf(const std::string& file, const Line& line) {
  return fmt::format("{}:{}", file, line.number);
}

}  // namespace

Result<std::unique_ptr<JsonlFile>> JsonlFile::Open(Storage& storage, const Path& path,
                                                   const ExampleFormat& format) {
  if (format.kind != ExampleKind::kTokens) {
    Status status = CheckByteVocabulary(format.vocab_size);
    if (!status.ok()) {
      return std::move(status)
          .File(path.string())
          .Hint("give tokens of the model's own tokenizer (input_ids)");
    }
  }
  CKPT_ASSIGN_OR_RETURN(const auto file, storage.Open(path));
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint32_t> first_labels;
  const auto measure = [&](const Line& line) -> Status {
    const std::string where = PlaceOf(file->name(), line);
    CKPT_ASSIGN_OR_RETURN(const Example example, ParseExample(line.text, where, format));
    if (lengths.size() == std::numeric_limits<std::uint32_t>::max()) {
      return Error(ErrorKind::kResource, "2^32 lines or more").File(where);
    }
    // A token takes at least one byte of its line, and lines have a limit.
    lengths.push_back(static_cast<std::uint32_t>(example.tokens.size()));
    if (!format.whole_documents) first_labels.push_back(FirstLabel(example));
    return OkStatus();
  };
  CKPT_ASSIGN_OR_RETURN(LineIndex lines, LineIndex::Build(file, measure));
  return std::unique_ptr<JsonlFile>(
      new JsonlFile(std::move(lines), std::move(lengths), std::move(first_labels), format));
}

Result<Example> JsonlFile::ReadExample(std::int64_t index) const {
  CKPT_ASSIGN_OR_RETURN(const Line line, lines_.Read(index));
  const std::string where = PlaceOf(lines_.file_name(), line);
  CKPT_ASSIGN_OR_RETURN(Example example, ParseExample(line.text, where, format_));
  const std::uint32_t length = lengths_[static_cast<std::size_t>(index)];
  if (example.tokens.size() != length) {
    return Error(ErrorKind::kValueMismatch, "the line has changed since the file was opened")
        .File(where)
        .Expected(fmt::format("{} tokens", length))
        .Actual(fmt::format("{} tokens", example.tokens.size()))
        .Hint("do not change data while a run trains on it");
  }
  return example;
}

std::string JsonlFile::Where(std::int64_t index) const {
  const Result<Line> line = lines_.Read(index);
  return line.ok() ? PlaceOf(lines_.file_name(), *line) : lines_.file_name();
}

Status JsonlFile::ReadTokens(std::int64_t document, std::int64_t begin,
                             std::span<std::int32_t> out) const {
  CKPT_ASSIGN_OR_RETURN(const Example example, ReadExample(document));
  std::copy_n(example.tokens.begin() + begin, out.size(), out.begin());
  return OkStatus();
}

}  // namespace ckpt::trainer
