#include "formats/megatron/plan_root.h"

#include <cstdint>
#include <utility>

#include "formats/megatron/root.h"

namespace ckpt::megatron {

void AddFile(std::string name, Bytes content, WritePlan& plan) {
  plan.files.push_back({.name = std::move(name), .size_bytes = content.size()});
  plan.literals.push_back({.file = static_cast<std::uint32_t>(plan.files.size() - 1),
                           .offset_bytes = 0,
                           .bytes = std::move(content)});
}

void AddCopies(const std::vector<WriteCopy>& files, std::string_view directory, WritePlan& plan) {
  for (const WriteCopy& copy : files) {
    plan.copies.push_back({.from = copy.from, .name = std::string(directory) + copy.name});
  }
}

void AddTracker(std::string_view directory, WritePlan& plan) {
  Bytes text;
  Append(kRunRoot.tracker_text(directory), text);
  AddFile(std::string(kTrackerName), std::move(text), plan);
}

}  // namespace ckpt::megatron
