#include "tests/reliability/flows.h"

#include <algorithm>
#include <initializer_list>

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
  const std::string said = out.text() + err.text();
  // What the error names is part of its text here.
  const bool names_file = std::ranges::any_of(
      std::initializer_list<std::string>{options.source.parent_path().string(), ".distcp"},
      [&](const std::string& name) { return said.find(name) != std::string::npos; });
  return Error(ErrorKind::kIo, said).File(names_file ? "named" : "");
}

}  // namespace

void PrintTo(const Flow& flow, std::ostream* os) { *os << flow.name; }

const std::vector<Flow>& Flows() {
  static const std::vector<Flow> flows = {
      {.name = "ToFsdp"},
      {.name = "ToFsdpOverwriting", .overwrites = true},
      {.name = "ToFsdpCompressed", .zstd_level = 3},
      {.name = "ToFsdpParity", .parity_group = 2},
      {.name = "ToFsdpByWorkers", .workers = 3},
      {.name = "ToFsdpCompressedByWorkers", .zstd_level = 3, .workers = 2},
      {.name = "ToFsdpParityByWorkers", .parity_group = 2, .workers = 2},
      {.name = "ToFsdp2", .to = "fsdp2"},
      {.name = "ToFsdp2Overwriting", .to = "fsdp2", .overwrites = true},
      {.name = "ToFsdp2ByWorkers", .to = "fsdp2", .workers = 2},
      {.name = "ToDcp", .to = "dcp"},
      {.name = "ToTorchDist", .to = "torch_dist"},
      {.name = "ToTorchDistByWorkers", .to = "torch_dist", .workers = 2},
      {.name = "ToBridgeTreeOverwriting",
       .to = "torch_dist",
       .forms = {{"tree", "megatron-bridge"}},
       .overwrites = true},
      {.name = "ToHf", .to = "hf"},
      {.name = "ToHfOverwriting", .to = "hf", .overwrites = true},
      {.name = "ToHfParity", .to = "hf", .parity_group = 2},
      {.name = "ToHfByWorkersOverwriting", .to = "hf", .workers = 2, .overwrites = true},
      {.name = "ToSafetensors", .to = "safetensors"},
      {.name = "ToSafetensorsByWorkersOverwriting",
       .to = "safetensors",
       .workers = 2,
       .overwrites = true},
      {.name = "ToHdf5", .to = "hdf5"},
      {.name = "ToHdf5Overwriting", .to = "hdf5", .overwrites = true},
      {.name = "ToHdf5Compressed", .to = "hdf5", .zstd_level = 3},
      {.name = "ToHdf5ByWorkers", .to = "hdf5", .workers = 2},
      {.name = "ToHdf5Link", .to = "hdf5", .links = true},
      {.name = "ToHdf5LinkOverwriting", .to = "hdf5", .links = true, .overwrites = true},
      {.name = "ToHdf5Files", .to = "hdf5", .files = 2},
      {.name = "ToHdf5FilesByWorkers", .to = "hdf5", .workers = 2, .files = 2},
      {.name = "ToHdf5FilesOverwriting", .to = "hdf5", .files = 2, .overwrites = true},
      {.name = "ToHdf5FilesOverwritingAsMany",
       .to = "hdf5",
       .files = 2,
       .overwrites = true,
       .old_files = 2},
      {.name = "ToHdf5FilesOverwritingMore",
       .to = "hdf5",
       .files = 2,
       .overwrites = true,
       .old_files = 3},
      {.name = "ToHdf5OverwritingFiles", .to = "hdf5", .overwrites = true, .old_files = 2},
      {.name = "ToTorchSave", .to = "torch_save"},
      {.name = "ToTorchSaveOverwriting", .to = "torch_save", .overwrites = true},
      {.name = "ToTorchSaveByWorkers", .to = "torch_save", .workers = 2},
      {.name = "Repair", .parity_group = 2, .repairs = true},
      {.name = "RunToFsdp", .run = "torch_dist"},
      {.name = "RunToFsdp2", .to = "fsdp2", .run = "torch_dist"},
      {.name = "RunToTorchDist", .to = "torch_dist", .run = "fsdp_dtensor"},
      {.name = "RunToTorchDistOverwriting",
       .to = "torch_dist",
       .run = "fsdp_dtensor",
       .overwrites = true},
      {.name = "RunToTorchDistByWorkers", .to = "torch_dist", .run = "fsdp_dtensor", .workers = 2},
      {.name = "RunToTorchDistInModelSpace",
       .to = "torch_dist",
       .run = "fsdp_dtensor",
       .forms = {{"optimizer-form", "fully_sharded_model_space"}}},
      {.name = "RunToTorchDistInBuffers",
       .to = "torch_dist",
       .run = "fsdp_dtensor",
       .forms = {{"optimizer-form", "dp_reshardable"}}},
      {.name = "RunToHdf5", .to = "hdf5", .run = "fsdp_dtensor"},
      {.name = "RunToTorchSave", .to = "torch_save", .run = "torch_dist"}};
  return flows;
}

Flow OldOf(Flow flow) {
  flow.files = flow.old_files;
  return flow;
}

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
