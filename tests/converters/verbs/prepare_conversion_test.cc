// What is known, and refused, before a conversion writes anything.
#include <cstddef>
#include <cstdint>
#include <string>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "converters/verbs/target_space.h"
#include "core/manifest/manifest.h"
#include "core/manifest/manifest_text.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

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

TEST_F(ConvertTest, NeverPreparesTheTargetInItsSource) {
  ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
  options.target = dir_.path() / "model.ckptkit-partial";
  ASSERT_THAT(Convert(options), IsOk());
  ConvertOptions back = ToHf(options.target);
  back.target = dir_.path() / "model";
  EXPECT_THAT(Convert(back), FailsWith(ErrorKind::kUsage));
  EXPECT_TRUE(boost::filesystem::exists(options.target / "release" / "ckptkit.json"));
}

// What is read can lie elsewhere than the path that the user names.
TEST_F(ConvertTest, ReplacesNoFileThatTheSourceLinksTo) {
  const Path data = dir_.path() / "data.safetensors";
  boost::filesystem::copy(Golden("llama-tied-fp32") / "model.safetensors", data);
  ConvertOptions linked = Between("", "hdf5", data, "linked.h5");
  linked.link = true;
  ASSERT_THAT(Convert(linked), IsOk());
  ConvertOptions options = Between("", "safetensors", linked.target, "data.safetensors");
  options.overwrite = true;
  EXPECT_THAT(Convert(options), FailsWith(ErrorKind::kUsage));
  EXPECT_TRUE(boost::filesystem::is_regular_file(data));
}

TEST_F(ConvertTest, WantsTheNameOfAFileForOne) {
  for (const char* name : {"model.h5/", "model.h5/.", "."}) {
    SCOPED_TRACE(name);
    const Status refused = Convert(Between("", "hdf5", Golden("llama-tied-fp32"), name)).status();
    EXPECT_EQ(refused.kind(), ErrorKind::kUsage);
    EXPECT_TRUE(boost::filesystem::is_empty(dir_.path()));
  }
  EXPECT_THAT(Convert(Between("", "dcp", Golden("llama-tied-fp32"), "dcp/")), IsOk());
}

TEST_F(ConvertTest, WantsAnotherNameThanThatOfAFileForADirectory) {
  const Path source = Golden("llama-tied-fp32");
  for (const char* format : {"safetensors", "hf"}) {
    SCOPED_TRACE(format);
    const Status refused = Convert(Between("", format, source, "out.safetensors")).status();
    EXPECT_EQ(refused.kind(), ErrorKind::kUsage);
    EXPECT_THAT(refused.first().message, HasSubstr("that of a file"));
    EXPECT_TRUE(boost::filesystem::is_empty(dir_.path()));
  }
  EXPECT_THAT(Convert(Between("", "safetensors", source, "out.safetensors/")), IsOk());
}

TEST_F(ConvertTest, NamesEveryDtypeThatItDoesNotConvert) {
  const Path source = dir_.path() / "model.safetensors";
  WriteSafetensors(source,
                   R"({"a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                   R"("c":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[12,13]},)"
                   R"("d":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[13,14]}})",
                   14);
  ConvertOptions options = Between("", "safetensors", source, "out");
  options.dtype = DType::kBfloat16;
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->warnings.size(), 1U);
  EXPECT_EQ(prepared->warnings[0].tensor, "a");
  EXPECT_EQ(prepared->warnings[0].message,
            "--dtype does not convert float8_e4m3fn (2 tensors), complex64 (1 tensor); these of 4 "
            "tensors keep what they have");
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

}  // namespace
}  // namespace ckpt
