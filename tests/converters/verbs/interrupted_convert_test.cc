// Conversions that end early, and those that go on from there.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/testing/fault_storage.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using testing::FaultStorage;
using testing::IsOk;

void SetModified(const Path& path, std::int64_t nanoseconds) {
  const timespec when = {.tv_sec = nanoseconds / 1'000'000'000,
                         .tv_nsec = nanoseconds % 1'000'000'000};
  const timespec times[] = {when, when};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// How the tensors of the result are stored.
class InterruptedConvertTest : public ConvertTest,
                               public ::testing::WithParamInterface<std::optional<int>> {};
INSTANTIATE_TEST_SUITE_P(Stored, InterruptedConvertTest,
                         ::testing::Values(std::optional<int>(), std::optional<int>(3)),
                         [](const auto& level) { return level.param ? "Compressed" : "Plain"; });

// Every mutating call fails in turn, for good: nothing appears under the target's name, and a
// resumed run finishes with the bytes an undisturbed one gives.
TEST_P(InterruptedConvertTest, AFaultAnywhereLeavesNothingThatLooksComplete) {
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.zstd_level = GetParam();
  options.parity_group = 3;
  options.files = 2;
  options.verify = false;
  const Path undisturbed = dir_.path() / "undisturbed";
  options.target = undisturbed;
  ASSERT_THAT(Convert(options), IsOk());

  options.target = dir_.path() / "target";
  FaultStorage counter(PosixStorage(), -1);
  ASSERT_THAT(Convert(counter, options), IsOk());
  ASSERT_GT(counter.calls(), 50);
  ASSERT_THAT(PosixStorage().RemoveAll(options.target), IsOk());
  options.resume = true;
  for (int fail_at = 0; fail_at < counter.calls(); ++fail_at) {
    SCOPED_TRACE(::testing::Message() << "call " << fail_at << " of " << counter.calls());
    FaultStorage faulty(PosixStorage(), fail_at);
    const auto report = Convert(faulty, options);
    const bool exists = boost::filesystem::exists(options.target);
    // Only the very last call, syncing the parent directory, comes after the rename.
    EXPECT_EQ(exists, fail_at == counter.calls() - 1);
    EXPECT_FALSE(report.ok());
    if (exists) break;
    ASSERT_THAT(Convert(options), IsOk());
    ExpectSameFiles(undisturbed, options.target);
    ASSERT_THAT(PosixStorage().RemoveAll(options.target), IsOk());
  }
}

TEST_P(InterruptedConvertTest, ResumingTakesOverFinishedTensorsOnlyIfTheirBytesAreIntact) {
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.zstd_level = GetParam();
  options.verify = false;
  FaultStorage counter(PosixStorage(), -1);
  ASSERT_THAT(Convert(counter, options), IsOk());
  const Path undisturbed = options.target;
  options.target = dir_.path() / "again";
  options.resume = true;
  FaultStorage late(PosixStorage(), counter.calls() * 2 / 3);
  ASSERT_FALSE(Convert(late, options).ok());
  const Path data = Path(options.target.string() + ".ckptkit-partial") / "release" / "__0_0.distcp";
  ASSERT_GT(boost::filesystem::file_size(data), 70'000U);
  {
    std::fstream file(data.string(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60'000);
    file.write("damage", 6);
  }
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_GT(report->resumed_tensors, 0U);
  ExpectSameFiles(undisturbed, options.target);
}

// Another file under the same name, as large and as old, where a run was interrupted: after a cast
// nothing in the result shows which of them a tensor comes from.
TEST_F(ConvertTest, NeverMixesTwoSources) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  for (const std::string name : {"config.json", "model.safetensors"}) {
    boost::filesystem::copy_file(Golden("llama-tied-fp32") / name, source / name);
  }
  const Path weights = source / "model.safetensors";
  ConvertOptions options = ToFsdp(source);
  options.dtype = DType::kBfloat16;
  FaultStorage counter(PosixStorage(), -1);
  ASSERT_THAT(Convert(counter, options), IsOk());
  options.target = dir_.path() / "target";
  options.resume = true;
  FaultStorage late(PosixStorage(), counter.calls() * 2 / 3);
  ASSERT_FALSE(Convert(late, options).ok());

  std::string content = Content(weights);
  const std::size_t header_bytes = 8 + LoadLe<std::uint64_t>(AsBytes(content).data());
  for (std::size_t at = header_bytes + 2; at < content.size(); at += 4) content[at] ^= 0x40;
  const auto stat = PosixStorage().Stat(weights);
  ASSERT_THAT(stat, IsOk());
  std::ofstream(weights.string(), std::ios::binary) << content;
  SetModified(weights, stat->modified_ns);
  ASSERT_EQ(PosixStorage().Stat(weights)->modified_ns, stat->modified_ns);

  const auto mixed = Convert(options);
  ASSERT_THAT(mixed, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_FALSE(boost::filesystem::exists(options.target));
  // What was taken over is not taken over again.
  const auto anew = Convert(options);
  ASSERT_THAT(anew, IsOk());
  EXPECT_EQ(anew->resumed_tensors, 0U);
  ConvertOptions undisturbed = options;
  undisturbed.target = dir_.path() / "undisturbed";
  ASSERT_THAT(Convert(undisturbed), IsOk());
  ExpectSameFiles(undisturbed.target, options.target);
}

}  // namespace
}  // namespace ckpt
