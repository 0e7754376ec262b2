#include "trainer/run/resolve_together.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/thrown.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/launcher.h"
#include "trainer/comm/machine.h"
#include "trainer/comm/mpi_comm.h"

namespace ckpt::train {

Status ReadTogether(trainer::HostGroup& world, SharedReads& storage,
                    const std::function<void()>& read) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<trainer::HostGroup> machine,
                        trainer::SplitByMachine(world));
  const auto read_own = [&] {
    return StatusOfCall([&] {
      read();
      return OkStatus();
    });
  };
  const bool reads_for_all = machine->rank() == 0;
  Status status;
  if (reads_for_all) {
    if (machine->size() > 1) storage.Record();
    status = read_own();
  }
  std::string record = storage.TakeRecord();
  // The others wait for it, whatever became of this rank's reads.
  CKPT_RETURN_IF_ERROR(trainer::TakeTextOfRank0(*machine, record));
  if (reads_for_all) return status;
  CKPT_RETURN_IF_ERROR(storage.Answer(std::move(record)));
  status = read_own();
  storage.Forget();
  return status;
}

Result<RunConfig> ResolveTogether(SharedReads& storage, const layout::Configuration& given,
                                  int num_ranks, const RunNeeds& needs) {
  // Ranks that cannot meet are refused where they would run, after errors in the settings.
  if (!needs.runs_ranks || trainer::NumLaunchedProcesses() == 1 || !trainer::CheckCanMeet().ok()) {
    return ResolveRun(storage, given, num_ranks, needs);
  }
  std::optional<Result<RunConfig>> run;
  CKPT_RETURN_IF_ERROR(trainer::MeetEarly([&](trainer::HostGroup& meeting) {
    return ReadTogether(meeting, storage,
                        [&] { run = ResolveRun(storage, given, num_ranks, needs); });
  }));
  return *std::move(run);
}

}  // namespace ckpt::train
