#include "tests/reliability/flows.h"

#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::testing {
namespace {

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

}  // namespace

void PrintTo(const Flow& flow, std::ostream* os) { *os << flow.name; }

Status WriteSource(Storage& storage, const Flow& flow, std::uint64_t seed, int hidden,
                   const Path& path) {
  if (!flow.run.empty()) return WriteRun(storage, flow.run, seed, path);
  const bool is_published = flow.to != "hf";
  const Path repository = is_published ? path : Path(path.string() + "-hf");
  CKPT_RETURN_IF_ERROR(WriteSmallModel(
      storage, repository,
      {.seed = seed, .hidden = hidden, .has_tokenizer = flow.forms.contains("tree")}));
  if (is_published) return OkStatus();
  return Convert(storage, HfToFsdp(repository, path)).status();
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
  if (flow.workers == 0) return Convert(storage, options);
  return ConvertByWorkers(storage, options, flow.workers);
}

}  // namespace ckpt::testing
