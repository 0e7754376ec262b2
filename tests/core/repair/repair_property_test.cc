// Random damage: what is repaired has the bytes that were written, and what can be repaired is.

#include <gmock/gmock.h>

#include "core/manifest/find_damage.h"
#include "core/repair/repair_plan.h"
#include "core/repair/write_repaired.h"
#include "tests/core/repair/specimen.h"
#include "tests/testing/run_root.h"

namespace ckpt {
namespace {

using testing::Contents;
using testing::FailsWith;
using testing::IsOk;
using testing::RandomBytes;
using testing::Specimen;

constexpr std::uint64_t kPropertyBlock = kManifestBlockBytes;
const Path kCopy = "/copy";

class RepairTest : public ::testing::Test {
 protected:
  RepairTest() : rng_(testing::TestSeed(testing::kDefaultSeed)) {
    std::printf("replay: CKPT_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(testing::TestSeed(testing::kDefaultSeed)));
  }

  std::uint64_t Below(std::uint64_t bound) { return rng_() % bound; }

  // Finds, plans, writes. The plan is kept in `plan_`.
  static Result<std::vector<RepairedPlace>> Repair(Specimen& specimen, int threads,
                                                   RepairPlan& plan) {
    CKPT_ASSIGN_OR_RETURN(const Damage damage,
                          FindDamage(specimen.storage(), Specimen::directory(), specimen.manifest(),
                                     testing::kRunRoot, {.threads = threads}));
    plan = PlanRepair(specimen.manifest(), damage);
    CKPT_RETURN_IF_ERROR(Status(plan.beyond_repair));
    CKPT_RETURN_IF_ERROR(specimen.storage().RemoveAll(kCopy));
    CKPT_RETURN_IF_ERROR(specimen.storage().MakeDirectories(kCopy));
    return WriteRepaired(specimen.storage(), Specimen::directory(), specimen.manifest(), plan,
                         kCopy, {.threads = threads});
  }

  Contents SomeFiles(std::size_t count) {
    Contents contents;
    for (std::size_t f = 0; f < count; ++f) {
      const std::uint64_t sizes[] = {0, 1 + Below(500), 1 + Below(500), kPropertyBlock,
                                     kPropertyBlock + 1 + Below(500)};
      contents["f" + std::to_string(f)] = RandomBytes(sizes[Below(5)], rng_);
    }
    return contents;
  }

  std::mt19937_64 rng_;
};

TEST_F(RepairTest, CopiesWhatIsWhole) {
  Specimen specimen(SomeFiles(5), 2);
  RepairPlan plan;
  const auto repaired = Repair(specimen, 2, plan);
  ASSERT_THAT(repaired, IsOk());
  EXPECT_THAT(*repaired, ::testing::IsEmpty());
  EXPECT_EQ(specimen.ReadAll(kCopy), specimen.contents());
}

TEST_F(RepairTest, RebuildsEverySingleLostFile) {
  Contents contents = SomeFiles(6);
  contents["g"] = {};
  Specimen specimen(std::move(contents), 3);
  for (const auto& [name, content] : specimen.contents()) {
    SCOPED_TRACE(name);
    specimen.Remove(name);
    RepairPlan plan;
    const auto repaired = Repair(specimen, 1, plan);
    ASSERT_THAT(repaired, IsOk());
    ASSERT_EQ(repaired->size(), 1U);
    EXPECT_EQ(repaired->front().file, name);
    EXPECT_EQ(repaired->front().source,
              content.empty() ? RepairSource::kManifest : RepairSource::kParity);
    EXPECT_EQ(repaired->front().size_bytes, content.size());
    EXPECT_EQ(specimen.ReadAll(kCopy), specimen.contents());
    specimen.Restore();
  }
}

TEST_F(RepairTest, RefusesEveryTwoLostFilesOfAGroupAndNamesBoth) {
  Contents contents;
  for (const char* name : {"a", "b", "c"}) contents[name] = RandomBytes(100 + Below(100), rng_);
  Specimen specimen(std::move(contents), 3);
  for (const auto& first : specimen.contents()) {
    for (const auto& second : specimen.contents()) {
      if (first.first >= second.first) continue;
      specimen.Remove(first.first);
      specimen.Remove(second.first);
      RepairPlan plan;
      EXPECT_FALSE(Repair(specimen, 1, plan).ok());
      ASSERT_EQ(plan.beyond_repair.size(), 2U);
      EXPECT_THAT(plan.beyond_repair[0].file, ::testing::StartsWith(first.first + " "));
      EXPECT_THAT(plan.beyond_repair[1].file, ::testing::StartsWith(second.first + " "));
      specimen.Restore();
    }
  }
}

TEST_F(RepairTest, ShortAndLongFilesGetTheirLengthBack) {
  Specimen specimen(
      {{"a", RandomBytes(2 * kPropertyBlock + 5, rng_)}, {"b", RandomBytes(kPropertyBlock, rng_)}},
      2);
  const Bytes& a = specimen.contents().at("a");
  for (const std::uint64_t length :
       {std::uint64_t{0}, kPropertyBlock - 1, kPropertyBlock, 2 * kPropertyBlock + 4}) {
    specimen.Put("a", ByteSpan(a).first(length));
    RepairPlan plan;
    const auto repaired = Repair(specimen, 2, plan);
    ASSERT_THAT(repaired, IsOk());
    ASSERT_EQ(repaired->size(), 1U);
    EXPECT_EQ(repaired->front().offset_bytes, length / kPropertyBlock * kPropertyBlock);
    EXPECT_EQ(specimen.ReadAll(kCopy), specimen.contents());
  }
  Bytes grown = a;
  grown.push_back(std::byte{1});
  specimen.Put("a", grown);
  RepairPlan plan;
  const auto repaired = Repair(specimen, 1, plan);
  ASSERT_THAT(repaired, IsOk());
  EXPECT_THAT(*repaired,
              ::testing::ElementsAre(RepairedPlace{
                  .file = "a", .offset_bytes = a.size(), .source = RepairSource::kManifest}));
  EXPECT_EQ(specimen.ReadAll(kCopy), specimen.contents());
}

// A wrong block whose CRC-32C one flipped bit would explain: its CRC-32 says that it is none.
TEST_F(RepairTest, TakesNoGuessForAFlippedBit) {
  Specimen specimen(
      {{"a", RandomBytes(kPropertyBlock, rng_)}, {"b", RandomBytes(kPropertyBlock, rng_)}}, 2);
  const std::uint32_t expected = specimen.manifest().files[0].block_crc32c[0];
  Bytes garbage = RandomBytes(kPropertyBlock, rng_);
  while (!FindFlippedBit(expected, Crc32c(garbage), kPropertyBlock)) {
    garbage[Below(kPropertyBlock)] ^= static_cast<std::byte>(1 + Below(255));
  }
  specimen.Put("a", garbage);
  RepairPlan plan;
  const auto repaired = Repair(specimen, 1, plan);
  ASSERT_THAT(repaired, IsOk());
  ASSERT_EQ(plan.blocks.size(), 1U);
  EXPECT_FALSE(plan.blocks[0].flip.has_value());
  ASSERT_EQ(repaired->size(), 1U);
  EXPECT_EQ(repaired->front().source, RepairSource::kParity);
  EXPECT_EQ(specimen.ReadAll(kCopy), specimen.contents());
}

TEST_F(RepairTest, NoticesDamageThatComesWhileItWrites) {
  Specimen specimen({{"a", RandomBytes(300, rng_)}, {"b", RandomBytes(300, rng_)}}, 2);
  const auto damage =
      FindDamage(specimen.storage(), Specimen::directory(), specimen.manifest(), testing::kRunRoot);
  ASSERT_THAT(damage, IsOk());
  const RepairPlan plan = PlanRepair(specimen.manifest(), *damage);
  specimen.Put("b", RandomBytes(300, rng_));
  ASSERT_THAT(specimen.storage().MakeDirectories(kCopy), IsOk());
  EXPECT_THAT(
      WriteRepaired(specimen.storage(), Specimen::directory(), specimen.manifest(), plan, kCopy),
      FailsWith(ErrorKind::kChecksum));
}

TEST_F(RepairTest, GivesTheBytesBackWheneverItCanBeDone) {
  int repaired_cases = 0;
  int refused_cases = 0;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(::testing::Message() << "case " << i);
    Specimen specimen(SomeFiles(2 + Below(4)), 1 + Below(4));
    const Manifest& manifest = specimen.manifest();
    // (file, block) → whether a bit repairs it.
    std::map<std::pair<std::string, std::uint64_t>, bool> damaged;
    Contents now = specimen.contents();
    for (std::uint64_t hits = 1 + Below(4); hits > 0; --hits) {
      const ManifestFile& file = manifest.files[Below(manifest.files.size())];
      if (file.size_bytes == 0) continue;
      const std::uint64_t offset = Below(file.size_bytes);
      const bool is_first =
          damaged.emplace(std::pair(file.name, offset / kPropertyBlock), true).second;
      now[file.name][offset] ^= std::byte{1} << Below(8);
      const bool more = Below(2) == 0 || !is_first;
      if (more) {
        // Two bytes of different bits: never one flipped bit.
        const ByteSpan whole = specimen.contents().at(file.name);
        const std::uint64_t begin = offset / kPropertyBlock * kPropertyBlock;
        const std::uint64_t length = std::min(kPropertyBlock, file.size_bytes - begin);
        for (std::uint64_t k = 0; k < length; ++k) now[file.name][begin + k] = whole[begin + k];
        now[file.name][offset] ^= std::byte{0x03};
        damaged[{file.name, offset / kPropertyBlock}] = false;
      }
    }
    for (const auto& [name, content] : now) specimen.Put(name, content);
    bool can_be_done = true;
    for (const ParityGroup& group : manifest.parity) {
      std::map<std::uint64_t, int> lost;
      for (const auto& [place, is_bit] : damaged) {
        const bool is_in = place.first == group.parity_file ||
                           std::find(group.members.begin(), group.members.end(), place.first) !=
                               group.members.end();
        if (is_in && !is_bit && ++lost[place.second] > 1) can_be_done = false;
      }
    }
    RepairPlan plan;
    const auto repaired = Repair(specimen, 1 + static_cast<int>(Below(3)), plan);
    ASSERT_EQ(repaired.ok(), can_be_done) << repaired.status().ToString();
    if (can_be_done) {
      ASSERT_EQ(specimen.ReadAll(kCopy), specimen.contents());
      ASSERT_EQ(repaired->empty(), damaged.empty());
    }
    (can_be_done ? repaired_cases : refused_cases) += 1;
  }
  EXPECT_GT(repaired_cases, 20);
  EXPECT_GT(refused_cases, 3);
}

}  // namespace
}  // namespace ckpt
