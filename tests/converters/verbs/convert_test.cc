#include "converters/verbs/convert.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/model_source.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/registry.h"
#include "tests/converters/verbs/convert_fixture.h"

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

// A file of the repository's own keys says nothing of its model: what the next conversion finds out
// leads back to the form of the experts.
TEST_F(ConvertTest, ThereAndBackByAFileOfOwnKeysGivesTheSameFiles) {
  const Path source = Golden("qwen3moe-fused-bf16");
  const ConvertOptions file = Between("", "hdf5", source, "model.h5");
  ASSERT_THAT(Convert(file), IsOk());
  ConvertOptions there = Between("", "torch_dist", file.target, "core");
  there.model.assets = source;
  ASSERT_THAT(Convert(there), IsOk());
  ConvertOptions back = ToHf(there.target);
  back.model.naming = "torch_dist";
  ASSERT_THAT(Convert(back), IsOk());
  ExpectSameFiles(source, back.target);
}

// Files of safetensors may hold a model under other names: its own files and copies of tensors are
// those of the origin.
TEST_F(ConvertTest, ThereAndBackByFilesOfOtherNamesGivesTheSameFiles) {
  const Path source = Golden("deepseekv3-mtp-bf16");
  ConvertOptions there = Between("hf", "safetensors", source, "files");
  there.to.naming = "torch_dist";
  ASSERT_THAT(Convert(there), IsOk());
  ConvertOptions back = ToHf(there.target);
  back.model.naming = "torch_dist";
  back.model.assets = source;
  ASSERT_THAT(Convert(back), IsOk());
  ExpectSameFiles(source, back.target);
}

// Whole models or single layers are compiled or wrapped, and whoever saves `state_dict()` has it in
// the keys.
TEST_F(ConvertTest, WrappersOfPyTorchAreNoPartOfANameOfTheModel) {
  const Path source = Golden("llama-tied-fp32");
  const std::string layers = "model.layers.*.*";
  int run = 0;
  for (const auto& [names, wrapped] : std::vector<std::pair<std::string, std::string>>{
           {"*", "_orig_mod.*"},
           {layers, "model.layers.*._orig_mod.*"},
           {layers, "_fsdp_wrapped_module.model.layers.*._checkpoint_wrapped_module.*"}}) {
    SCOPED_TRACE(wrapped);
    ConvertOptions wrap = Between("", "safetensors", source, std::to_string(run++));
    wrap.model.rename = {{names, wrapped}};
    ASSERT_THAT(Convert(wrap), IsOk());
    // They are kept where keys are.
    const auto opened = OpenCheckpoint(PosixStorage(), wrap.target);
    ASSERT_THAT(opened, IsOk());
    EXPECT_TRUE(std::ranges::any_of(opened->source->index().tensors(), [](const auto& tensor) {
      return tensor.key.find("_orig_mod.") != tensor.key.npos ||
             tensor.key.find("_wrapped_module.") != tensor.key.npos;
    }));
    ConvertOptions there = ToFsdp(wrap.target);
    there.target = dir_.path() / std::to_string(run++);
    there.model.assets = source;
    ASSERT_THAT(Convert(there), IsOk());
    EXPECT_EQ(DigestAsHf(there.target), DigestAsHf(source));
  }
}

// Whoever completes it once more is not told to run the workers.
TEST_F(ConvertTest, WhatWorkersWroteIsCompletedOnce) {
  for (const std::string form : {"fsdp_dtensor", "fsdp_dtensor compressed", "hdf5", "torch_save"}) {
    SCOPED_TRACE(form);
    const std::string container = form.substr(0, form.find(' '));
    ConvertOptions options = Between("hf", container, Golden("llama-tied-fp32"), form);
    if (container != form) options.zstd_level = 3;
    options.finalize = true;
    const auto too_early = Convert(options);
    ASSERT_THAT(too_early, FailsWith(ErrorKind::kMissing));
    EXPECT_THAT(too_early.status().first().hint, ::testing::HasSubstr("--worker"));
    options.finalize = false;
    options.worker = WorkerId{.number = 0, .count = 1};
    ASSERT_THAT(Convert(options), IsOk());
    options.worker.reset();
    options.finalize = true;
    ASSERT_THAT(Convert(options), IsOk());
    const auto again = Convert(options);
    ASSERT_THAT(again, FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_THAT(again.status().first().message, ::testing::HasSubstr("complete already"));
  }
}

// "out/" and "out" are one target: whoever completes it looks beside it.
TEST_F(ConvertTest, WorkersWriteBesideATargetWithASlash) {
  const Path target = dir_.path() / "out";
  ConvertOptions options = Between("hf", "fsdp_dtensor", Golden("llama-tied-fp32"), "out/");
  options.worker = WorkerId{.number = 0, .count = 1};
  ASSERT_THAT(Convert(options), IsOk());
  const auto type_of = [](const Path& path) { return PosixStorage().Stat(path).value().type; };
  EXPECT_EQ(type_of(target), FileType::kMissing);
  EXPECT_EQ(type_of(target.string() + ".ckptkit-partial"), FileType::kDirectory);
  options.worker.reset();
  options.finalize = true;
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_EQ(DigestAsHf(target), DigestAsHf(Golden("llama-tied-fp32")));
  EXPECT_EQ(type_of(target.string() + ".ckptkit-partial"), FileType::kMissing);
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
