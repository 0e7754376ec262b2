#include <optional>
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

struct FileUse {
  FileId file = 0;
  std::uint64_t chunks = 0;
  std::optional<std::uint64_t> size_bytes;  // nothing: unknown
};

// The files of the selected tensors, in order of first use.
std::vector<FileUse> FilesOf(const CheckpointSource& source,
                             const std::vector<const GlobalTensor*>& tensors) {
  const CheckpointIndex& index = source.index();
  constexpr std::size_t kUnseen = static_cast<std::size_t>(-1);
  std::vector<std::size_t> position(index.files().size(), kUnseen);
  std::vector<FileUse> uses;
  for (const GlobalTensor* tensor : tensors) {
    for (const Chunk& chunk : index.chunks(*tensor)) {
      if (position[chunk.file] == kUnseen) {
        position[chunk.file] = uses.size();
        const Result<std::uint64_t> size = source.FileSize(chunk.file);
        uses.push_back(
            {.file = chunk.file, .size_bytes = size.ok() ? std::optional(*size) : std::nullopt});
      }
      ++uses[position[chunk.file]].chunks;
    }
  }
  return uses;
}

// Writes tensor by tensor: a large run has millions of chunks.
void PrintJson(const CheckpointSource& source, const std::vector<const GlobalTensor*>& tensors,
               const std::vector<Problem>& problems, Streams& streams) {
  const CheckpointIndex& index = source.index();
  JsonWriter json(2);
  json.BeginObject().Key("chunks").BeginArray();
  for (const GlobalTensor* tensor : tensors) {
    for (const Chunk& chunk : index.chunks(*tensor)) {
      json.BeginObject();
      json.Key("key").Text(tensor->key);
      json.Key("offsets").Ints(index.offsets(chunk));
      json.Key("sizes").Ints(index.sizes(chunk));
      json.Key("file").Text(index.files()[chunk.file]);
      json.Key("offset").Int(chunk.offset_bytes);
      json.Key("length").Int(chunk.size_bytes);
      json.Key("encoding").Text(index.encoding(chunk));
      json.End();
    }
    streams.out.Write(json.TakeSoFar());
  }
  json.End().Key("files").BeginArray();
  for (const FileUse& use : FilesOf(source, tensors)) {
    json.BeginObject();
    json.Key("name").Text(index.files()[use.file]);
    json.Key("bytes");
    use.size_bytes ? json.Int(*use.size_bytes) : json.Null();
    json.Key("chunks").Int(use.chunks);
    json.End();
  }
  json.End();
  cli::AppendProblemList(problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintTables(const CheckpointSource& source, const std::vector<const GlobalTensor*>& tensors,
                 Streams& streams) {
  using cli::Align;
  const CheckpointIndex& index = source.index();
  cli::Table chunks({{"TENSOR"},
                     {"OFFSETS"},
                     {"SIZES"},
                     {"FILE"},
                     {"OFFSET", Align::kRight},
                     {"LENGTH", Align::kRight},
                     {"ENCODING"}});
  for (const GlobalTensor* tensor : tensors) {
    for (const Chunk& chunk : index.chunks(*tensor)) {
      chunks.AddRow({tensor->key, FormatDims(index.offsets(chunk)), FormatDims(index.sizes(chunk)),
                     index.files()[chunk.file], std::to_string(chunk.offset_bytes),
                     std::to_string(chunk.size_bytes), index.encoding(chunk)});
    }
  }
  cli::Table files({{"FILE"}, {"SIZE", Align::kRight}, {"CHUNKS", Align::kRight}});
  for (const FileUse& use : FilesOf(source, tensors)) {
    files.AddRow({index.files()[use.file],
                  use.size_bytes ? FormatByteSize(*use.size_bytes) : "missing",
                  std::to_string(use.chunks)});
  }
  streams.out.Write(chunks.Format() + "\n" + files.Format());
}

}  // namespace

Result<ExitCode> RunShards(const ListedCheckpoint& checkpoint, const ShardsOptions& options,
                           Streams& streams) {
  const CheckpointSource& source = *checkpoint.source;
  CKPT_RETURN_IF_ERROR(CheckMatchesSome(source.index(), options.match, Among::kTensors));
  const auto tensors = SelectTensors(source.index(), options.match);
  options.common.json ? PrintJson(source, tensors, checkpoint.problems, streams)
                      : PrintTables(source, tensors, streams);
  return LacksFiles(checkpoint.problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
