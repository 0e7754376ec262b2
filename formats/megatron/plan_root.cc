#include "formats/megatron/plan_root.h"

#include "core/checkpoint/add_file.h"
#include "formats/megatron/root.h"

namespace ckpt::megatron {

void AddCopies(const std::vector<WriteCopy>& files, std::string_view directory, WritePlan& plan) {
  for (const WriteCopy& copy : files) {
    plan.copies.push_back({.from = copy.from, .name = std::string(directory) + copy.name});
  }
}

void AddTracker(std::string_view directory, WritePlan& plan) {
  AddTextFile(std::string(kTrackerName), kRunRoot.tracker_text(directory), plan);
}

}  // namespace ckpt::megatron
