#include "trainer/comm/launcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/base/text_number.h"

namespace ckpt::trainer {
namespace {

constexpr const char* kTasksOfSrun = "SLURM_STEP_NUM_TASKS";
// Set by Open MPI; by Hydra, MPICH and srun's PMI-2; by srun with any plugin or none. SLURM_NTASKS
// is not usable: a batch script has it too.
constexpr std::array kSizes = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", kTasksOfSrun};
// srun's plugins for MPI set one of these: pmix, pmi2, cray_shasta.
constexpr std::array kMeetingPlaces = {"PMIX_RANK", "PMI_RANK", "PALS_RANKID"};

bool IsSet(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

int NumLaunchedProcesses() {
  const auto* const name = std::ranges::find_if(kSizes, &IsSet);
  if (name == kSizes.end()) return 1;
  std::string_view digits = std::getenv(*name);
  return std::max(TakeNumber<int>(digits).value_or(1), 1);
}

Status CheckCanMeet() {
  if (NumLaunchedProcesses() == 1) return OkStatus();
  const bool is_by_srun = *std::ranges::find_if(kSizes, &IsSet) == kTasksOfSrun;
  if (!is_by_srun || std::ranges::any_of(kMeetingPlaces, &IsSet)) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               "the tasks that srun started have no way to find each other: each would be alone")
      .Expected("srun --mpi=pmix, or another plugin that the MPI library knows")
      .Actual(std::to_string(NumLaunchedProcesses()) + " tasks without a plugin (--mpi=none)")
      .Hint("srun --mpi=list says which plugins there are");
}

bool IsFirstTask() {
  const char* const rank = std::getenv("SLURM_PROCID");
  return rank == nullptr || std::string_view(rank) == "0";
}

}  // namespace ckpt::trainer
