#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/selection.h"
#include "tools/cli/error_report.h"
#include "tools/cli/table.h"

namespace ckpt::inspect {
namespace {

// Counts the files of one tensor after another without clearing anything between them.
class FileCounter {
 public:
  explicit FileCounter(const CheckpointIndex& index)
      : index_(index), last_seen_(index.files().size(), 0) {}

  std::uint64_t Count(const GlobalTensor& tensor) {
    ++turn_;
    std::uint64_t count = 0;
    for (const Chunk& chunk : index_.chunks(tensor)) {
      if (last_seen_[chunk.file] == turn_) continue;
      last_seen_[chunk.file] = turn_;
      ++count;
    }
    return count;
  }

 private:
  const CheckpointIndex& index_;
  std::vector<std::uint64_t> last_seen_;  // turn in which a file was counted
  std::uint64_t turn_ = 0;
};

void PrintJson(const CheckpointIndex& index, const TensorsOptions& options,
               const std::vector<Problem>& problems, Streams& streams) {
  FileCounter files(index);
  JsonWriter json(2);
  json.BeginObject().Key("tensors").BeginArray();
  for (const GlobalTensor* tensor : SelectTensors(index, options.match)) {
    json.BeginObject();
    json.Key("key").Text(tensor->key);
    json.Key("shape").Ints(tensor->shape);
    json.Key("dtype").Text(DTypeName(tensor->dtype));
    json.Key("bytes").Int(LogicalBytes(*tensor));
    json.Key("chunks").Int(tensor->num_chunks);
    json.Key("files").Int(files.Count(*tensor));
    json.End();
  }
  json.End().Key("objects").BeginArray();
  for (const ObjectEntry* object : SelectObjects(index, options.match)) {
    json.BeginObject();
    json.Key("key").Text(object->key);
    json.Key("type").Text(index.encodings()[object->encoding]);
    json.Key("bytes").Int(object->size_bytes);
    json.End();
  }
  json.End();
  cli::AppendProblemList(problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintTables(const CheckpointIndex& index, const TensorsOptions& options, Streams& streams) {
  using cli::Align;
  const std::vector<const GlobalTensor*> tensors = SelectTensors(index, options.match);
  if (!tensors.empty()) {
    FileCounter files(index);
    cli::Table table({{"TENSOR"},
                      {"SHAPE"},
                      {"DTYPE"},
                      {"SIZE", Align::kRight},
                      {"CHUNKS", Align::kRight},
                      {"FILES", Align::kRight}});
    for (const GlobalTensor* tensor : tensors) {
      table.AddRow({tensor->key, FormatDims(tensor->shape), std::string(DTypeName(tensor->dtype)),
                    FormatByteSize(LogicalBytes(*tensor)), std::to_string(tensor->num_chunks),
                    std::to_string(files.Count(*tensor))});
    }
    streams.out.Write(table.Format());
  }
  const std::vector<const ObjectEntry*> objects = SelectObjects(index, options.match);
  if (!objects.empty()) {
    if (!tensors.empty()) streams.out.Write("\n");
    cli::Table table({{"OBJECT"}, {"TYPE"}, {"SIZE", Align::kRight}});
    for (const ObjectEntry* object : objects) {
      table.AddRow(
          {object->key, index.encodings()[object->encoding], FormatByteSize(object->size_bytes)});
    }
    streams.out.Write(table.Format());
  }
}

}  // namespace

Result<ExitCode> RunTensors(const ListedCheckpoint& checkpoint, const TensorsOptions& options,
                            Streams& streams) {
  const CheckpointIndex& index = checkpoint.source->index();
  CKPT_RETURN_IF_ERROR(CheckMatchesSome(index, options.match, Among::kTensorsAndObjects));
  options.common.json ? PrintJson(index, options, checkpoint.problems, streams)
                      : PrintTables(index, options, streams);
  return LacksFiles(checkpoint.problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
