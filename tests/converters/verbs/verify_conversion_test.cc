// What proves that the result of a conversion is its source.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/forwarding_storage.h"
#include "core/io/staging_name.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/registry.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/testing/counting_storage.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

TEST_F(ConvertTest, TheManifestProvesEveryFileOfTheResult) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  const Path release = dir_.path() / "fsdp" / "release";
  const auto manifest = ParseManifest(Content(release / "ckptkit.json"), "ckptkit.json");
  ASSERT_THAT(manifest, IsOk());
  std::vector<std::string> covered;
  for (const ManifestFile& file : manifest->files) covered.push_back(file.name);
  EXPECT_THAT(covered, ::testing::IsSupersetOf({"../latest_checkpointed_iteration.txt", ".metadata",
                                                "__0_0.distcp", "hf_assets/config.json"}));
  const auto problems = VerifyManifest(PosixStorage(), release, *manifest, KnownRunRoot());
  ASSERT_THAT(problems, IsOk());
  EXPECT_TRUE(problems->empty());
}

TEST_F(ConvertTest, WhatTheFormatsOwnSoftwareRefusesIsNotPublished) {
  Format refused = **FindFormat("hdf5");
  ASSERT_NE(refused.prove, nullptr);
  refused.prove = [](Storage& storage, const Path& path, const WritePlan& plan) {
    EXPECT_EQ(path.filename(), plan.files.at(0).name);
    EXPECT_EQ(storage.Stat(path)->type, FileType::kRegular);
    return Error(ErrorKind::kBadMetadata, "not a file of mine");
  };
  ConvertOptions options = Between("hf", "hdf5", Golden("llama-tied-fp32"), "out.h5");
  ASSERT_THAT(Convert(options), IsOk());
  options.to.container = &refused;
  options.target = dir_.path() / "refused.h5";
  const auto report = Convert(options);
  EXPECT_THAT(report, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(report.status().ToString(), HasSubstr("not a file of mine"));
  EXPECT_FALSE(boost::filesystem::exists(options.target));
  options.verify = false;
  EXPECT_THAT(Convert(options), IsOk());
}

// Tensors that stay what they are need not be read a second time to be proved.
TEST_F(ConvertTest, DigestsTheSourceWhileItStreams) {
  const Path source = Golden("llama-tied-fp32");
  ConvertOptions options = Between("hf", "dcp", source, "plain");
  options.to.naming = "hf";
  options.verify = false;
  testing::CountingStorage unproved(PosixStorage(), source / "model.safetensors");
  ASSERT_THAT(Convert(unproved, options), IsOk());
  options.verify = true;
  options.target = dir_.path() / "proved";
  testing::CountingStorage proved(PosixStorage(), source / "model.safetensors");
  const auto report = Convert(proved, options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(proved.bytes_read(), unproved.bytes_read());
  EXPECT_EQ(report->source_digest, DigestAsHf(source));
  EXPECT_EQ(report->target_digest, report->source_digest);
}

// A digest takes a tensor as it is published: experts transposed, columns by turns; projections
// each for itself, where the target has them in one tensor. All is read in this order, whatever the
// target needs of it.
TEST_F(ConvertTest, DigestsTheSourceWhileItIsRead) {
  for (const std::string& name :
       testing::GoldenCases("hf", {"gptoss-bf16", "gptoss-square-bf16", "qwen2-bf16"})) {
    const Path source = Golden(name);
    for (const int threads : {1, 4}) {
      ConvertOptions options = ToFsdp(source);
      options.threads = threads;
      options.verify = false;
      options.target = dir_.path() / fmt::format("{}-{}", name, threads);
      testing::CountingStorage unproved(PosixStorage(), source / "model.safetensors");
      ASSERT_THAT(Convert(unproved, options), IsOk());
      options.verify = true;
      options.target = dir_.path() / fmt::format("{}-{}-proved", name, threads);
      testing::CountingStorage proved(PosixStorage(), source / "model.safetensors");
      const auto report = Convert(proved, options);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(proved.bytes_read(), unproved.bytes_read()) << name;
      EXPECT_EQ(report->source_digest, DigestAsHf(source));
      EXPECT_EQ(report->target_digest, DigestAsHf(options.target));
    }
  }
}

// A cast leaves nothing of the target that would be the source's.
TEST_F(ConvertTest, DigestsTheSourceWhileItIsReadToBeCast) {
  const Path source = Golden("gptoss-square-bf16");
  ConvertOptions options = ToFsdp(source);
  options.dtype = DType::kFloat32;
  testing::CountingStorage storage(PosixStorage(), source / "model.safetensors");
  const auto report = Convert(storage, options);
  ASSERT_THAT(report, IsOk());
  EXPECT_LT(storage.bytes_read(), report->source_bytes * 5 / 4);
  EXPECT_EQ(report->source_digest, DigestAsHf(source));
  EXPECT_EQ(report->target_digest, DigestAsHf(options.target));
}

// What the digest reads in another order than it is stored is read once, too, in the result.
TEST_F(ConvertTest, ReadsTheResultOnce) {
  constexpr std::uint64_t kAroundATensor = 8000;  // heads, tails and what is read with them
  for (const std::string& name :
       testing::GoldenCases("hf", {"gptoss-bf16", "gptoss-square-bf16"})) {
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir_.path() / name;
    testing::CountingStorage storage(PosixStorage(),
                                     StagingOf(options.target) / "release" / "__0_0.distcp");
    const auto report = Convert(storage, options);
    ASSERT_THAT(report, IsOk());
    EXPECT_GE(storage.bytes_read(), report->target_bytes) << name;
    EXPECT_LT(storage.bytes_read(), report->target_bytes + report->target_tensors * kAroundATensor)
        << name;
  }
}

// Where a byte is in a file with this content.
using FindByte = std::function<std::size_t(const Bytes& content)>;

FindByte AtPart(double part) {
  return [part](const Bytes& content) {
    return static_cast<std::size_t>(part * static_cast<double>(content.size()));
  };
}

// A disk that returns another byte of the target than was written.
class LyingStorage final : public ForwardingStorage {
 public:
  // `files`: the end of their names.
  explicit LyingStorage(Storage& behind, std::string files = ".distcp", FindByte byte = AtPart(0.5))
      : ForwardingStorage(behind), files_(std::move(files)), byte_(std::move(byte)) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    if (!path.string().ends_with(files_)) return file;
    Bytes content(file->size_bytes());
    CKPT_RETURN_IF_ERROR(file->ReadAt(0, content));
    if (content.empty()) return file;
    content[byte_(content)] ^= std::byte{1};
    return MakeMemoryFile(path.string(), std::move(content));
  }

 private:
  const std::string files_;
  const FindByte byte_;
};

TEST_F(ConvertTest, ReadsBackWhatItWrote) {
  for (const std::string& name : testing::GoldenCases("hf", {"llama-tied-fp32", "gptoss-bf16"})) {
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir_.path() / name;
    LyingStorage storage(PosixStorage());
    const auto report = Convert(storage, options);
    ASSERT_THAT(report, FailsWith(ErrorKind::kValueMismatch));
    EXPECT_THAT(report.status().first().tensor, HasSubstr("model."));
    EXPECT_THAT(report.status().first().file,
                ::testing::StartsWith(StagingOf(options.target).string()));
    EXPECT_EQ(PosixStorage().Stat(options.target)->type, FileType::kMissing);
    options.verify = false;
    EXPECT_THAT(Convert(storage, options), IsOk());
  }
}

// Whoever reads a tensor back, at once or for the digest.
TEST_F(ConvertTest, NoticesABitOfAnyPartOfTheResult) {
  constexpr int kParts = 40;
  for (const std::string& name : testing::GoldenCases("hf", {"gptoss-bf16", "qwen2-bf16"})) {
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir_.path() / name;
    options.overwrite = true;
    for (int part = 0; part < kParts; ++part) {
      LyingStorage storage(PosixStorage(), ".distcp", AtPart(static_cast<double>(part) / kParts));
      EXPECT_THAT(Convert(storage, options), FailsWith(ErrorKind::kValueMismatch))
          << name << ", part " << part;
    }
  }
}

// A file has no manifest. What a run has besides weights and moments is compared with what was
// written also where elements are not read back at once: they are compressed, or others wrote them.
TEST_F(ConvertTest, NoticesABitOfAStepInAFile) {
  // The float32 of the run's three updates, behind all that is compressed.
  const auto last_step = [](const Bytes& content) -> std::size_t {
    constexpr std::array kThree = {std::byte{0}, std::byte{0}, std::byte{0x40}, std::byte{0x40}};
    const auto found = std::find_end(content.begin(), content.end(), kThree.begin(), kThree.end());
    return found == content.end() ? 0 : static_cast<std::size_t>(found - content.begin()) + 3;
  };
  for (const char* const way : {"at once", "compressed", "by workers"}) {
    for (const char* const container : {"hdf5", "torch_save"}) {
      const bool is_compressed = std::string_view(way) == "compressed";
      if (is_compressed && std::string_view(container) == "torch_save") continue;
      const std::string target = fmt::format("{} {}", container, way);
      SCOPED_TRACE(target);
      ConvertOptions options =
          Between("fsdp_dtensor", container,
                  testing::GoldenDir() / "fsdp_dtensor" / "dense_fsdp2" / "ckpt", target);
      options.to.naming = "fsdp2";
      options.overwrite = true;
      if (is_compressed) options.zstd_level = 3;
      if (std::string_view(way) == "by workers") {
        for (int worker = 0; worker < 2; ++worker) {
          options.worker = WorkerId{.number = worker, .count = 2};
          ASSERT_THAT(Convert(options), IsOk());
        }
        options.worker.reset();
        options.finalize = true;
      }
      LyingStorage storage(PosixStorage(), target, last_step);
      EXPECT_THAT(Convert(storage, options), FailsWith(ErrorKind::kValueMismatch));
    }
  }
}

// A file of elements proves them itself, in each form that it has.
TEST_F(ConvertTest, RefusesAFileWithAFlippedBit) {
  for (const char* const form : {"hdf5", "hdf5 in parts", "hdf5 compressed", "torch_save"}) {
    SCOPED_TRACE(form);
    const std::string_view name = form;
    const std::string container(name.substr(0, name.find(' ')));
    ConvertOptions there = Between("hf", container, Golden("llama-tied-fp32"), form);
    if (name.ends_with("parts")) there.files = 2;
    if (name.ends_with("compressed")) there.zstd_level = 3;
    ASSERT_THAT(Convert(there), IsOk());
    ConvertOptions back = Between("hf", "hf", there.target, "again");
    back.model.assets = there.source;
    back.overwrite = true;
    ASSERT_THAT(Convert(back), IsOk());

    const auto opened = OpenCheckpoint(PosixStorage(), there.target);
    ASSERT_THAT(opened, IsOk());
    const CheckpointIndex& index = opened->source->index();
    const Chunk& chunk = index.chunks().back();
    const Path file = dir_.path() / std::string(index.files()[chunk.file]);
    const std::uint64_t at = chunk.offset_bytes + chunk.size_bytes - 1;
    std::byte value = static_cast<std::byte>(Content(file)[at]) ^ std::byte{0x10};
    const auto damaged = PosixStorage().OpenForUpdate(file);
    ASSERT_THAT(damaged, IsOk());
    ASSERT_THAT((*damaged)->WriteAt(at, ByteSpan(&value, 1)), IsOk());

    back.target = dir_.path() / "never";
    const auto report = Convert(back);
    ASSERT_THAT(report, FailsWith(ErrorKind::kChecksum));
    EXPECT_EQ(report.status().first().tensor, index.tensors().back().key);
    EXPECT_FALSE(boost::filesystem::exists(back.target));
  }
}

// A byte of the index may change though the index says the same; the manifest then refuses it.
TEST_F(ConvertTest, ReadsBackWhatBelongsToNoTensor) {
  ConvertOptions options = ToFsdp(Golden("gptoss-square-bf16"));
  LyingStorage storage(PosixStorage(), "release/.metadata");
  EXPECT_THAT(Convert(storage, options), FailsWith(ErrorKind::kValueMismatch));
}

}  // namespace
}  // namespace ckpt
