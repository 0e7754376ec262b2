// `ckpt-inspect diff` on training runs, and on the buffers of their optimizers.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/converters/verbs/convert_fixture.h"
#include "tests/tools/ckpt-inspect/diff_answer.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::ConvertTest;
using ::ckpt::testing::GoldenDir;
using ::ckpt::testing::IsOk;
using ::testing::HasSubstr;

// Runs of Megatron-Core, whose models' weights are bfloat16 and have exact ones beside them, in the
// other namings, which have the exact ones alone.
class DiffRunTest : public ConvertTest {
 protected:
  static Path RunOf(const std::string& name) { return GoldenDir() / "torch_dist" / name / "ckpt"; }

  [[nodiscard]] Path AsFsdp(const std::string& name, bool weights_only = false) const {
    ConvertOptions options = Between("torch_dist", "fsdp_dtensor", RunOf(name), "fsdp_" + name);
    options.weights_only = weights_only;
    EXPECT_THAT(Convert(options), IsOk());
    return options.target;
  }
  [[nodiscard]] Path AsFsdp2(const std::string& name) const {
    ConvertOptions options = Between("torch_dist", "dcp", RunOf(name), "fsdp2_" + name);
    options.to.naming = "fsdp2";
    EXPECT_THAT(Convert(options), IsOk());
    return options.target;
  }
  // A copy of a run, whose bits may be flipped.
  [[nodiscard]] Path Copy(const std::string& name) const {
    Path copy = dir_.path() / "copy";
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
                                       "7 entries of B",
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
  const Path fsdp = AsFsdp(name);
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
      const Answer named = Diff(fsdp, copy);
      FlipBit(place.file, place.offset + byte, 6);
      EXPECT_EQ(answer.compared, "as stored");
      EXPECT_EQ(named.equal, place.is_gap) << named.text;
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

}  // namespace
}  // namespace ckpt::inspect
