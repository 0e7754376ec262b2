// What ranks stored each on its own: a conversion takes the first rank's, and says what it leaves.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/convert.h"
#include "core/base/endian.h"
#include "formats/registry/registry.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/testing/ranks_alone.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr const char* kNote = "__metadata__.note";

// What one rank has: two tensors of 16 bytes, and an object.
struct Saved {
  std::string a;
  std::string b;
  std::string note;
};
const Saved kFirst = {.a = "aaaaaaaaaaaaaaaa", .b = "bbbbbbbbbbbbbbbb", .note = "mine"};

class LostCopiesTest : public ConvertTest {
 protected:
  [[nodiscard]] ConvertOptions To(const std::string& format, const Path& source,
                                  const std::string& target) const {
    ConvertOptions options = Between("", format, source, target);
    options.verify = false;
    return options;
  }

  // A DCP of what each rank saved.
  Path Save(const std::vector<Saved>& ranks) {
    std::vector<Path> saved;
    for (const Saved& rank : ranks) {
      const std::string name = std::to_string(num_saved_++);
      const Path file = dir_.path() / (name + ".safetensors");
      const std::string header = R"({"__metadata__":{"note":")" + rank.note +
                                 R"("},"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                                 R"("b":{"dtype":"U8","shape":[16],"data_offsets":[16,32]}})";
      Bytes bytes;
      AppendLe(std::uint64_t{header.size()}, bytes);
      Append(header + rank.a + rank.b, bytes);
      EXPECT_THAT(WriteSmallFile(PosixStorage(), file, bytes), IsOk());
      const ConvertOptions options = To("dcp", file, "rank" + name);
      EXPECT_THAT(Convert(options), IsOk());
      saved.push_back(options.target);
    }
    const Path joined = dir_.path() / ("joined" + std::to_string(num_saved_));
    testing::JoinRanks(saved, joined);
    return joined;
  }

  static std::vector<std::pair<std::string, std::string>> Dropped(const ConvertReport& report) {
    std::vector<std::pair<std::string, std::string>> dropped;
    for (const LeftOutEntry& entry : report.dropped) dropped.emplace_back(entry.key, entry.why);
    return dropped;
  }

 private:
  int num_saved_ = 0;
};

TEST_F(LostCopiesTest, CopiesThatDifferAreListed) {
  Saved third = kFirst;
  third.b = "bbbbbbbbbbbbbbbx";
  third.note = "other";
  const Path source = Save({kFirst, kFirst, third});
  for (const std::string format : {"dcp", "torch_save", "hdf5"}) {
    SCOPED_TRACE(format);
    for (const bool verify : {false, true}) {
      ConvertOptions options = To(format, source, format + (verify ? "-verified" : ""));
      options.verify = verify;
      const auto report = Convert(options);
      ASSERT_THAT(report, IsOk());
      EXPECT_THAT(
          Dropped(*report),
          ElementsAre(std::pair("b (copy 3)", "another rank stored other values"),
                      std::pair("__metadata__.note (copy 3)", "another rank stored other values")));
      EXPECT_EQ(report->dropped[0].bytes, 16U);
      EXPECT_GT(report->dropped[1].bytes, 0U);
      ASSERT_EQ(report->warnings.size(), 2U);
      for (const Problem& warning : report->warnings) {
        EXPECT_EQ(warning.kind, ErrorKind::kValueMismatch);
        EXPECT_EQ(warning.severity, Severity::kWarning);
        EXPECT_EQ(warning.file, "__0_0.distcp");
        EXPECT_EQ(warning.actual, "others in __2_0.distcp");
      }
      EXPECT_EQ(report->warnings[0].tensor, "b");
      EXPECT_EQ(report->warnings[1].tensor, kNote);
    }
  }
}

// Of the object, which stays behind, nothing is taken.
TEST_F(LostCopiesTest, WhatTheTargetCannotHoldIsListedOnce) {
  Saved second = kFirst;
  second.b = "bbbbbbbbbbbbbbbx";
  second.note = "other";
  const ConvertOptions options = To("safetensors", Save({kFirst, second}), "out");
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Dropped(*report),
              ElementsAre(std::pair(kNote, "the target holds tensors alone"),
                          std::pair("b (copy 2)", "another rank stored other values")));
  EXPECT_EQ(report->warnings.size(), 1U);
  EXPECT_THAT(Content(options.target / "model.safetensors"),
              ::testing::HasSubstr(kFirst.a + kFirst.b))
      << "the first rank's";
}

TEST_F(LostCopiesTest, EqualCopiesAreNoLoss) {
  const auto report = Convert(To("dcp", Save({kFirst, kFirst}), "out"));
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->dropped, IsEmpty());
  EXPECT_THAT(report->warnings, IsEmpty());
}

TEST_F(LostCopiesTest, WhatIsLeftOutOnRequestIsListedOnce) {
  Saved second = kFirst;
  second.b = "bbbbbbbbbbbbbbbx";
  ConvertOptions options = To("dcp", Save({kFirst, second}), "out");
  options.model.drop = {"b"};
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Dropped(*report), ElementsAre(std::pair("b", std::string(kLeftOutOnRequest))));
  EXPECT_THAT(report->warnings, IsEmpty());
}

// Nothing of it is taken, but nobody knows what is lost.
TEST_F(LostCopiesTest, ACopyThatCannotBeReadIsAWarning) {
  const Path source = Save({kFirst, kFirst});
  const Path file = source / "__1_0.distcp";
  const std::size_t at = Content(file).find(kFirst.b);
  ASSERT_NE(at, std::string::npos);
  {
    std::fstream stream(file.string(), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put('x');
  }
  const auto report = Convert(To("dcp", source, "out"));
  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(report->dropped, IsEmpty());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0].kind, ErrorKind::kChecksum);
  EXPECT_EQ(report->warnings[0].severity, Severity::kWarning);
  EXPECT_EQ(report->warnings[0].tensor, "b");
}

TEST_F(LostCopiesTest, IsTheSameForAnyThreadsAndBudget) {
  Saved second = kFirst;
  second.a = "aaaaaaaaaaaaaaax";
  ConvertOptions options = To("dcp", Save({kFirst, second, second}), "out");
  for (const int threads : {1, 4}) {
    for (const std::uint64_t budget : {std::uint64_t{1}, std::uint64_t{1} << 30}) {
      options.target = dir_.path() / ("out" + std::to_string(threads) + std::to_string(budget));
      options.threads = threads;
      options.memory_budget_bytes = budget;
      const auto report = Convert(options);
      ASSERT_THAT(report, IsOk());
      EXPECT_THAT(Dropped(*report),
                  ElementsAre(std::pair("a (copy 2)", "another rank stored other values"),
                              std::pair("a (copy 3)", "another rank stored other values")));
    }
  }
}

}  // namespace
}  // namespace ckpt
