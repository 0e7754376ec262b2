#include "core/repair/parity.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "core/io/posix_storage.h"
#include "tests/core/repair/specimen.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/temp_dir.h"

namespace ckpt {
namespace {

using testing::Contents;
using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;
using testing::RandomBytes;
using testing::Specimen;

constexpr std::size_t kBlock = kManifestBlockBytes;

ManifestFile OfSize(std::string name, std::uint64_t size_bytes) {
  return {.name = std::move(name), .size_bytes = size_bytes, .block_crc32c = {}};
}

Contents SomeFiles() {
  std::mt19937_64 rng(testing::TestSeed(testing::kDefaultSeed));
  return {{".metadata", RandomBytes(700, rng)},
          {"a.distcp", RandomBytes(2 * kBlock + 17, rng)},
          {"b.distcp", RandomBytes(2 * kBlock, rng)},
          {"empty", {}},
          {"sub/config.json", RandomBytes(90, rng)}};
}

TEST(GroupForParity, PutsFilesOfLikeSizeTogether) {
  const std::vector<ManifestFile> files = {OfSize("a", 10), OfSize("b", 1000), OfSize("c", 12),
                                           OfSize("d", 900), OfSize("e", 10)};
  const std::vector<ParityGroup> groups = GroupForParity(files, 2);
  EXPECT_THAT(groups, ElementsAre(ParityGroup{"ckptkit-parity-000.xor", {"b", "d"}},
                                  ParityGroup{"ckptkit-parity-001.xor", {"c", "a"}},
                                  ParityGroup{"ckptkit-parity-002.xor", {"e"}}));
  EXPECT_EQ(groups.size(), CountParityFiles(files.size(), 2));
}

TEST(GroupForParity, LeavesTheTrackerOut) {
  const std::vector<ManifestFile> files = {OfSize("../latest.txt", 7), OfSize("a", 1)};
  EXPECT_THAT(GroupForParity(files, 4), ElementsAre(ParityGroup{"ckptkit-parity-000.xor", {"a"}}));
}

// The definition, in the simplest words: byte i is the exclusive or of the bytes i.
TEST(WriteParity, IsTheExclusiveOrOfTheGroup) {
  Specimen specimen(SomeFiles(), 3);
  const Contents& contents = specimen.contents();
  ASSERT_EQ(specimen.manifest().parity.size(), 2U);
  for (const ParityGroup& group : specimen.manifest().parity) {
    std::size_t longest = 0;
    for (const std::string& member : group.members) {
      longest = std::max(longest, contents.at(member).size());
    }
    Bytes expected(longest);
    for (const std::string& member : group.members) {
      const Bytes& content = contents.at(member);
      for (std::size_t i = 0; i < content.size(); ++i) expected[i] ^= content[i];
    }
    EXPECT_EQ(contents.at(group.parity_file), expected) << group.parity_file;
    const ManifestFile& described =
        specimen.manifest().files[*specimen.manifest().FindFile(group.parity_file)];
    EXPECT_EQ(described, testing::DescribeContent(group.parity_file, expected));
  }
}

TEST(WriteParity, DependsOnNeitherThreadsNorBudget) {
  Specimen specimen(SomeFiles(), 2);
  std::vector<ManifestFile> files;
  for (const auto& [name, content] : SomeFiles()) {
    files.push_back(testing::DescribeContent(name, content));
  }
  for (const int threads : {1, 3}) {
    for (const std::uint64_t budget : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
      for (const ParityGroup& group : specimen.manifest().parity)
        specimen.Remove(group.parity_file);
      const auto parity =
          WriteParity(specimen.storage(), Specimen::directory(), files,
                      {.group_size = 2, .memory_budget_bytes = budget, .threads = threads});
      ASSERT_THAT(parity, IsOk());
      EXPECT_EQ(parity->groups, specimen.manifest().parity);
      EXPECT_EQ(specimen.ReadAll(Specimen::directory()), specimen.contents());
    }
  }
}

TEST(WriteParity, NeverTakesDamageForData) {
  for (const std::string name : {"a.distcp", ".metadata"}) {
    Specimen specimen(SomeFiles(), 0);
    Bytes damaged = specimen.contents().at(name);
    damaged.back() ^= std::byte{1};
    specimen.Put(name, damaged);
    EXPECT_THAT(WriteParity(specimen.storage(), Specimen::directory(), specimen.manifest().files,
                            {.group_size = 8}),
                FailsWith(ErrorKind::kChecksum));
    specimen.Remove("ckptkit-parity-000.xor");
    specimen.Put(name, ByteSpan(damaged).first(damaged.size() - 1));
    EXPECT_THAT(WriteParity(specimen.storage(), Specimen::directory(), specimen.manifest().files,
                            {.group_size = 8}),
                FailsWith(ErrorKind::kTruncated));
  }
}

TEST(WriteParity, EveryFailureIsTold) {
  Specimen specimen(SomeFiles(), 0);
  testing::FaultStorage counter(specimen.storage(), -1);
  const auto& files = specimen.manifest().files;
  ASSERT_THAT(WriteParity(counter, Specimen::directory(), files, {.group_size = 3}), IsOk());
  ASSERT_GE(counter.calls(), 10);
  for (int fail_at = 0; fail_at < counter.calls(); ++fail_at) {
    specimen.Remove("ckptkit-parity-000.xor");
    specimen.Remove("ckptkit-parity-001.xor");
    testing::FaultStorage faulty(specimen.storage(), fail_at, ErrorKind::kNoSpace);
    EXPECT_THAT(WriteParity(faulty, Specimen::directory(), files, {.group_size = 3}),
                FailsWith(ErrorKind::kNoSpace))
        << "call " << fail_at;
  }
}

}  // namespace
}  // namespace ckpt
