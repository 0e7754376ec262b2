#include "trainer/data/detect_kind.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/json/json_scanner.h"
#include "trainer/data/line_index.h"

namespace ckpt::trainer {
namespace {

constexpr std::string_view kFieldsOfKinds = "text, input_ids, prompt and completion, or messages";

Result<Line> FirstLine(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const auto file, storage.Open(path));
  std::optional<Line> first;
  const auto take = [&](const Line& line) {
    first = line;
    return Error(ErrorKind::kCancelled, "the first line is enough");
  };
  Result<LineIndex> pass = LineIndex::Build(file, take);
  if (first) return *std::move(first);
  if (!pass.ok()) return std::move(pass).status();
  return Error(ErrorKind::kUsage, "the data has no lines").File(path.string());
}

}  // namespace

Result<DataKind> KindOfLine(std::string_view line, std::string_view where) {
  JsonScanner scan(line, where);
  std::set<std::string, std::less<>> fields;
  std::string key;
  for (scan.BeginObject(); scan.NextMember(key);) {
    fields.insert(key);
    scan.Skip();
  }
  CKPT_RETURN_IF_ERROR(scan.Finish());

  std::vector<DataKind> kinds;
  if (fields.contains("text")) kinds.push_back(DataKind::kText);
  if (fields.contains("prompt") && fields.contains("completion")) {
    kinds.push_back(DataKind::kPrompts);
  }
  if (fields.contains("messages")) kinds.push_back(DataKind::kMessages);
  if (fields.contains("input_ids")) {
    const bool is_example = fields.contains("labels") || fields.contains("loss_mask");
    kinds.push_back(is_example ? DataKind::kTokenExamples : DataKind::kTokenDocuments);
  }
  if (kinds.size() == 1) return kinds.front();
  std::string found;
  for (const std::string& field : fields) found += (found.empty() ? "" : ", ") + Quote(field);
  return Error(ErrorKind::kUsage, kinds.empty() ? "the first line fits no kind of data"
                                                : "the first line fits several kinds of data")
      .File(where)
      .Expected(kFieldsOfKinds)
      .Actual(found.empty() ? "no field" : found)
      .Hint(kinds.empty() ? "" : "set data_kind");
}

Result<DataKind> DetectKind(Storage& storage, const Path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".bin" || extension == ".idx") {
    Path prefix = path;
    prefix.replace_extension();
    return Error(ErrorKind::kUsage, "Megatron's data must be given without .bin or .idx")
        .Actual(path.string())
        .Hint("give " + prefix.string());
  }
  CKPT_ASSIGN_OR_RETURN(const FileStat index, storage.Stat(path.string() + ".idx"));
  if (index.type == FileType::kRegular) return DataKind::kIndexed;
  CKPT_ASSIGN_OR_RETURN(const FileStat lines, storage.Stat(path));
  if (lines.type == FileType::kMissing) {
    return Error(ErrorKind::kNotFound, "the data does not exist")
        .File(path.string())
        .Expected("a JSONL file, or the prefix of .bin and .idx");
  }
  CKPT_ASSIGN_OR_RETURN(const Line first, FirstLine(storage, path));
  return KindOfLine(first.text, fmt::format("{}:{}", path.string(), first.number));
}

}  // namespace ckpt::trainer
