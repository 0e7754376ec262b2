// Damage to checkpoints of ours, one place after the other: found, named to the bit, and repaired.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/find_damage.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/read_manifest.h"
#include "core/repair/repair_plan.h"
#include "core/repair/write_repaired.h"
#include "formats/registry/registry.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 24;
constexpr std::size_t kGroup = 3;
const Path kCopy = "/copy";

struct RepairCase {
  const char* name;
  bool is_repository = false;
  std::optional<int> zstd_level = {};
};
void PrintTo(const RepairCase& test, std::ostream* os) { *os << test.name; }

class RepairTest : public ::testing::TestWithParam<RepairCase> {
 protected:
  // The tracker beside a Megatron checkpoint is not among the files: it is repaired by its name.
  void SetUp() override {
    ASSERT_THAT(WriteSmallModel(*storage_, "/source", {.hidden = 16}), IsOk());
    ConvertOptions options = HfToFsdp("/source", "/fsdp");
    options.zstd_level = GetParam().zstd_level;
    options.parity_group = kGroup;
    ASSERT_THAT(Convert(*storage_, options), IsOk());
    directory_ = "/fsdp/release";
    if (GetParam().is_repository) {
      ConvertOptions back = FsdpToHf("/fsdp", "/repository");
      back.parity_group = kGroup;
      ASSERT_THAT(Convert(*storage_, back), IsOk());
      directory_ = "/repository";
    }
    const auto text =
        ReadSmallFile(*storage_, directory_ / std::string(kManifestName), kMaxFileBytes);
    ASSERT_THAT(text, IsOk());
    const auto manifest = ParseManifest(*text, "manifest");
    ASSERT_THAT(manifest, IsOk());
    manifest_ = *manifest;
    const auto tree = ReadTree(*storage_, directory_);
    ASSERT_THAT(tree, IsOk());
    files_ = *tree;
    manifest_text_ = files_.at(std::string(kManifestName));
    files_.erase(std::string(kManifestName));
    files_.erase(std::string(kManifestCopyName));
  }

  void Put(const std::string& name, const std::string& content) {
    ASSERT_THAT(storage_->RemoveAll(directory_ / name), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, directory_ / name, AsBytes(content)), IsOk());
  }
  void PutByte(const std::string& name, std::uint64_t offset, std::byte value) {
    auto file = storage_->OpenForUpdate(directory_ / name);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(offset, ByteSpan(&value, 1)), IsOk());
  }

  Result<RepairPlan> Plan() {
    CKPT_ASSIGN_OR_RETURN(damage_, FindDamage(*storage_, directory_, manifest_, KnownRunRoot()));
    return PlanRepair(manifest_, damage_);
  }

  // The repaired copy must be the checkpoint as it was written.
  void CheckRepaired(const RepairPlan& plan, const std::string& where, Suite& suite) {
    ASSERT_THAT(storage_->RemoveAll(kCopy), IsOk());
    ASSERT_THAT(storage_->MakeDirectories(kCopy), IsOk());
    const auto repaired = WriteRepaired(*storage_, directory_, manifest_, plan, kCopy);
    if (!repaired.ok()) {
      suite.Fail(where + ": " + repaired.status().ToString());
    } else if (const auto copy = ReadTree(*storage_, kCopy); !copy.ok() || *copy != files_) {
      suite.Fail(where + ": repaired to something else");
    }
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  Path directory_;
  std::string manifest_text_;
  Manifest manifest_;
  Tree files_;  // that the manifest covers
  Damage damage_;
};

INSTANTIATE_TEST_SUITE_P(Formats, RepairTest,
                         ::testing::Values(RepairCase{"OurRepository", true},
                                           RepairCase{"OurFsdpDtensor"},
                                           RepairCase{"OurCompressed", false, 3}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(RepairTest, EveryFlippedBitIsNamedAndASampleRepaired) {
  Suite suite(fmt::format("flipped bits named and repaired, {}", GetParam().name));
  std::mt19937_64 rng(TestSeed(kDefaultSeed));
  const std::uint64_t repair_stride = IsLongRun() ? 1 : 40;
  std::uint64_t repaired = 0;
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const std::string& name = manifest_.files[f].name;
    if (IsTracker(name)) continue;
    const std::string& content = files_.at(name);
    // Metadata whole; of what is large a sample.
    const std::uint64_t stride = IsLongRun() || content.size() < 2'000 ? 1 : 11;
    for (std::uint64_t offset = rng() % stride; offset < content.size(); offset += stride) {
      for (int bit = 0; bit < 8; ++bit) {
        const std::string where = fmt::format("{} byte {} bit {}", name, offset, bit);
        const std::byte whole{static_cast<unsigned char>(content[offset])};
        PutByte(name, offset, whole ^ (std::byte{1} << bit));
        suite.Count();
        const auto plan = Plan();
        ASSERT_THAT(plan, IsOk());
        const bool is_named =
            damage_.blocks.size() == 1 && damage_.blocks[0].file == f &&
            damage_.blocks[0].flip == FlippedBit{.offset_bytes = offset, .bit = bit};
        if (!is_named) suite.Fail(where + ": not named");
        if (rng() % repair_stride == 0) {
          ++repaired;
          CheckRepaired(*plan, where, suite);
        }
        PutByte(name, offset, whole);
      }
    }
  }
  suite.Note(fmt::format("{} repaired", repaired));
}

// Every file lost; every two of them: repaired if they are of different groups, else both named.
TEST_P(RepairTest, LostFilesAreRebuiltOrNamed) {
  Suite suite(fmt::format("lost files, {}", GetParam().name));
  const auto group_of = [&](const std::string& name) {
    const auto it = std::find_if(
        manifest_.parity.begin(), manifest_.parity.end(), [&](const ParityGroup& group) {
          return group.parity_file == name ||
                 std::find(group.members.begin(), group.members.end(), name) != group.members.end();
        });
    return it - manifest_.parity.begin();
  };
  for (const auto& [first, first_content] : files_) {
    for (const auto& [second, second_content] : files_) {
      if (second < first) continue;
      const std::string where = fmt::format("{} and {}", first, second);
      ASSERT_THAT(storage_->RemoveAll(directory_ / first), IsOk());
      ASSERT_THAT(storage_->RemoveAll(directory_ / second), IsOk());
      suite.Count();
      const auto plan = Plan();
      ASSERT_THAT(plan, IsOk());
      const bool can_be_done = first == second || group_of(first) != group_of(second);
      if (can_be_done) {
        CheckRepaired(*plan, where, suite);
      } else if (plan->beyond_repair.size() != 2 ||
                 !plan->beyond_repair[0].file.starts_with(first + " ") ||
                 !plan->beyond_repair[1].file.starts_with(second + " ")) {
        suite.Fail(where + ": not both named");
      }
      Put(first, first_content);
      if (first != second) Put(second, second_content);
    }
  }
}

// Every bit of the manifest and of its copy, every cut, either file lost: the other one serves, and
// what was lost is named.
TEST_P(RepairTest, TheManifestIsFoundInOneOfItsTwoPlaces) {
  Suite suite(fmt::format("manifests, {}", GetParam().name));
  const auto check = [&](const std::string& name, const std::string& where) {
    suite.Count();
    const auto found = FindManifest(*storage_, directory_);
    ASSERT_THAT(found, IsOk()) << where;
    const bool is_named = (*found)->lost && (*found)->lost->file == (directory_ / name).string();
    if ((*found)->text != manifest_text_ || !is_named) suite.Fail(where);
  };
  const std::size_t stride = IsLongRun() ? 1 : 7;
  for (const auto& place : {kManifestName, kManifestCopyName}) {
    const std::string name(place);
    for (std::size_t at = 0; at < manifest_text_.size(); at += stride) {
      for (int bit = 0; bit < 8; ++bit) {
        const std::byte whole{static_cast<unsigned char>(manifest_text_[at])};
        PutByte(name, at, whole ^ (std::byte{1} << bit));
        check(name, fmt::format("{} byte {} bit {}", name, at, bit));
        PutByte(name, at, whole);
      }
      Put(name, manifest_text_.substr(0, at));
      check(name, fmt::format("{} cut at {}", name, at));
      Put(name, manifest_text_);
    }
    ASSERT_THAT(storage_->RemoveAll(directory_ / name), IsOk());
    check(name, name + " lost");
    Put(name, manifest_text_);
  }
}

// Bits, overwritten ranges, cut-off ends and lost files at random.
TEST_P(RepairTest, RandomDamageIsRepairedOrRefused) {
  Suite suite(fmt::format("random damage, {}", GetParam().name));
  std::mt19937_64 rng(TestSeed(kDefaultSeed));
  std::vector<std::string> names;
  for (const auto& [name, content] : files_) names.push_back(name);
  std::uint64_t repaired = 0;
  for (int i = 0; i < (IsLongRun() ? 10'000 : 500); ++i) {
    Tree damaged;
    for (std::uint64_t hits = 1 + rng() % 3; hits > 0; --hits) {
      const std::string& name = names[rng() % names.size()];
      if (!damaged.contains(name)) damaged[name] = files_.at(name);
      std::string& content = damaged.at(name);
      if (content.empty()) continue;
      const std::size_t at = rng() % content.size();
      switch (rng() % 3) {
        case 0:
          content[at] = static_cast<char>(content[at] ^ (1 << (rng() % 8)));
          break;
        case 1:
          std::fill(content.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min(content.end(), content.begin() + static_cast<std::ptrdiff_t>(at) + 64),
                    '\0');
          break;
        default:
          content.resize(at);
      }
    }
    for (const auto& [name, content] : damaged) Put(name, content);
    suite.Count();
    const auto plan = Plan();
    ASSERT_THAT(plan, IsOk());
    if (plan->beyond_repair.empty()) {
      ++repaired;
      CheckRepaired(*plan, fmt::format("case {}", i), suite);
    }
    for (const auto& [name, content] : damaged) Put(name, files_.at(name));
  }
  suite.Note(fmt::format("{} repaired, the others refused", repaired));
}

}  // namespace
}  // namespace ckpt::testing
