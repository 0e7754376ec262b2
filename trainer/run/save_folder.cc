#include "trainer/run/save_folder.h"

#include <utility>

#include <fmt/format.h>

#include "core/io/staging_name.h"
#include "trainer/comm/agreement.h"
#include "trainer/run/internal/stored_run.h"

namespace ckpt::train {
namespace {

// Named as a leftover, so that it can be recognised if the run is killed meanwhile.
Path ProbeOf(const Path& folder, int rank) {
  return StagingOf(folder / fmt::format("write-test-{}", rank));
}

// Before a rank knows whether rank 0 sees the same folder, it writes only this file.
Status WriteProbe(Storage& storage, const Path& folder, int rank) {
  const Path probe = ProbeOf(folder, rank);
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(probe));
  return WriteSmallFile(storage, probe,
                        AsBytes(std::string_view("written to see whether it can be\n")));
}

Status FindProbes(Storage& storage, const Path& folder, int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Path probe = ProbeOf(folder, rank);
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(probe));
    if (stat.type == FileType::kRegular) continue;
    return Error(ErrorKind::kMissingFile,
                 "a file that a rank wrote is not in the folder to save in")
        .File(probe.string())
        .Hint("let every rank save into the same shared folder");
  }
  return OkStatus();
}

Status CheckWritable(Storage& storage, const Path& folder, trainer::HostGroup& world) {
  Status fit = AgreeOn(world, WriteProbe(storage, folder, world.rank()));
  if (fit.ok()) {
    const bool looks = world.rank() == 0;
    fit = AgreeOn(world, looks ? FindProbes(storage, folder, world.size()) : OkStatus());
  }
  // Files are removed only after rank 0 has looked for them.
  fit.Add(storage.RemoveAll(ProbeOf(folder, world.rank())));
  return fit;
}

}  // namespace

Result<SaveFolder> SaveFolder::TakeFirst(Storage& storage, const CheckpointSettings& settings,
                                         bool goes_on) {
  const Path path = CanonicalPath(settings.save);  // so that a link to it has the same lock
  SaveFolder folder;
  CKPT_ASSIGN_OR_RETURN(folder.made_, MadeDirectories::Make(storage, path));
  CKPT_ASSIGN_OR_RETURN(folder.lock_, storage.Lock(path));
  // Checked under the lock, because another run may have saved and ended a moment ago.
  CKPT_RETURN_IF_ERROR(CheckReplacesNoOtherRun(storage, settings, goes_on));
  return folder;
}

Result<SaveFolder> SaveFolder::Take(Storage& storage, const CheckpointSettings& settings,
                                    bool goes_on, trainer::HostGroup& world) {
  Result<SaveFolder> folder = SaveFolder();
  if (settings.save.empty()) return folder;
  if (world.rank() == 0) folder = TakeFirst(storage, settings, goes_on);
  Status fit = AgreeOn(world, folder.ok() ? OkStatus() : folder.status());
  if (fit.ok()) fit = CheckWritable(storage, settings.save, world);
  if (!fit.ok()) return std::move(fit).While("preparing to save in " + settings.save.string());
  return folder;
}

}  // namespace ckpt::train
