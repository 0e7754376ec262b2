#include "converters/verbs/convert.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "converters/config/model_settings.h"
#include "converters/config/run_settings.h"
#include "converters/verbs/target_space.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/stored_run.h"
#include "formats/safetensors/header.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

// The same repository file, with one bfloat16 tensor turned into a float8 one of as many elements.
void WriteWithFloat8(const std::string& file, const std::string& name, const Path& path) {
  const auto header_bytes = LoadLe<std::uint64_t>(AsBytes(file).data());
  auto header = safetensors::ParseHeader(std::string_view(file).substr(8, header_bytes),
                                         file.size() - 8 - header_bytes, "f");
  ASSERT_THAT(header, IsOk());
  std::ranges::sort(header->tensors, {}, &safetensors::TensorEntry::begin);
  std::string payload;
  for (safetensors::TensorEntry& entry : header->tensors) {
    const bool is_it = entry.name == name;
    const std::uint64_t size = (entry.end - entry.begin) / (is_it ? 2 : 1);
    if (is_it) entry.dtype = safetensors::StoredDType::kF8E4M3;
    const std::uint64_t begin = payload.size();
    payload += file.substr(8 + header_bytes + entry.begin, size);
    entry.begin = begin;
    entry.end = begin + size;
  }
  const Bytes fresh = safetensors::SerializeHeader(header->metadata, header->tensors);
  std::ofstream(path.string(), std::ios::binary) << AsText(fresh) << payload;
}

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

TEST_F(ConvertTest, TheManifestProvesEveryFileOfTheResult) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  const Path release = dir_.path() / "fsdp" / "release";
  const auto manifest = ParseManifest(Content(release / "ckptkit.json"), "ckptkit.json");
  ASSERT_THAT(manifest, IsOk());
  std::vector<std::string> covered;
  for (const ManifestFile& file : manifest->files) covered.push_back(file.name);
  EXPECT_THAT(covered, ::testing::IsSupersetOf({"../latest_checkpointed_iteration.txt", ".metadata",
                                                "__0_0.distcp", "hf_assets/config.json"}));
  const auto problems = VerifyManifest(PosixStorage(), release, *manifest);
  ASSERT_THAT(problems, IsOk());
  EXPECT_TRUE(problems->empty());
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
  const auto problems = VerifyManifest(PosixStorage(), expected / "release", *manifest);
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

// The staging directory is emptied when it is opened.
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
  EXPECT_EQ(HowToGoOn(full, "/out", 4096).first().hint,
            "/out.ckptkit-partial holds what is done: make room (the target takes 4.0 KiB in all) "
            "and run ckpt-convert again with --resume to go on, or remove it");
  EXPECT_THAT(HowToGoOn(full, "/out", 0).first().hint, HasSubstr("make room and run"));
  EXPECT_EQ(HowToGoOn(Error(ErrorKind::kChecksum, "block"), "/out", 4096).first().hint, "");
}

TEST_F(ConvertTest, SaysHowToGoOnAfterAStop) {
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

// Arguments and progress of a run have no place in a repository, and nobody misses them there.
TEST_F(ConvertTest, KnowsWhatOfTheLeftOutNobodyMisses) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ConvertOptions options = ToHf(dir_.path() / "fsdp");
  options.model.drop = {"*layers.1.*"};
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  std::set<std::string> bookkeeping;
  for (const LeftOutEntry& entry : report->dropped) {
    if (entry.is_bookkeeping) bookkeeping.insert(entry.key);
    EXPECT_EQ(entry.is_bookkeeping, entry.why != "left out on request") << entry.key;
  }
  EXPECT_TRUE(bookkeeping.contains("args"));
  EXPECT_LT(bookkeeping.size(), report->dropped.size());
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

// One setting that is wrong is one error, whichever tensors it makes too many or too few.
TEST_F(ConvertTest, NamesTheSettingThatContradictsTheTensors) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "model.safetensors",
                               source / "model.safetensors");
  std::string config = Content(Golden("llama-tied-fp32") / "config.json");
  const std::string layers = "\"num_hidden_layers\": 2";
  ASSERT_NE(config.find(layers), std::string::npos);
  config.replace(config.find(layers), layers.size(), "\"num_hidden_layers\": 3");
  std::ofstream((source / "config.json").string()) << config;
  const auto prepared = PrepareConversion(PosixStorage(), ToFsdp(source));
  ASSERT_THAT(prepared, FailsWith(ErrorKind::kMissing));
  ASSERT_EQ(prepared.status().problems().size(), 1U);
  const Problem& wrong = prepared.status().first();
  EXPECT_THAT(wrong.message, HasSubstr("num_hidden_layers"));
  EXPECT_THAT(wrong.expected, HasSubstr("2, or 9 more tensors"));  // a Llama layer has nine
  EXPECT_EQ(wrong.actual, "3");

  config.replace(config.find("\"num_hidden_layers\": 3"), layers.size(), layers);
  const std::string biases = "\"attention_bias\": false";
  ASSERT_NE(config.find(biases), std::string::npos);
  config.replace(config.find(biases), biases.size(), "\"attention_bias\": true");
  std::ofstream((source / "config.json").string()) << config;
  const auto biased = PrepareConversion(PosixStorage(), ToFsdp(source));
  ASSERT_THAT(biased, FailsWith(ErrorKind::kMissing));
  ASSERT_EQ(biased.status().problems().size(), 1U);
  EXPECT_THAT(biased.status().first().message, HasSubstr("attention_bias"));
  EXPECT_THAT(biased.status().first().expected, HasSubstr("false, or 8 more tensors"));
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

// A pattern that is mistyped would be obeyed by doing nothing.
TEST_F(ConvertTest, RefusesPatternsThatMatchNothing) {
  const auto fails = [&](const auto& set) {
    ConvertOptions options = ToFsdp(Golden("llama-tied-fp32"));
    set(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    EXPECT_THAT(prepared, FailsWith(ErrorKind::kUsage));
    return prepared.ok() ? Problem() : prepared.status().first();
  };
  const std::string mistyped = "model.norm.wieght";
  const Problem drop = fails([&](ConvertOptions& o) { o.model.drop = {"*layers.1*", mistyped}; });
  EXPECT_EQ(drop.message, "--drop matches no key");
  EXPECT_EQ(drop.actual, "\"model.norm.wieght\"");
  EXPECT_EQ(drop.hint, "did you mean \"model.norm.weight\"?");
  EXPECT_EQ(fails([&](ConvertOptions& o) {
              o.model.only = {"*", mistyped};
            }).message,
            "--only matches no key");
  EXPECT_EQ(fails([&](ConvertOptions& o) { o.model.only = {""}; }).actual, "\"\"");
  const Problem left = fails([&](ConvertOptions& o) {
    o.model.only = {"*layers.[0]*"};
    o.model.drop = {"*layers.0.mlp*", "*layers.1.mlp*"};
  });
  EXPECT_EQ(left.message, "--drop removes nothing that --only chooses");
  EXPECT_EQ(left.actual, "\"*layers.1.mlp*\"");
  const Problem keep = fails([&](ConvertOptions& o) {
    o.dtype = DType::kBfloat16;
    o.keep_fp32 = "ruoter";
  });
  EXPECT_EQ(keep.message, "--keep-fp32 matches no float32 tensor of the target");
  EXPECT_EQ(keep.actual, "\"ruoter\"");
}

TEST_F(ConvertTest, ArgsTellTheTargetsDtype) {
  struct Case {
    std::optional<DType> dtype;
    bool fp16;
    bool bf16;
  };
  for (const Case& c : {Case{std::nullopt, true, false}, Case{DType::kBfloat16, false, true},
                        Case{DType::kFloat32, false, false}}) {
    const testing::TempDir dir;
    ConvertOptions options = ToFsdp(Golden("llama-bias-fp16"));
    options.target = dir.path() / "fsdp";
    options.dtype = c.dtype;
    ASSERT_THAT(Convert(options), IsOk());
    const auto model = OpenModel(PosixStorage(), options.target, {});
    ASSERT_THAT(model, IsOk());
    const auto args = ReadRunArgs(*model->checkpoint);
    ASSERT_THAT(args, IsOk());
    EXPECT_EQ(args->at("fp16"), layout::Value(c.fp16));
    EXPECT_EQ(args->at("bf16"), layout::Value(c.bf16));
  }
}

// Through the file and back: the trainer finds the model that config.json describes.
TEST_F(ConvertTest, ArgsDescribeTheModelOfTheSource) {
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const auto source = OpenModel(PosixStorage(), Golden(name), {});
    if (!source.ok()) continue;  // of no family here
    const auto settings = ModelSettings(source->config);
    if (!settings.ok()) continue;
    const testing::TempDir dir;
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir.path() / "fsdp";
    ASSERT_THAT(Convert(options), IsOk());
    const auto model = OpenModel(PosixStorage(), options.target, {});
    ASSERT_THAT(model, IsOk());
    const auto args = ReadRunArgs(*model->checkpoint);
    ASSERT_THAT(args, IsOk());
    const auto stored = StoredModelSettings(*args);
    ASSERT_THAT(stored, IsOk());
    for (const auto& [setting, value] : *settings) {
      ASSERT_TRUE(stored->contains(setting)) << setting;
      EXPECT_EQ(stored->at(setting), value) << setting;
    }
  }
}

// Another grouping of the heads has the same tensor shapes: only the run's arguments tell it apart.
TEST_F(ConvertTest, RefusesAConfigurationThatContradictsTheRun) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-untied-bf16"))), IsOk());
  const Path release = dir_.path() / "fsdp" / "release";
  std::string config = Content(release / "hf_assets" / "config.json");
  const auto replace = [&config](const std::string& from, const std::string& to) {
    ASSERT_NE(config.find(from), std::string::npos) << from;
    config.replace(config.find(from), from.size(), to);
  };
  replace("\"num_attention_heads\": 6", "\"num_attention_heads\": 3");
  const Path assets = dir_.path() / "assets";
  boost::filesystem::create_directories(assets);
  std::ofstream((assets / "config.json").string()) << config;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.model.assets = assets;
  EXPECT_THAT(PrepareConversion(PosixStorage(), back), FailsWith(ErrorKind::kValueMismatch));
}

// Weights alone do not tell: what the run computed with them, its arguments say.
TEST_F(ConvertTest, WarnsOfAConfigurationThatComputesSomethingElseThanTheRun) {
  ASSERT_THAT(Convert(ToFsdp(Golden("qwen2-window-fp32"))), IsOk());
  std::string config = Content(Golden("qwen2-window-fp32") / "config.json");
  const std::string key = "\"sliding_window\": ";
  ASSERT_NE(config.find(key), std::string::npos);
  config.insert(config.find(key) + key.size(), "1");
  const Path assets = dir_.path() / "assets";
  boost::filesystem::create_directories(assets);
  std::ofstream((assets / "config.json").string()) << config;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.model.assets = assets;
  const auto prepared = PrepareConversion(PosixStorage(), back);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->warnings.size(), 1U);
  EXPECT_EQ(prepared->warnings[0].message, "config.json means another window_size than the run's");
  EXPECT_EQ(prepared->warnings[0].file, (assets / "config.json").string());
}

// Rows behind the vocabulary are zeros where a conversion added them. Training may have used them.
TEST_F(ConvertTest, SaysWhichPaddingOfTheVocabularyIsNotZero) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  for (const std::string name : {"config.json", "model.safetensors"}) {
    boost::filesystem::copy_file(Golden("llama-tied-fp32") / name, source / name);
  }
  std::string config = Content(source / "config.json");
  config.insert(config.find("\"vocab_size\""), "\"padded_vocab_size\": 160, ");
  std::ofstream((source / "config.json").string()) << config;
  ASSERT_THAT(Convert(ToFsdp(source)), IsOk());

  const Path release = dir_.path() / "fsdp" / "release";
  boost::filesystem::remove(release / "ckptkit.json");
  const auto clean = Convert(ToHf(dir_.path() / "fsdp"));
  ASSERT_THAT(clean, IsOk());
  EXPECT_THAT(clean->warnings, ::testing::IsEmpty());

  const auto model = OpenModel(PosixStorage(), release, {});
  ASSERT_THAT(model, IsOk());
  const CheckpointIndex& index = model->source().index();
  const std::string key = "model.module.embedding.word_embeddings.weight";
  const GlobalTensor* embedding = index.FindTensor(key);
  ASSERT_NE(embedding, nullptr);
  ASSERT_EQ(embedding->shape[0], 160);
  const auto array = model->source().Locate(*embedding, index.chunks(*embedding)[0]);
  ASSERT_THAT(array, IsOk());
  const auto row_bytes = static_cast<std::uint64_t>(embedding->shape[1]) * sizeof(float);
  // The last element becomes 1, and the checksum of its record that of the new bytes.
  std::string data = Content(release / "__0_0.distcp");
  const auto checksum = [&] {
    Bytes crc;
    AppendLe(Crc32(AsBytes(data).subspan(array->offset_bytes, 160 * row_bytes)), crc);
    return std::string(AsText(crc));
  };
  const std::string before = checksum();
  data.replace(array->offset_bytes + 160 * row_bytes - 4, 4, std::string("\0\0\x80\x3f", 4));
  const std::string after = checksum();
  for (std::size_t at = 0; (at = data.find(before, at)) != std::string::npos; at += 4) {
    data.replace(at, 4, after);
  }
  std::ofstream((release / "__0_0.distcp").string(), std::ios::binary) << data;
  ConvertOptions back = ToHf(dir_.path() / "fsdp");
  back.target = dir_.path() / "again";
  const auto used = Convert(back);
  ASSERT_THAT(used, IsOk());
  ASSERT_EQ(used->warnings.size(), 1U);
  EXPECT_EQ(used->warnings[0].tensor, key);
  const auto entry = std::find_if(used->dropped.begin(), used->dropped.end(),
                                  [&](const LeftOutEntry& dropped) { return dropped.key == key; });
  ASSERT_NE(entry, used->dropped.end());
  EXPECT_EQ(entry->bytes, 16 * row_bytes);
  ExpectSameFiles(dir_.path() / "hf", back.target);
}

TEST_F(ConvertTest, RefusesASourceThatItsOwnManifestProvesDamaged) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  const Path weights = dir_.path() / "hf" / "model.safetensors";
  {
    std::fstream file(weights.string(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);
    file.write("damage", 6);
  }
  ConvertOptions again = ToFsdp(dir_.path() / "hf");
  again.target = dir_.path() / "again";
  EXPECT_THAT(Convert(again), FailsWith(ErrorKind::kChecksum));
  EXPECT_FALSE(boost::filesystem::exists(again.target));
}

TEST_F(ConvertTest, RefusesASingleFileThatTheManifestBesideItProvesDamaged) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  const Path weights = dir_.path() / "hf" / "model.safetensors";
  ConvertOptions again = ToFsdp(weights);
  again.target = dir_.path() / "again";
  again.overwrite = true;
  EXPECT_THAT(Convert(again), IsOk());
  {
    std::fstream file(weights.string(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);
    file.write("damage", 6);
  }
  EXPECT_THAT(Convert(again), FailsWith(ErrorKind::kChecksum));
}

TEST_F(ConvertTest, TellsWhatAReaderOfTheSourceIsWarnedOf) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  const Path stranger = dir_.path() / "fsdp" / "release" / "__7_0.distcp";
  std::ofstream(stranger.string()) << "of an earlier save";
  const auto report = Convert(ToHf(dir_.path() / "fsdp"));
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0].kind, ErrorKind::kLeftover);
  EXPECT_EQ(report->warnings[0].file, stranger.string());
}

TEST_F(ConvertTest, TellsWhichTypeIsNotConverted) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("qwen2-bf16") / "config.json", source / "config.json");
  const std::string name = "model.norm.weight";
  WriteWithFloat8(Content(Golden("qwen2-bf16") / "model.safetensors"), name,
                  source / "model.safetensors");
  ConvertOptions options = ToFsdp(source);
  options.dtype = DType::kFloat32;
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_EQ(report->warnings[0].kind, ErrorKind::kUnsupported);
  EXPECT_THAT(report->warnings[0].tensor, ::testing::HasSubstr("norm"));
  options.dtype = std::nullopt;
  options.overwrite = true;
  const auto as_stored = Convert(options);
  ASSERT_THAT(as_stored, IsOk());
  EXPECT_THAT(as_stored->warnings, ::testing::IsEmpty());
}

TEST_F(ConvertTest, RefusesATiedHeadWithOtherValues) {
  // An untied model whose configuration says that it is tied.
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  const auto names = ListRecursively(PosixStorage(), Golden("qwen2-bf16"));
  ASSERT_THAT(names, IsOk());
  for (const std::string& name : *names) {
    boost::filesystem::copy_file(Golden("qwen2-bf16") / name, source / name);
  }
  std::string config = Content(source / "config.json");
  const std::string untied = "\"tie_word_embeddings\": false";
  ASSERT_NE(config.find(untied), std::string::npos);
  config.replace(config.find(untied), untied.size(), "\"tie_word_embeddings\": true");
  std::ofstream((source / "config.json").string()) << config;
  ConvertOptions options = ToFsdp(source);
  options.verify = false;
  EXPECT_THAT(Convert(options), FailsWith(ErrorKind::kValueMismatch));
}

TEST_F(ConvertTest, PackingAnewWritesAnIndexThatTellsTheTruth) {
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

// Old repositories store rotary frequencies, which every reader computes: they are left out, and
// the way back still gives the origin's files, less these.
TEST_F(ConvertTest, LeavesOutConstantsAndKeepsTheOrderOfTheRest) {
  const Path source = dir_.path() / "source";
  boost::filesystem::create_directories(source);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "config.json", source / "config.json");
  const auto file = PosixStorage().Open(Golden("llama-tied-fp32") / "model.safetensors");
  ASSERT_THAT(file, IsOk());
  const auto header = safetensors::ReadHeader(**file);
  ASSERT_THAT(header, IsOk());
  Bytes payload((*file)->size_bytes() - header->payload_offset);
  ASSERT_THAT((*file)->ReadAt(header->payload_offset, payload), IsOk());
  std::vector<safetensors::TensorEntry> tensors = header->tensors;
  tensors.push_back({.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                     .dtype = safetensors::StoredDType::kF32,
                     .shape = {4},
                     .begin = payload.size(),
                     .end = payload.size() + 16});
  payload.resize(payload.size() + 16);
  Bytes content = safetensors::SerializeHeader(header->metadata, tensors);
  Append(payload, content);
  ASSERT_THAT(WriteSmallFile(PosixStorage(), source / "model.safetensors", content), IsOk());

  const auto there = Convert(ToFsdp(source));
  ASSERT_THAT(there, IsOk());
  ASSERT_EQ(there->dropped.size(), 1U);
  EXPECT_EQ(there->dropped[0].key, tensors.back().name);
  ASSERT_THAT(Convert(ToHf(dir_.path() / "fsdp")), IsOk());
  EXPECT_EQ(Content(dir_.path() / "hf" / "model.safetensors"),
            Content(Golden("llama-tied-fp32") / "model.safetensors"));
}

}  // namespace
}  // namespace ckpt
