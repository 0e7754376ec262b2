// `ckpt-inspect diff` on converted checkpoints, of which single bits are flipped.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "core/checkpoint/read.h"
#include "core/json/json_writer.h"
#include "core/tensor/cast.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/formats/mp_rank/run_files.h"
#include "tests/reliability/small_foreign.h"
#include "tests/tools/ckpt-inspect/diff_answer.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::ConvertTest;
using ::ckpt::testing::FailsWith;
using ::ckpt::testing::GoldenDir;
using ::ckpt::testing::IsOk;
using ::testing::HasSubstr;

// What the golden model is converted into.
struct Form {
  const char* container = "";
  const char* naming = "";
  int files = 0;
  bool is_linked = false;
  std::optional<int> zstd_level = {};
};

std::string NameOf(const Form& form) {
  return fmt::format("{}{}{}{}{}", form.container, form.naming, form.files,
                     form.is_linked ? "linked" : "", form.zstd_level ? "zstd" : "");
}

class DiffTest : public ConvertTest {
 protected:
  // The golden model in a container. A link shows a copy of it that lies beside.
  [[nodiscard]] Path Converted(const Form& form, const std::string& folder = "out") const {
    const Path directory = dir_.path() / folder;
    const std::string name = NameOf(form);
    Path source = Golden("qwen3moe-norm-bf16");
    boost::filesystem::create_directories(directory);
    if (form.is_linked) {
      boost::filesystem::copy(source, directory / "source",
                              boost::filesystem::copy_options::recursive);
      source = directory / "source";
    }
    ConvertOptions options = Between("hf", form.container, source, folder + "/" + name);
    options.to.naming = form.naming;
    options.files = form.files;
    options.link = form.is_linked;
    options.zstd_level = form.zstd_level;
    EXPECT_THAT(Convert(options), IsOk()) << name;
    return options.target;
  }
};

constexpr int kNumFlips = 5;
constexpr Form kForms[] = {
    {.container = "hf"},
    {.container = "fsdp_dtensor"},
    {.container = "torch_dist"},
    {.container = "dcp"},
    {.container = "dcp", .naming = "fsdp2"},
    {.container = "safetensors", .naming = "torch_dist"},
    {.container = "safetensors", .naming = "fsdp_dtensor"},
    {.container = "safetensors", .naming = "fsdp2"},
    {.container = "hdf5"},
    {.container = "hdf5", .naming = "torch_dist"},
    {.container = "hdf5", .files = 3},
    {.container = "hdf5", .is_linked = true},
    {.container = "torch_save"},
    {.container = "torch_save", .naming = "torch_dist"},
};
constexpr Form kCompressedForms[] = {
    {.container = "fsdp_dtensor", .zstd_level = 3},
    {.container = "torch_dist", .zstd_level = 3},
    {.container = "dcp", .naming = "fsdp2", .zstd_level = 3},
    {.container = "hdf5", .zstd_level = 3},
};

TEST_F(DiffTest, AModelIsEqualInEveryContainer) {
  const Path source = Golden("qwen3moe-norm-bf16");
  for (const Form& form : kForms) {
    SCOPED_TRACE(NameOf(form));
    const Path converted = Converted(form, NameOf(form));
    for (const auto& [a, b] : {std::pair(source, converted), std::pair(converted, source)}) {
      const Answer answer = Diff(a, b);
      EXPECT_TRUE(answer.equal) << answer.text;
      EXPECT_GT(answer.tensors, 0);
      EXPECT_EQ(answer.problems, 0U);
    }
  }
}

TEST_F(DiffTest, FindsOneFlippedBitInEveryContainer) {
  const Path source = Golden("qwen3moe-norm-bf16");
  for (const Form& form : kForms) {
    const Path whole = Converted(form, NameOf(form));
    const Path flipped = Converted(form, NameOf(form) + ".flipped");
    const auto opened = OpenCheckpoint(PosixStorage(), flipped);
    ASSERT_THAT(opened, IsOk());
    const std::size_t num_tensors = opened->source->index().tensors().size();
    for (std::size_t flip = 0; flip < kNumFlips; ++flip) {
      const auto place = PlaceIn(flipped, flip * (num_tensors - 1) / (kNumFlips - 1));
      ASSERT_THAT(place, IsOk());
      SCOPED_TRACE(fmt::format("{}: {} at {}", NameOf(form), place->key, FormatDims(place->index)));
      FlipBit(place->file, place->offset, static_cast<int>(flip));

      const Answer stored = Diff(whole, flipped);
      EXPECT_FALSE(stored.equal);
      EXPECT_EQ(stored.compared, "as stored");
      ASSERT_EQ(stored.different.size(), 1U) << stored.text;
      EXPECT_EQ(stored.different[0].key, place->key);
      EXPECT_EQ(stored.different[0].first_index, place->index);
      EXPECT_EQ(stored.different[0].differing, 1);

      // The same under the names of the source.
      const Answer model = Diff(source, flipped);
      EXPECT_FALSE(model.equal);
      ASSERT_EQ(model.different.size(), 1U) << model.text;
      EXPECT_EQ(model.different[0].differing, 1);
      EXPECT_EQ(model.different[0].bits_a, stored.different[0].bits_a);
      EXPECT_EQ(model.different[0].bits_b, stored.different[0].bits_b);
      EXPECT_TRUE(model.only_a.empty());
      EXPECT_TRUE(model.only_b.empty());
      FlipBit(place->file, place->offset, static_cast<int>(flip));
    }
    EXPECT_TRUE(Diff(whole, flipped).equal);
  }
}

// A bit of compressed bytes is not a bit of an element. The tensor is named, whether its bytes can
// still be unpacked or not.
TEST_F(DiffTest, NamesTheTensorOfOneFlippedBitInCompressedBytes) {
  for (const Form& form : kCompressedForms) {
    SCOPED_TRACE(NameOf(form));
    const Path whole = Converted(form, NameOf(form));
    const Path flipped = Converted(form, NameOf(form) + ".flipped");
    const auto opened = OpenCheckpoint(PosixStorage(), flipped);
    ASSERT_THAT(opened, IsOk());
    const CheckpointIndex& index = opened->source->index();
    const Path directory =
        boost::filesystem::is_directory(opened->path) ? opened->path : flipped.parent_path();
    for (std::size_t flip = 0; flip < kNumFlips; ++flip) {
      const GlobalTensor& tensor =
          index.tensors()[flip * (index.tensors().size() - 1) / (kNumFlips - 1)];
      const Chunk& chunk = index.chunks(tensor).back();
      const Path file = directory / index.files()[chunk.file];
      const std::uint64_t middle = chunk.offset_bytes + chunk.size_bytes / 2;
      FlipBit(file, middle, static_cast<int>(flip));
      const Answer answer = Diff(whole, flipped);
      EXPECT_FALSE(answer.equal);
      ASSERT_EQ(answer.different.size(), 1U) << answer.text;
      EXPECT_EQ(answer.different[0].key, tensor.key);
      FlipBit(file, middle, static_cast<int>(flip));
    }
    EXPECT_TRUE(Diff(whole, flipped).equal);
  }
}

TEST_F(DiffTest, KeysAndIndicesAreThoseOfA) {
  const Path source = Golden("qwen3moe-norm-bf16");
  const Path converted = Converted({.container = "dcp", .naming = "fsdp2"});
  const auto place = PlaceIn(converted, 7);
  ASSERT_THAT(place, IsOk());
  FlipBit(place->file, place->offset, 6);
  const Answer answer = Diff(converted, source);
  EXPECT_EQ(answer.compared, "as models");
  ASSERT_EQ(answer.different.size(), 1U) << answer.text;
  EXPECT_EQ(answer.different[0].key, place->key);
  EXPECT_EQ(answer.different[0].first_index, place->index);
}

// What the manifest says is damaged is reported, and compared all the same.
TEST_F(DiffTest, AChecksumThatDoesNotMatchIsReported) {
  const Path whole = Converted({.container = "fsdp_dtensor"});
  const auto place = PlaceIn(whole, 0);
  ASSERT_THAT(place, IsOk());
  FlipBit(place->file, place->offset, 0);
  const Answer answer = Diff(whole, Golden("qwen3moe-norm-bf16"));
  EXPECT_EQ(answer.problems, 1U);
  EXPECT_THAT(answer.text, HasSubstr("\"kind\": \"checksum\""));
  EXPECT_EQ(answer.different.size(), 1U);
}

// Of what other programs wrote, whole files and directories.
TEST_F(DiffTest, FindsOneFlippedBitInForeignCheckpoints) {
  const Path golden = GoldenDir();
  const Path own = Path(CKPT_SOURCE_DIR) / "tests/golden";
  ASSERT_THAT(testing::WriteSmallZarr(PosixStorage(), dir_.path() / "zarr"), IsOk());
  for (const Path& original :
       {own / "verl/torch_2.15", own / "verl/optimizer", own / "mp_rank/tp2_pp2",
        dir_.path() / "zarr", golden / "dcp/nested/ckpt", golden / "dcp/sharded/ckpt",
        golden / "dcp/pt_training/ckpt", golden / "dcp/pt_legacy/ckpt",
        golden / "dcp/hf_plain/ckpt", golden / "torch_dist/dense_dp2_async_core019/ckpt",
        golden / "fsdp_dtensor/moe_ep2_fsdp4/ckpt", own / "dcp/no_collectives/ckpt"}) {
    SCOPED_TRACE(original.string());
    const Path copy = dir_.path() / "copy";
    boost::filesystem::remove_all(copy);
    boost::filesystem::copy(original, copy, boost::filesystem::copy_options::recursive);
    const auto opened = OpenCheckpoint(PosixStorage(), copy);
    ASSERT_THAT(opened, IsOk());
    const CheckpointIndex& index = opened->source->index();
    const auto tensors = index.tensors();
    const auto large = std::ranges::max_element(
        tensors, {}, [](const GlobalTensor& tensor) { return NumElements(tensor.shape); });
    const auto copied = std::ranges::max_element(
        tensors, {}, [&](const GlobalTensor& tensor) { return index.NumCopies(tensor); });
    for (const auto tensor : {large, copied}) {
      const auto place = PlaceIn(copy, static_cast<std::size_t>(tensor - tensors.begin()));
      ASSERT_THAT(place, IsOk());
      FlipBit(place->file, place->offset, 1);
      const Answer answer = Diff(original, copy);
      const std::size_t copies = index.NumCopies(*tensor);
      if (copies > 1) {
        cli::StringOutput out;
        cli::Streams streams{.out = out, .err = out};
        EXPECT_EQ(RunInspect({"verify", copy.string()}, PosixStorage(), streams),
                  ExitCode::kDifferent);
      }
      FlipBit(place->file, place->offset, 1);
      const std::string key =
          copies > 1 ? fmt::format("{} (copy {})", place->key, copies) : place->key;
      // Several tensors of a torch.save file may show the same bytes.
      const auto found = std::ranges::find(answer.different, key, &Entry::key);
      ASSERT_NE(found, answer.different.end()) << answer.text;
      EXPECT_EQ(found->what, "values");
      EXPECT_EQ(found->first_index, place->index);
      EXPECT_EQ(found->differing, 1);
      EXPECT_THAT(answer.text, HasSubstr("\"file\": \"" +
                                         index.files()[index.chunks(*tensor).back().file] + '"'));
    }
  }
}

// Values, too, that were saved so, with their checksums.
TEST_F(DiffTest, ComparesCopiesOfRanks) {
  const Path own = Path(CKPT_SOURCE_DIR) / "tests/golden";
  const Path ranks = own / "mp_rank/tp2_pp2";
  const ConvertOptions options = Between("mp_rank", "fsdp_dtensor", ranks, "fsdp");
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_TRUE(Diff(options.target, ranks).equal);
  const Path mixed = dir_.path() / "mixed";
  boost::filesystem::copy(own / "verl/torch_2.15", mixed);
  boost::filesystem::copy_file(own / "verl/other/model_world_size_4_rank_3.pt",
                               mixed / "model_world_size_4_rank_3.pt",
                               boost::filesystem::copy_options::overwrite_existing);
  const Answer answer = Diff(own / "verl/torch_2.15", mixed);
  for (const Entry& entry : answer.different) EXPECT_EQ(entry.what, "values") << entry.key;
  EXPECT_THAT(answer.text, HasSubstr("\"model.replica (copy 4)\""));
  // A pattern is one of tensors, and takes all of their copies.
  cli::StringOutput out;
  cli::Streams streams{.out = out, .err = out};
  EXPECT_EQ(RunInspect({"diff", (own / "verl/torch_2.15").string(), mixed.string(), "--match",
                        "model.replica"},
                       PosixStorage(), streams),
            ExitCode::kDifferent);
  EXPECT_THAT(out.text(), HasSubstr("different: 1 tensor compared"));
}

// Objects that were saved so; a bit that flips later is met by the checksums of the files.
TEST_F(DiffTest, ComparesObjectsOfRanks) {
  const auto write = [&](const std::string& name, std::int64_t samples) {
    for (int rank = 0; rank < 2; ++rank) {
      const Path directory = dir_.path() / name / fmt::format("mp_rank_{:02}", rank);
      boost::filesystem::create_directories(directory);
      const Bytes file =
          mp_rank::EncodeRunFile(mp_rank::ParametersOfRank(rank),
                                 {.is_distributed = false, .samples = rank == 0 ? 56 : samples});
      EXPECT_THAT(WriteSmallFile(PosixStorage(), directory / "model_optim_rng.pt", file), IsOk());
    }
    return dir_.path() / name;
  };
  const std::string copy = "\"common_state (copy 2)\"";
  const Path whole = write("whole", 56);
  EXPECT_THAT(Diff(whole, write("same", 56)).text, ::testing::Not(HasSubstr(copy)));
  EXPECT_THAT(Diff(whole, write("other", 57)).text, HasSubstr(copy));

  const Path flipped = write("flipped", 56) / "mp_rank_01/model_optim_rng.pt";
  const std::size_t name = testing::Content(flipped).find("consumed_train_samples");
  ASSERT_NE(name, std::string::npos);
  FlipBit(flipped, name + 24, 0);
  const auto opened = OpenCheckpoint(PosixStorage(), dir_.path() / "flipped");
  ASSERT_THAT(opened, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(opened.status().first().file.find(flipped.string()), 0U);
}

// Bytes that cannot be unpacked have no values: the tensor is named, and the others are compared.
TEST_F(DiffTest, NamesATensorThatCannotBeRead) {
  const Path original = GoldenDir() / "dcp/zstd/ckpt";
  const Path copy = dir_.path() / "copy";
  boost::filesystem::copy(original, copy, boost::filesystem::copy_options::recursive);
  const auto opened = OpenCheckpoint(PosixStorage(), copy);
  ASSERT_THAT(opened, IsOk());
  const CheckpointIndex& index = opened->source->index();
  const GlobalTensor& tensor = index.tensors().front();
  const Chunk& chunk = index.chunks(tensor).front();
  FlipBit(copy / index.files()[chunk.file], chunk.offset_bytes + chunk.size_bytes / 2, 4);
  const Answer answer = Diff(original, copy);
  ASSERT_EQ(answer.different.size(), 1U) << answer.text;
  EXPECT_EQ(answer.different[0].key, tensor.key);
  EXPECT_EQ(answer.different[0].what, "unreadable");
  EXPECT_EQ(answer.problems, 1U) << answer.text;
}

// Real PyTorch stores a CRC-32 beside each tensor, and no manifest.
TEST_F(DiffTest, ReadsOnBehindAChecksumOfTheFormat) {
  const Path golden = GoldenDir() / "dcp";
  const Answer answer =
      Diff(golden / "broken/payload_flip/ckpt", golden / "broken/payload_flip/ckpt");
  EXPECT_TRUE(answer.equal) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("\"kind\": \"checksum\""));
}

TEST_F(DiffTest, NamesKeysThatOneSideLacks) {
  const Path golden = GoldenDir() / "dcp";
  const Answer answer = Diff(golden / "shapes/ckpt", golden / "nested/ckpt");
  EXPECT_FALSE(answer.equal);
  EXPECT_FALSE(answer.only_a.empty());
  EXPECT_FALSE(answer.only_b.empty());
  const Answer turned = Diff(golden / "nested/ckpt", golden / "shapes/ckpt");
  EXPECT_EQ(answer.only_a, turned.only_b);
  EXPECT_EQ(answer.only_b, turned.only_a);
}

// FP8 blocks whose scales are rounded to this dtype, as Qwen publishes them in bfloat16.
void WriteWithScales(DType dtype, const Path& source, const Path& directory) {
  const auto opened = OpenCheckpoint(PosixStorage(), source);
  ASSERT_THAT(opened, IsOk());
  const std::map<DType, const char*> names = {{DType::kFloat32, "F32"},
                                              {DType::kBfloat16, "BF16"},
                                              {DType::kFloat16, "F16"},
                                              {DType::kFloat8E4m3fn, "F8_E4M3"}};
  JsonWriter header;
  Bytes payload;
  header.BeginObject();
  for (const GlobalTensor& tensor : opened->source->index().tensors()) {
    Bytes values(NumBytes(tensor.shape, tensor.dtype));
    ASSERT_THAT(ReadBox(*opened->source, tensor, WholeBox(tensor.shape), values, 1 << 20), IsOk());
    const DType stored = tensor.key.ends_with("_scale_inv") ? dtype : tensor.dtype;
    Bytes written(NumBytes(tensor.shape, stored));
    if (stored == tensor.dtype) {
      written = values;
    } else {
      CastElements(tensor.dtype, values, stored, written);
    }
    header.Key(tensor.key).BeginObject().Key("dtype").Text(names.at(stored));
    header.Key("shape").Ints(tensor.shape).Key("data_offsets");
    header.Ints(std::vector{payload.size(), payload.size() + written.size()}).End();
    Append(written, payload);
  }
  const std::string text = header.End().Take();
  Bytes file;
  AppendLe(std::uint64_t{text.size()}, file);
  Append(text, file);
  Append(payload, file);
  boost::filesystem::create_directories(directory);
  ASSERT_THAT(WriteSmallFile(PosixStorage(), directory / "model.safetensors", file), IsOk());
  boost::filesystem::copy_file(source / "config.json", directory / "config.json");
}

TEST_F(DiffTest, ComparesFp8WhateverTheDtypeOfItsScales) {
  if (!testing::HasGolden("hf", "deepseekv3-fp8")) GTEST_SKIP();
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Path folder = dir_.path() / std::string(DTypeName(dtype));
    ASSERT_NO_FATAL_FAILURE(WriteWithScales(dtype, Golden("deepseekv3-fp8"), folder / "source"));
    ConvertOptions there =
        Between("hf", "fsdp_dtensor", folder / "source", (folder / "fsdp").string());
    ASSERT_THAT(Convert(there), IsOk());
    ConvertOptions back = Between("fsdp_dtensor", "hf", there.target, (folder / "hf").string());
    ASSERT_THAT(Convert(back), IsOk());
    for (const Path& converted : {there.target, back.target}) {
      const Answer answer = Diff(folder / "source", converted);
      EXPECT_TRUE(answer.equal) << answer.text;
      EXPECT_GT(answer.tensors, 0);
      EXPECT_FALSE(Diff(Golden("deepseekv3-fp8"), converted).equal) << "scales were rounded";
    }
    cli::StringOutput out;
    cli::Streams streams{.out = out, .err = out};
    EXPECT_EQ(RunInspect({"verify", (folder / "source").string()}, PosixStorage(), streams),
              ExitCode::kDone)
        << out.text();
    // Where nothing is renamed, codes and scales are copied.
    ConvertOptions copy = Between("", "dcp", folder / "source", (folder / "dcp").string());
    ASSERT_THAT(Convert(copy), IsOk());
    const auto copied = OpenCheckpoint(PosixStorage(), copy.target);
    ASSERT_THAT(copied, IsOk());
    std::size_t scales = 0;
    for (const GlobalTensor& tensor : copied->source->index().tensors()) {
      if (!tensor.key.ends_with("_scale_inv")) continue;
      EXPECT_EQ(tensor.dtype, dtype) << tensor.key;
      ++scales;
    }
    EXPECT_GT(scales, 0U);
    EXPECT_TRUE(Diff(folder / "source", copy.target).equal);
  }
}

// A head that is stored beside the embedding that it is tied to is compared too.
TEST_F(DiffTest, ComparesCopies) {
  const Path source = Golden("llama-tied-fp32");
  ConvertOptions options = Between("hf", "fsdp_dtensor", source, "fsdp");
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_TRUE(Diff(source, options.target).equal);
  EXPECT_TRUE(Diff(options.target, source).equal);
}

TEST_F(DiffTest, SaysThatPaddingIsNotCompared) {
  const Path padded = dir_.path() / "padded";
  boost::filesystem::create_directories(padded);
  boost::filesystem::copy_file(Golden("llama-tied-fp32") / "model.safetensors",
                               padded / "model.safetensors");
  std::string config = testing::Content(Golden("llama-tied-fp32") / "config.json");
  config.insert(config.find("\"vocab_size\""), "\"padded_vocab_size\": 160, ");
  std::ofstream((padded / "config.json").string()) << config;
  ConvertOptions options = Between("hf", "fsdp_dtensor", padded, "fsdp");
  ASSERT_THAT(Convert(options), IsOk());
  const Answer answer = Diff(Golden("llama-tied-fp32"), options.target);
  EXPECT_TRUE(answer.equal) << answer.text;
  EXPECT_THAT(answer.not_compared,
              ::testing::Contains("rows that pad the vocabulary: "
                                  "model.module.embedding.word_embeddings.weight of B"));
}

TEST_F(DiffTest, DtypesAndShapesDiffer) {
  const Path source = Golden("llama-tied-fp32");
  ConvertOptions options = Between("hf", "safetensors", source, "cast");
  options.dtype = DType::kBfloat16;
  ASSERT_THAT(Convert(options), IsOk());
  const Answer answer = Diff(source, options.target);
  EXPECT_FALSE(answer.equal);
  EXPECT_EQ(static_cast<std::int64_t>(answer.different.size()), answer.tensors);
  for (const Entry& entry : answer.different) EXPECT_EQ(entry.what, "dtype");
  // Numbers are close, dtypes are not the same.
  const Answer close = Diff(source, options.target, {"--rtol", "0.01"});
  EXPECT_FALSE(close.equal);
  for (const Entry& entry : close.different) EXPECT_EQ(entry.differing, 0) << entry.key;
}

TEST_F(DiffTest, TheSameForAnyBudgetAndThreads) {
  const Path converted = Converted({.container = "torch_dist"});
  const auto place = PlaceIn(converted, 3);
  ASSERT_THAT(place, IsOk());
  FlipBit(place->file, place->offset, 2);
  const Path source = Golden("qwen3moe-norm-bf16");
  const std::string text = Diff(source, converted).text;
  EXPECT_EQ(Diff(source, converted, {"--memory-budget", "1"}).text, text);
  EXPECT_EQ(Diff(source, converted, {"--threads", "1"}).text, text);
  EXPECT_EQ(Diff(source, converted, {"--threads", "7"}).text, text);
}

}  // namespace
}  // namespace ckpt::inspect
