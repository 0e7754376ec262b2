#include "tests/reliability/flows.h"

#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/trainer/run/small_session.h"
#include "tools/ckpt-inspect/inspect.h"
#include "tools/cli/streams.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 24;

Status WriteRun(Storage& storage, const std::string& format, std::uint64_t state,
                const Path& root) {
  CKPT_ASSIGN_OR_RETURN(
      SmallSessions sessions,
      SmallSessions::Create(
          storage, With(TinySettings(), {{"save", root.string()}, {"save_format", format}}), 2));
  return sessions.Run([&](train::RankSession& session, trainer::HostGroup&) -> Status {
    CKPT_RETURN_IF_ERROR(SaveState(session, state, 1));
    return session.checkpoints().Finish();
  });
}

// A lost file, and a bit that parity is not needed for.
Status Damage(Storage& storage, const Path& checkpoint) {
  const Path release = checkpoint / "release";
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(release / "hf_assets" / "config.json"));
  const Path data = release / "__0_0.distcp";
  CKPT_ASSIGN_OR_RETURN(std::string content, ReadSmallFile(storage, data, kMaxFileBytes));
  content[content.size() / 2] ^= 0x08;
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(data));
  return WriteSmallFile(storage, data, AsBytes(content));
}

// Repair replaces nothing: what an earlier run published stays, and is durable after a while.
Status Repair(Storage& storage, const ConvertOptions& options) {
  CKPT_ASSIGN_OR_RETURN(const FileStat target, storage.Stat(options.target));
  if (target.type != FileType::kMissing && options.overwrite) {
    return storage.SyncDirectory(options.target.parent_path());
  }
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams{.out = out, .err = err};
  const cli::ExitCode code = inspect::RunInspect(
      {"repair", options.source.string(), "-o", options.target.string(), "--threads", "1"}, storage,
      streams);
  if (code == cli::ExitCode::kDone) return OkStatus();
  return Error(ErrorKind::kIo, out.text() + err.text()).File(options.source.string());
}

}  // namespace

void PrintTo(const Flow& flow, std::ostream* os) { *os << flow.name; }

Status WriteSource(Storage& storage, const Flow& flow, std::uint64_t seed, int hidden,
                   const Path& path) {
  if (!flow.run.empty()) return WriteRun(storage, flow.run, seed, path);
  const bool is_published = flow.to != "hf" && !flow.repairs;
  const Path repository = is_published ? path : Path(path.string() + "-hf");
  CKPT_RETURN_IF_ERROR(WriteSmallModel(
      storage, repository,
      {.seed = seed, .hidden = hidden, .has_tokenizer = flow.forms.contains("tree")}));
  if (is_published) return OkStatus();
  ConvertOptions options = HfToFsdp(repository, path);
  options.parity_group = flow.parity_group;
  CKPT_RETURN_IF_ERROR(Convert(storage, options).status());
  return flow.repairs ? Damage(storage, path) : OkStatus();
}

ConvertOptions OptionsOf(const Flow& flow, const Path& source, const Path& target) {
  ConvertOptions options = ConvertTo(flow.to, source, target);
  options.files = options.to.container->is_one_file ? flow.files : 2;
  options.to.forms = flow.forms;
  options.zstd_level = flow.zstd_level;
  options.parity_group = flow.parity_group;
  options.link = flow.links;
  options.overwrite = flow.overwrites;
  return options;
}

Result<ConvertReport> RunFlow(Storage& storage, const Flow& flow, const ConvertOptions& options) {
  if (flow.repairs) {
    CKPT_RETURN_IF_ERROR(Repair(storage, options));
    return ConvertReport{};
  }
  if (flow.workers == 0) return Convert(storage, options);
  return ConvertByWorkers(storage, options, flow.workers);
}

}  // namespace ckpt::testing
