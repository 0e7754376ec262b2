#include "converters/verbs/convert.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "converters/verbs/model_source.h"
#include "converters/verbs/target_space.h"
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

TEST_F(ConvertTest, ThereAndBackGivesTheSameFiles) {
  for (const std::string name :
       {"llama-untied-bf16", "qwen2-window-fp32", "qwen3moe-fused-bf16", "qwen3moe-mixed-bf16"}) {
    SCOPED_TRACE(name);
    const testing::TempDir dir;
    ConvertOptions there = ToFsdp(Golden(name));
    there.target = dir.path() / "fsdp";
    const auto report = Convert(there);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->source_digest, report->target_digest);
    EXPECT_FALSE(report->source_digest.empty());
    ConvertOptions back = ToHf(there.target);
    back.target = dir.path() / "hf";
    const auto returned = Convert(back);
    ASSERT_THAT(returned, IsOk());
    EXPECT_THAT(returned->warnings, ::testing::IsEmpty());
    ExpectSameFiles(Golden(name), back.target);
  }
}

TEST_F(ConvertTest, TheSameModelWhateverTheLayoutOfTheResult) {
  const Path source = Golden("qwen3moe-norm-bf16");
  const std::string expected = DigestAsHf(source);
  int run = 0;
  for (const int files : {0, 1, 3}) {
    for (const int threads : {1, 4}) {
      for (const std::uint64_t budget : {std::uint64_t{1}, std::uint64_t{1} << 20}) {
        ConvertOptions options = ToFsdp(source);
        options.target = dir_.path() / std::to_string(run++);
        options.files = files;
        options.threads = threads;
        options.memory_budget_bytes = budget;
        ASSERT_THAT(Convert(options), IsOk());
        EXPECT_EQ(DigestAsHf(options.target), expected);
      }
    }
  }
}

// The facts of its class are those of the family that its model_type names.
TEST_F(ConvertTest, AMappingThatIncludesTheDecoderDescribesEveryFamily) {
  const Path mapping = dir_.path() / "mine.layout";
  std::ofstream(mapping.string()) << "include decoder.layout\n";
  for (const std::string& name :
       testing::GoldenCases("hf", {"llama-untied-bf16", "qwen2-window-fp32", "qwen3moe-norm-bf16",
                                   "mixtral-bf16", "deepseekv3-yarn-bf16", "deepseekv3-fp8-ragged",
                                   "gptoss-bf16", "gptoss-square-mxfp4"})) {
    SCOPED_TRACE(name);
    const testing::TempDir dir;
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir.path() / "usual";
    ASSERT_THAT(Convert(options), IsOk());
    const Path usual = options.target;
    options.model.mapping = mapping;
    options.target = dir.path() / "mapped";
    ASSERT_THAT(Convert(options), IsOk());
    ExpectSameFiles(usual / "release", options.target / "release");
  }
}

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

TEST_F(ConvertTest, CompressedBytesDependOnNeitherThreadsNorBudget) {
  const Path source = Golden("qwen3moe-norm-bf16");
  ConvertOptions options = ToFsdp(source);
  options.zstd_level = 3;
  options.files = 2;
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->source_digest, report->target_digest);
  const Path expected = options.target;
  ConvertOptions plain = options;
  plain.zstd_level.reset();
  plain.target = dir_.path() / "plain";
  const auto uncompressed = Convert(plain);
  ASSERT_THAT(uncompressed, IsOk());
  EXPECT_LT(report->bytes_written, uncompressed->bytes_written);
  ASSERT_NO_FATAL_FAILURE(ExpectSameForAnyThreadsAndBudget(expected, options));
  ConvertOptions back = ToHf(expected);
  ASSERT_THAT(Convert(back), IsOk());
  ExpectSameFiles(source, back.target);
}

TEST_F(ConvertTest, ParityCoversEveryFileAndDependsOnNeitherThreadsNorBudget) {
  const Path source = Golden("qwen3moe-norm-bf16");
  ConvertOptions options = ToFsdp(source);
  options.files = 3;
  options.parity_group = 2;
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->parity_files, prepared->parity_files);
  EXPECT_GT(report->parity_bytes, 0U);
  const Path expected = options.target;
  const Path manifest_path = expected / "release" / "ckptkit.json";
  const auto manifest = ParseManifest(Content(manifest_path), "ckptkit.json");
  ASSERT_THAT(manifest, IsOk());
  std::size_t covered = 0;
  for (const ParityGroup& group : manifest->parity) covered += 1 + group.members.size();
  EXPECT_EQ(covered + 1, manifest->files.size());  // all but the tracker
  const auto problems =
      VerifyManifest(PosixStorage(), expected / "release", *manifest, KnownRunRoot());
  ASSERT_THAT(problems, IsOk());
  EXPECT_TRUE(problems->empty());
  EXPECT_EQ(Content(expected / "release" / "ckptkit-parity.json"), Content(manifest_path));
  ASSERT_NO_FATAL_FAILURE(ExpectSameForAnyThreadsAndBudget(expected, options));
  // Parity is of these files: a conversion does not take it along as a side file.
  ConvertOptions back = ToHf(expected);
  back.parity_group = 1;
  ASSERT_THAT(Convert(back), IsOk());
  ConvertOptions again = ToFsdp(back.target);
  again.target = dir_.path() / "third";
  ASSERT_THAT(Convert(again), IsOk());
  const auto names = ListRecursively(PosixStorage(), again.target);
  ASSERT_THAT(names, IsOk());
  for (const std::string& name : *names) {
    EXPECT_EQ(name.find("ckptkit-parity"), std::string::npos) << name;
  }
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

// A digest takes a tensor as it is published: experts transposed, columns by turns; projections each
// for itself, where the target has them in one tensor. All is read in this order, whatever the
// target needs of it.
TEST_F(ConvertTest, DigestsTheSourceWhileItIsRead) {
  for (const char* const name : {"gptoss-bf16", "gptoss-square-bf16", "qwen2-bf16"}) {
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
  const Path source = Golden("gptoss-bf16");
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
  for (const char* const name : {"gptoss-bf16", "gptoss-square-bf16"}) {
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
  for (const char* const name : {"llama-tied-fp32", "gptoss-bf16"}) {
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir_.path() / name;
    LyingStorage storage(PosixStorage());
    const auto report = Convert(storage, options);
    ASSERT_THAT(report, FailsWith(ErrorKind::kValueMismatch));
    EXPECT_THAT(report.status().first().tensor, HasSubstr("model."));
    EXPECT_EQ(PosixStorage().Stat(options.target)->type, FileType::kMissing);
    options.verify = false;
    EXPECT_THAT(Convert(storage, options), IsOk());
  }
}

// Whoever reads a tensor back, at once or for the digest.
TEST_F(ConvertTest, NoticesABitOfAnyPartOfTheResult) {
  constexpr int kParts = 40;
  for (const char* const name : {"gptoss-bf16", "qwen2-bf16"}) {
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
    constexpr std::array kStep = {std::byte{0}, std::byte{0}, std::byte{0x40}, std::byte{0x40}};
    const auto found = std::ranges::find_end(content, kStep);
    return found.empty() ? 0 : static_cast<std::size_t>(found.begin() - content.begin()) + 3;
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

// A byte of the index may change without changing what the index says; the manifest then refuses it.
TEST_F(ConvertTest, ReadsBackWhatBelongsToNoTensor) {
  ConvertOptions options = ToFsdp(Golden("gptoss-bf16"));
  LyingStorage storage(PosixStorage(), "release/.metadata");
  EXPECT_THAT(Convert(storage, options), FailsWith(ErrorKind::kValueMismatch));
}

// Notes the phases of a conversion and how much of each was done.
class PhaseLog final : public ProgressSink {
 public:
  void OnPhase(std::string_view phase, std::uint64_t bytes, std::uint64_t /*items*/) override {
    phases_.emplace_back(phase);
    totals_.push_back(bytes);
    done_.push_back(0);
  }
  void OnDone(std::string_view /*item*/, std::uint64_t bytes) override { done_.back() += bytes; }

  std::vector<std::string> phases_;
  std::vector<std::uint64_t> totals_;
  std::vector<std::uint64_t> done_;
};

TEST_F(ConvertTest, TellsEveryPhaseByItsName) {
  using ::testing::ElementsAre;
  PhaseLog there;
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.parity_group = 2;
  options.progress = &there;
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_THAT(there.phases_, ElementsAre("convert", "parity", "verify", "verify source"));
  PhaseLog back;
  ConvertOptions again = ToHf(options.target);
  again.progress = &back;
  ASSERT_THAT(Convert(again), IsOk());
  EXPECT_THAT(back.phases_, ElementsAre("check", "convert", "verify", "verify source"));
  for (const PhaseLog* log : {&there, &back}) EXPECT_EQ(log->done_, log->totals_);
}

// The room is counted before anything is written: it must be what is written in the end, but for
// the manifest.
TEST_F(ConvertTest, KnowsHowMuchRoomTheTargetTakes) {
  for (const std::size_t parity_group : {0U, 3U}) {
    ConvertOptions options = ToFsdp(Golden("qwen3moe-norm-bf16"));
    options.target = dir_.path() / fmt::format("parity-{}", parity_group);
    options.parity_group = parity_group;
    const auto prepared = PrepareConversion(PosixStorage(), options);
    ASSERT_THAT(prepared, IsOk());
    ASSERT_THAT(RunConversion(PosixStorage(), *prepared, options), IsOk());
    const auto names = ListRecursively(PosixStorage(), options.target);
    ASSERT_THAT(names, IsOk());
    std::uint64_t written = 0;
    for (const std::string& name : *names) {
      if (name.ends_with(kManifestName) || name.ends_with(kManifestCopyName)) continue;
      written += Content(options.target / name).size();
    }
    EXPECT_EQ(prepared->needed_bytes, written);
  }
}

TEST_F(ConvertTest, SaysHowMuchRoomAFullDiskLacks) {
  const Status full = Error(ErrorKind::kNoSpace, "write");
  EXPECT_EQ(HowToResume(full, "/out", 4096).first().hint,
            "/out.ckptkit-partial holds what is done: make room (the target takes 4.0 KiB in all) "
            "and run ckpt-convert again with --resume to go on, or remove it");
  EXPECT_THAT(HowToResume(full, "/out", 0).first().hint, HasSubstr("make room and run"));
  EXPECT_EQ(HowToResume(Error(ErrorKind::kChecksum, "block"), "/out", 4096).first().hint, "");
}

TEST_F(ConvertTest, SaysHowToResumeAfterAStop) {
  std::stop_source stop;
  stop.request_stop();
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.stop = stop.get_token();
  const auto stopped = Convert(options);
  ASSERT_THAT(stopped, FailsWith(ErrorKind::kCancelled));
  EXPECT_THAT(stopped.status().first().hint, HasSubstr("fsdp.ckptkit-partial"));
  EXPECT_THAT(stopped.status().first().hint, HasSubstr("--resume"));
  options.stop = {};
  options.resume = true;
  EXPECT_THAT(Convert(options), IsOk());
}

TEST_F(ConvertTest, NeverPreparesTheTargetInItsSource) {
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.target = dir_.path() / "model.ckptkit-partial";
  ASSERT_THAT(Convert(options), IsOk());
  ConvertOptions back = ToHf(options.target);
  back.target = dir_.path() / "model";
  EXPECT_THAT(Convert(back), FailsWith(ErrorKind::kUsage));
  EXPECT_TRUE(boost::filesystem::exists(options.target / "release" / "ckptkit.json"));
}

TEST_F(ConvertTest, RefusesToCompressARepository) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ConvertOptions options = ToHf(dir_.path() / "fsdp");
  options.zstd_level = 3;
  EXPECT_THAT(Convert(options), FailsWith(ErrorKind::kUsage));
}

TEST_F(ConvertTest, RefusesAnExistingTarget) {
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  boost::filesystem::create_directories(options.target);
  EXPECT_THAT(Convert(options), FailsWith(ErrorKind::kAlreadyExists));
  options.overwrite = true;
  EXPECT_THAT(Convert(options), IsOk());
}

TEST_F(ConvertTest, RefusesATargetThatWouldTakeTheSourceWithIt) {
  const Path source = dir_.path() / "models" / "llama";
  boost::filesystem::create_directories(source);
  for (const std::string name : {"config.json", "model.safetensors"}) {
    boost::filesystem::copy_file(Golden("llama-tied-fp32") / name, source / name);
  }
  boost::filesystem::create_directory_symlink(source, dir_.path() / "link");
  for (const Path& target : {source, source / ".", source / "", source.parent_path(),
                             dir_.path() / "link", source / "inside"}) {
    ConvertOptions options = ToFsdp(source);
    options.target = target;
    options.overwrite = true;
    EXPECT_THAT(PrepareConversion(PosixStorage(), options), FailsWith(ErrorKind::kUsage)) << target;
  }
}

TEST_F(ConvertTest, CastsOnRequestAndSaysSoInTheConfiguration) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.dtype = DType::kBfloat16;
  ASSERT_THAT(Convert(back), IsOk());
  const auto model = OpenModel(PosixStorage(), back.target, {});
  ASSERT_THAT(model, IsOk());
  for (const GlobalTensor& tensor : model->source().index().tensors()) {
    EXPECT_EQ(tensor.dtype, DType::kBfloat16) << tensor.key;
  }
  EXPECT_THAT(Content(back.target / "config.json"),
              ::testing::HasSubstr("\"dtype\": \"bfloat16\""));
}

TEST_F(ConvertTest, RepackingWritesACorrectIndex) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-untied-bf16"))), IsOk());
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.dtype = DType::kFloat32;
  ASSERT_THAT(Convert(back), IsOk());
  const std::string original =
      Content(Golden("llama-untied-bf16") / "model.safetensors.index.json");
  const std::string index = Content(back.target / "model.safetensors.index.json");
  EXPECT_FALSE(index.empty());
  EXPECT_NE(index, original);
}

}  // namespace
}  // namespace ckpt
