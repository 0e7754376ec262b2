#include <string>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/source_paths.h"
#include "core/base/bytes.h"
#include "core/base/units.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/html_page.h"
#include "tools/ckpt-inspect/target_path.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {

Result<ExitCode> RunHtml(Storage& storage, const ListedCheckpoint& checkpoint,
                         const HtmlOptions& options, Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> read,
                        SourcePaths(storage, options.path, checkpoint));
  CKPT_RETURN_IF_ERROR(CheckOutside("the page", options.output, read));
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(options.output));
  if (stat.type != FileType::kMissing && !(options.overwrite && stat.type == FileType::kRegular)) {
    return Error(ErrorKind::kAlreadyExists, "the page exists already")
        .File(options.output.string())
        .Hint(stat.type == FileType::kRegular ? "ckpt-inspect html --overwrite replaces it"
                                              : "choose another name");
  }
  const std::string page = MakePage(checkpoint);
  CKPT_RETURN_IF_ERROR(ReplaceSmallFile(storage, options.output, AsBytes(page)));
  if (options.common.json) {
    JsonWriter json(2);
    json.BeginObject().Key("ok").Bool(true);
    json.Key("path").Text(options.output.string()).Key("bytes").Int(page.size());
    cli::AppendProblemList(checkpoint.problems, json);
    streams.out.Write(json.End().Take() + "\n");
  } else if (!options.common.quiet) {
    streams.out.Write(
        fmt::format("{}: {}\n", options.output.string(), FormatByteSize(page.size())));
  }
  return LacksFiles(checkpoint.problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
