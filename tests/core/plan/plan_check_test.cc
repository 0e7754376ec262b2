#include "core/plan/plan_check.h"

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

WritePlan PlanOf(const std::vector<std::string>& files, const std::vector<std::string>& copies) {
  WritePlan plan;
  for (const std::string& name : files) plan.files.push_back({.name = name});
  for (const std::string& name : copies) plan.copies.push_back({.from = "/from", .name = name});
  return plan;
}

TEST(CheckWritePlan, WantsANameForEachFile) {
  EXPECT_THAT(CheckWritePlan(PlanOf({"a", "d/a"}, {"b", "d/b"})), IsOk());
  EXPECT_THAT(CheckWritePlan(PlanOf({"a", "a"}, {})), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(CheckWritePlan(PlanOf({"a"}, {"./a"})), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(CheckWritePlan(PlanOf({}, {"d/a", "d//a"})), FailsWith(ErrorKind::kAlreadyExists));
}

TEST(CheckWritePlan, KeepsTheNamesOfTheJournalAndTheManifestFree) {
  for (const std::string name : {".ckptkit-journal", "ckptkit.json", "release/ckptkit.json"}) {
    EXPECT_THAT(CheckWritePlan(PlanOf({name}, {})), FailsWith(ErrorKind::kAlreadyExists)) << name;
    EXPECT_THAT(CheckWritePlan(PlanOf({}, {name})), FailsWith(ErrorKind::kAlreadyExists)) << name;
  }
}

}  // namespace
}  // namespace ckpt
