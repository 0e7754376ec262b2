// `ckpt-inspect diff` on converted checkpoints, of which single bits are flipped.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/source.h"
#include "core/json/json_reader.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/reliability/small_foreign.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::ConvertTest;
using ::ckpt::testing::GoldenDir;
using ::ckpt::testing::IsOk;
using cli::ExitCode;
using ::testing::HasSubstr;

// One member of "different".
struct Entry {
  std::string key;
  std::string what;
  std::int64_t differing = 0;
  Dims first_index;
  std::string bits_a;
  std::string bits_b;
  std::string stored_b;  // B's own key of the element
  Dims index_b;
};

struct Answer {
  ExitCode exit = ExitCode::kFailed;
  bool equal = false;
  std::string compared;
  std::int64_t tensors = 0;
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
  std::vector<Entry> different;
  std::size_t problems = 0;
  bool training_state = false;
  std::vector<std::string> not_compared;
  std::string text;
};

std::vector<std::string> Texts(const JsonCursor& array) {
  std::vector<std::string> texts;
  const auto items = array.Items();
  for (const JsonCursor& item : *items) texts.push_back(item.Text().value());
  return texts;
}

Answer Diff(const Path& a, const Path& b, std::vector<std::string> more = {}) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams{.out = out, .err = err};
  std::vector<std::string> args = {"diff", a.string(), b.string(), "--json"};
  args.insert(args.end(), more.begin(), more.end());
  Answer answer;
  answer.exit = RunInspect(args, PosixStorage(), streams);
  answer.text = out.text();
  const auto document = JsonDocument::Parse(out.text(), "diff");
  EXPECT_THAT(document, IsOk());
  if (!document.ok() || answer.exit > ExitCode::kDifferent) {
    ADD_FAILURE() << out.text();
    return answer;
  }
  const JsonCursor root = document->root();
  answer.equal = root.At("equal")->Bool().value();
  answer.compared = root.At("compared")->Text().value();
  answer.tensors = root.At("tensors")->Int64().value();
  answer.only_a = Texts(*root.At("only_a"));
  answer.only_b = Texts(*root.At("only_b"));
  if (answer.compared == "as models") {
    answer.training_state = root.At("training_state")->Bool().value();
  }
  if (answer.compared == "as models" || root.Find("not_compared")) {
    answer.not_compared = Texts(*root.At("not_compared"));
  }
  answer.problems = root.At("problems")->Items()->size();
  const auto different = root.At("different")->Items();
  for (const JsonCursor& item : *different) {
    Entry entry{.key = item.At("key")->Text().value(),
                .what = item.At("what")->Text().value(),
                .differing = item.At("differing")->Int64().value(),
                .first_index = {},
                .bits_a = {},
                .bits_b = {},
                .stored_b = {},
                .index_b = {}};
    if (item.At("first_index")->kind() == JsonKind::kArray) {
      entry.first_index = item.At("first_index")->Int64Array().value();
      entry.bits_a = item.At("bits_a")->Text().value();
      entry.bits_b = item.At("bits_b")->Text().value();
      if (item.At("stored_b")->kind() == JsonKind::kObject) {
        entry.stored_b = item.At("stored_b")->At("key")->Text().value();
        entry.index_b = item.At("stored_b")->At("index")->Int64Array().value();
      }
    }
    answer.different.push_back(std::move(entry));
  }
  EXPECT_EQ(answer.exit, answer.equal ? ExitCode::kDone : ExitCode::kDifferent);
  return answer;
}

void FlipBit(const Path& file, std::uint64_t offset, int bit) {
  std::fstream stream(file.string(), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(static_cast<char>(byte ^ (1 << bit)));
  ASSERT_TRUE(stream.good()) << file;
}

// Where the element in the middle of a chunk lies.
struct Place {
  Path file;
  std::uint64_t offset = 0;
  std::string key;
  Dims index;
};

Result<Place> PlaceIn(const Path& path, std::size_t position) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(PosixStorage(), path));
  const CheckpointIndex& index = opened.source->index();
  const GlobalTensor& tensor = index.tensors()[position];
  const Chunk& chunk = index.chunks(tensor).back();
  CKPT_ASSIGN_OR_RETURN(const StoredArray array, opened.source->Locate(tensor, chunk));
  Place place{.file = array.file->name(),
              .offset = array.offset_bytes,
              .key = tensor.key,
              .index = Dims(index.offsets(chunk).begin(), index.offsets(chunk).end())};
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const std::int64_t middle = index.sizes(chunk)[d] / 2;
    place.index[d] += middle;
    place.offset +=
        static_cast<std::uint64_t>(middle * array.strides[d]) * ElementBytes(tensor.dtype);
  }
  return place;
}

// What the golden model is converted into.
struct Form {
  const char* container;
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
  Path Converted(const Form& form, const std::string& folder = "out") const {
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
        golden / "fsdp_dtensor/moe_ep2_fsdp4/ckpt"}) {
    SCOPED_TRACE(original.string());
    const Path copy = dir_.path() / "copy";
    boost::filesystem::remove_all(copy);
    boost::filesystem::copy(original, copy, boost::filesystem::copy_options::recursive);
    const auto opened = OpenCheckpoint(PosixStorage(), copy);
    ASSERT_THAT(opened, IsOk());
    const auto tensors = opened->source->index().tensors();
    const auto large = std::ranges::max_element(
        tensors, {}, [](const GlobalTensor& tensor) { return NumElements(tensor.shape); });
    const auto place = PlaceIn(copy, static_cast<std::size_t>(large - tensors.begin()));
    ASSERT_THAT(place, IsOk());
    FlipBit(place->file, place->offset, 1);
    const Answer answer = Diff(original, copy);
    // Several tensors of a torch.save file may show the same bytes.
    const auto found = std::ranges::find(answer.different, place->key, &Entry::key);
    ASSERT_NE(found, answer.different.end()) << answer.text;
    EXPECT_EQ(found->what, "values");
    EXPECT_EQ(found->first_index, place->index);
    EXPECT_EQ(found->differing, 1);
  }
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

// Runs of Megatron-Core, whose models' weights are bfloat16 and have exact ones beside them, in the
// other namings, which have the exact ones alone.
class DiffRunTest : public ConvertTest {
 protected:
  static Path RunOf(const std::string& name) { return GoldenDir() / "torch_dist" / name / "ckpt"; }

  Path AsFsdp(const std::string& name, bool weights_only = false) const {
    ConvertOptions options = Between("torch_dist", "fsdp_dtensor", RunOf(name), "fsdp_" + name);
    options.weights_only = weights_only;
    EXPECT_THAT(Convert(options), IsOk());
    return options.target;
  }
  Path AsFsdp2(const std::string& name) const {
    ConvertOptions options = Between("torch_dist", "dcp", RunOf(name), "fsdp2_" + name);
    options.to.naming = "fsdp2";
    EXPECT_THAT(Convert(options), IsOk());
    return options.target;
  }
  // A copy of a run, whose bits may be flipped.
  Path Copy(const std::string& name) const {
    const Path copy = dir_.path() / "copy";
    boost::filesystem::remove_all(copy);
    boost::filesystem::copy(RunOf(name), copy, boost::filesystem::copy_options::recursive);
    return copy;
  }
  static std::size_t PositionOf(const Path& path, const std::string& key) {
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    const auto tensors = opened->source->index().tensors();
    const auto found = std::ranges::find(tensors, key, &GlobalTensor::key);
    EXPECT_NE(found, tensors.end()) << key;
    return static_cast<std::size_t>(found - tensors.begin());
  }
};

std::vector<std::string> RunsWithRoundedWeights() {
  return testing::GoldenCases(
      "torch_dist", {"opt_fully_reshardable_dp1_core016", "opt_fully_reshardable_tp2dp2_core016",
                     "opt_fully_reshardable_pp2dp2_core019", "opt_model_space_dp1_core012"});
}

TEST_F(DiffRunTest, ARunIsEqualUnderEveryNaming) {
  for (const std::string& name : RunsWithRoundedWeights()) {
    SCOPED_TRACE(name);
    const Path source = RunOf(name);
    const Path fsdp = AsFsdp(name);
    const Path fsdp2 = AsFsdp2(name);
    for (const auto& [a, b] :
         {std::pair(source, fsdp), std::pair(fsdp, source), std::pair(source, fsdp2),
          std::pair(fsdp2, source), std::pair(fsdp, fsdp2), std::pair(fsdp2, fsdp)}) {
      const Answer answer = Diff(a, b);
      EXPECT_TRUE(answer.equal) << answer.text;
      EXPECT_TRUE(answer.training_state);
      EXPECT_THAT(answer.not_compared, ::testing::Contains("the arguments of the runs"));
      EXPECT_EQ(answer.problems, 0U);
    }
  }
}

// A weight, its exact value and its moments are tensors of their own in A.
TEST_F(DiffRunTest, FindsOneFlippedBitOfEveryKind) {
  const std::string name = "opt_fully_reshardable_dp1_core016";
  const std::string weight = "decoder.layers.self_attention.linear_qkv.weight";
  const Path others[] = {AsFsdp(name), AsFsdp2(name)};
  for (const std::string& key :
       {weight, "optimizer.state.param." + weight, "optimizer.state.exp_avg." + weight,
        "optimizer.state.exp_avg_sq." + weight}) {
    const Path copy = Copy(name);
    const auto place = PlaceIn(copy, PositionOf(copy, key));
    ASSERT_THAT(place, IsOk());
    FlipBit(place->file, place->offset, 6);
    for (const Path& other : others) {
      SCOPED_TRACE(key + " against " + other.string());
      const Answer own = Diff(copy, other);
      ASSERT_EQ(own.different.size(), 1U) << own.text;
      EXPECT_EQ(own.different[0].key, key);
      EXPECT_EQ(own.different[0].first_index, place->index);
      EXPECT_EQ(own.different[0].differing, 1);
      const Answer turned = Diff(other, copy);
      ASSERT_EQ(turned.different.size(), 1U) << turned.text;
      EXPECT_EQ(turned.different[0].stored_b, key);
      EXPECT_EQ(turned.different[0].index_b, place->index);
      EXPECT_EQ(turned.different[0].bits_b, own.different[0].bits_a);
      // Only a copy that B alone stores has B's name.
      EXPECT_EQ(turned.different[0].key == key, key == weight);
    }
  }
}

// One naming of the weights, and two forms of the optimizer.
TEST_F(DiffRunTest, ComparesFormsOfOneOptimizer) {
  const std::string name = "opt_fully_reshardable_dp1_core016";
  ConvertOptions options = Between("torch_dist", "torch_dist", RunOf(name), "model_space");
  options.to.forms["optimizer-form"] = "fully_sharded_model_space";
  ASSERT_THAT(Convert(options), IsOk());
  for (const auto& [a, b] :
       {std::pair(RunOf(name), options.target), std::pair(options.target, RunOf(name))}) {
    const Answer answer = Diff(a, b);
    EXPECT_TRUE(answer.equal) << answer.text;
    EXPECT_TRUE(answer.training_state);
  }
  const std::string weight = "decoder.layers.mlp.linear_fc1.weight";
  const Path copy = Copy(name);
  const auto place = PlaceIn(copy, PositionOf(copy, "optimizer.state.param." + weight));
  ASSERT_THAT(place, IsOk());
  FlipBit(place->file, place->offset, 3);
  const Answer answer = Diff(options.target, copy);
  ASSERT_EQ(answer.different.size(), 1U) << answer.text;
  EXPECT_EQ(answer.different[0].key, "optimizer.state.fp32_param." + weight);
  EXPECT_EQ(answer.different[0].stored_b, place->key);
  EXPECT_EQ(answer.different[0].index_b, place->index);
}

TEST_F(DiffRunTest, SaysWhatOneSideDoesNotHold) {
  const std::string name = "opt_fp32_dp2_core016";
  const Path weights = AsFsdp(name, true);
  const Answer answer = Diff(RunOf(name), weights);
  EXPECT_TRUE(answer.equal) << answer.text;
  EXPECT_FALSE(answer.training_state);
  EXPECT_THAT(
      answer.not_compared,
      ::testing::ElementsAre("FP8 scaling state of Transformer Engine: 8 entries of A",
                             "arguments and progress of the run: common_state of A",
                             "arguments of the run: args of B", "optimizer state: 18 entries of A",
                             "progress of the run: iteration of B",
                             "random number generators: rng_state/shard_0.0_1.1 of A",
                             "version of the checkpoint: checkpoint_version of B",
                             "the training state of A: B holds none"));
  EXPECT_THAT(Diff(weights, RunOf(name)).not_compared,
              ::testing::Contains("the training state of B: A holds none"));
}

// What both sides keep beside the model under one key needs no understanding.
TEST_F(DiffRunTest, ComparesRandomStatesAndArgumentsOfOneContainer) {
  const std::string name = "opt_fully_reshardable_dp1_core016";
  ConvertOptions options = Between("torch_dist", "torch_dist", RunOf(name), "per_layer");
  options.to.choices = {{"layer_keys", "per_layer"}};
  ASSERT_THAT(Convert(options), IsOk());
  const Answer answer = Diff(RunOf(name), options.target);
  EXPECT_TRUE(answer.equal) << answer.text;
  EXPECT_TRUE(answer.training_state);
  EXPECT_THAT(answer.not_compared,
              ::testing::ElementsAre(HasSubstr("FP8 scaling state of Transformer Engine")));
  // In one container alone they are not.
  EXPECT_THAT(Diff(RunOf(name), AsFsdp(name)).not_compared,
              ::testing::IsSupersetOf({"random number generators: rng_state/shard_0.0_1.1 of A, "
                                       "2 entries of B",
                                       "the arguments of the runs"}));
}

// Megatron's default form: buffers, in which parameters are found by their values.
TEST_F(DiffRunTest, FindsAFlippedBitInABuffer) {
  const std::string name = "opt_dp_reshardable_tp2dp2_core016";
  const Path fsdp = AsFsdp(name);
  const Answer equal = Diff(RunOf(name), fsdp);
  EXPECT_TRUE(equal.equal) << equal.text;
  EXPECT_TRUE(equal.training_state);
  const Path copy = Copy(name);
  const auto place = PlaceIn(
      copy, PositionOf(copy,
                       "optimizer.distributed.dp_group_idx_1.gbuf_idx_0.dtype_(torch.bfloat16, "
                       "torch.float32).bucket_idx_0.exp_avg"));
  ASSERT_THAT(place, IsOk());
  FlipBit(place->file, place->offset, 3);
  const Answer answer = Diff(copy, fsdp);
  ASSERT_EQ(answer.different.size(), 1U) << answer.text;
  EXPECT_THAT(answer.different[0].key, HasSubstr("optimizer.state.exp_avg."));
  EXPECT_EQ(answer.different[0].differing, 1);
  const Answer turned = Diff(fsdp, copy);
  ASSERT_EQ(turned.different.size(), 1U) << turned.text;
  EXPECT_EQ(turned.different[0].stored_b, answer.different[0].key);
  EXPECT_EQ(turned.different[0].index_b, answer.different[0].first_index);
}

// Where chunks of a buffer have their middle elements. Megatron stores one for each parameter and
// for each gap, which the golden runs fill with one number.
struct BufferPlace : Place {
  bool is_gap = false;
};

Result<std::vector<BufferPlace>> PlacesInBuffer(const Path& path, const std::string& key) {
  constexpr float kGap = -1234.5F;
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(PosixStorage(), path));
  const CheckpointIndex& index = opened.source->index();
  const GlobalTensor& buffer = *index.FindTensor(key);
  std::vector<BufferPlace> places;
  for (const Chunk& chunk : index.chunks(buffer)) {
    CKPT_ASSIGN_OR_RETURN(const StoredArray array, opened.source->Locate(buffer, chunk));
    const std::int64_t middle = index.sizes(chunk)[0] / 2;
    BufferPlace& place = places.emplace_back();
    place.file = array.file->name();
    place.key = key;
    place.index = {index.offsets(chunk)[0] + middle};
    place.offset = array.offset_bytes + static_cast<std::uint64_t>(middle) * sizeof(float);
    float value = 0;
    std::ifstream in(place.file.string(), std::ios::binary);
    in.seekg(static_cast<std::streamoff>(place.offset));
    in.read(reinterpret_cast<char*>(&value), sizeof value);
    place.is_gap = value == kGap;
  }
  return places;
}

std::string BufferKey(int group, const std::string& field) {
  return fmt::format(
      "optimizer.distributed.dp_group_idx_{}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)."
      "bucket_idx_0.{}",
      group, field);
}

// Two saves in Megatron's default form. Parameters that every tensor rank has are in both buffers.
TEST_F(DiffRunTest, FindsAFlippedBitOfABufferInParametersAlone) {
  const std::string name = "opt_dp_reshardable_tp2dp2_core016";
  const Path copy = Copy(name);
  ASSERT_TRUE(Diff(RunOf(name), copy).equal);
  int gaps = 0;
  int copies = 0;
  for (const auto& [group, field, byte] :
       {std::tuple(0, "param", 0U), std::tuple(1, "exp_avg", 3U), std::tuple(1, "param", 3U)}) {
    const auto places = PlacesInBuffer(copy, BufferKey(group, field));
    ASSERT_THAT(places, IsOk());
    for (const BufferPlace& place : *places) {
      SCOPED_TRACE(fmt::format("{} at {}", place.key, FormatDims(place.index)));
      FlipBit(place.file, place.offset + byte, 6);
      const Answer answer = Diff(RunOf(name), copy);
      FlipBit(place.file, place.offset + byte, 6);
      EXPECT_EQ(answer.compared, "as stored");
      EXPECT_EQ(answer.equal, place.is_gap) << answer.text;
      if (place.is_gap) {
        ++gaps;
        continue;
      }
      ASSERT_EQ(answer.different.size(), 1U) << answer.text;
      EXPECT_THAT(answer.different[0].key,
                  ::testing::StartsWith(fmt::format("optimizer.state.{}.", field)));
      EXPECT_EQ(answer.different[0].differing, 1);
      EXPECT_EQ(answer.different[0].stored_b, place.key);
      EXPECT_EQ(answer.different[0].index_b, place.index);
      if (answer.different[0].key.ends_with(" (copy 2)")) ++copies;
    }
  }
  EXPECT_GT(gaps, 0);
  EXPECT_GT(copies, 0);
}

// What we write ourselves has zeros in gaps.
TEST_F(DiffRunTest, GapsOfBuffersAreNoDifference) {
  for (const std::string& name : testing::GoldenCases(
           "torch_dist", {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_dp2_core019",
                          "opt_dp_reshardable_tp2dp2_core016"})) {
    SCOPED_TRACE(name);
    ConvertOptions options = Between("torch_dist", "torch_dist", RunOf(name), name);
    options.to.choices["transformer_impl"] = "local";
    options.to.forms["optimizer-form"] = "dp_reshardable";
    ASSERT_THAT(Convert(options), IsOk());
    const Answer answer = Diff(RunOf(name), options.target);
    EXPECT_TRUE(answer.equal) << answer.text;
    EXPECT_EQ(answer.compared, "as stored");
    EXPECT_TRUE(answer.not_compared.empty()) << answer.text;
  }
}

// Where parameters lie is seen in spite of the checksums that do not match.
TEST_F(DiffRunTest, FindsAFlippedBitOfABufferUnderOtherNames) {
  const std::string name = "opt_dp_reshardable_tp2dp2_core016";
  ConvertOptions options = Between("torch_dist", "torch_dist", RunOf(name), "buffers");
  options.to.choices["transformer_impl"] = "local";
  options.to.forms["optimizer-form"] = "dp_reshardable";
  ASSERT_THAT(Convert(options), IsOk());
  const Path fsdp = AsFsdp(name);
  ASSERT_TRUE(Diff(options.target, fsdp).equal);
  const auto places = PlacesInBuffer(options.target, BufferKey(0, "exp_avg"));
  ASSERT_THAT(places, IsOk());
  const auto place = std::ranges::find_if_not(*places, &BufferPlace::is_gap);
  ASSERT_NE(place, places->end());
  FlipBit(place->file, place->offset, 0);
  const Answer answer = Diff(options.target, fsdp);
  ASSERT_EQ(answer.different.size(), 1U) << answer.text;
  EXPECT_THAT(answer.different[0].key, ::testing::StartsWith("optimizer.state.exp_avg."));
  EXPECT_EQ(answer.different[0].differing, 1);
  EXPECT_THAT(answer.text, HasSubstr("\"kind\": \"checksum\""));
}

// Values of one side that round to no weight: the other says what lies where. If neither does, gaps
// cannot be told from parameters.
TEST_F(DiffRunTest, SaysWhatIsNotKnownOfBuffers) {
  const std::string name = "opt_dp_reshardable_tp2dp2_core016";
  const Path copy = Copy(name);
  const auto places = PlacesInBuffer(copy, BufferKey(0, "exp_avg"));
  ASSERT_THAT(places, IsOk());
  const auto gap = std::ranges::find_if(*places, &BufferPlace::is_gap);
  ASSERT_NE(gap, places->end());
  const std::string weight = "decoder.layers.self_attention.linear_qkv.weight";
  const auto in_weight = PlaceIn(copy, PositionOf(copy, weight));
  ASSERT_THAT(in_weight, IsOk());
  const std::string why = "what the optimizer keeps cannot be assigned to the model's weights";
  FlipBit(gap->file, gap->offset, 0);
  FlipBit(in_weight->file, in_weight->offset, 6);

  const Answer one = Diff(RunOf(name), copy);
  ASSERT_EQ(one.different.size(), 1U) << one.text;
  EXPECT_EQ(one.different[0].key, weight);
  EXPECT_THAT(one.not_compared,
              ::testing::ElementsAre(
                  "whether parameters lie as on the other side in the buffers of B: " + why));

  const Path other = dir_.path() / "other";
  boost::filesystem::copy(copy, other, boost::filesystem::copy_options::recursive);
  const Answer same = Diff(other, copy);
  EXPECT_TRUE(same.equal) << same.text;
  EXPECT_THAT(same.not_compared,
              ::testing::ElementsAre(
                  "parameters without the gaps between them in the buffers of A: " + why,
                  "parameters without the gaps between them in the buffers of B: " + why));
  FlipBit(gap->file, gap->offset, 0);
  const Answer none = Diff(other, copy);
  ASSERT_EQ(none.different.size(), 1U) << none.text;
  EXPECT_EQ(none.different[0].key, gap->key);
  EXPECT_EQ(none.different[0].first_index, gap->index);
  EXPECT_EQ(none.not_compared, same.not_compared);
}

// Weights that are equal do not make two runs equal.
TEST_F(DiffRunTest, IsNotEqualWhereAMomentIsMissing) {
  const std::string run = "opt_fully_reshardable_dp1_core016";
  ConvertOptions options;
  options.source = AsFsdp2(run);
  options.target = dir_.path() / "lacks";
  options.to.container = FindFormat("dcp").value();
  options.model.drop = {"optim.state.model.norm.weight.exp_avg"};
  ASSERT_THAT(Convert(options), IsOk());
  const Path whole = AsFsdp(run);
  for (const Answer& answer : {Diff(options.target, whole), Diff(whole, options.target)}) {
    EXPECT_FALSE(answer.equal) << answer.text;
    EXPECT_FALSE(answer.training_state);
    EXPECT_TRUE(answer.different.empty());
    EXPECT_THAT(answer.not_compared,
                ::testing::Contains(HasSubstr("a trained weight has no moment of the optimizer")));
  }
}

TEST_F(DiffRunTest, SaysWhichStateIsNotUnderstood) {
  const Answer answer =
      Diff(RunOf("opt_gather_scatter_tp2dp2_core014"), AsFsdp("opt_fully_reshardable_dp1_core016"));
  EXPECT_FALSE(answer.training_state);
  EXPECT_THAT(answer.not_compared,
              ::testing::Contains(HasSubstr("the training state of A: the optimizer's state "
                                            "lies in buffers")));
  EXPECT_THAT(answer.not_compared,
              ::testing::Contains("the training state of B: that of A is not understood"));
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
