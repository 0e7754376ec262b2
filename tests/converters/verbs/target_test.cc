// Which namings a target can have, and what their choices stand for.
#include "converters/verbs/target.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/families/family_registry.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;

// A model of a table with two namings.
ModelSource Model() {
  auto table = LoadMapping(
      "family mine\n"
      "dim h = hidden_size\n"
      "logical norm [h]\n"
      "naming hf\n"
      "  norm.weight : h = norm\n"
      "naming mine\n"
      "  choice form a | b\n"
      "  source_choice bits all | few\n"
      "  norm : h = norm\n",
      "mine.layout", {});
  EXPECT_THAT(table, IsOk());
  ModelSource model;
  if (table.ok()) model.family = std::make_shared<const layout::LayoutTable>(*std::move(table));
  return model;
}

Target To(const std::string& container, const std::string& naming) {
  return {.container = *FindFormat(container), .naming = naming};
}

TEST(TargetTest, TakesANamingThatOnlyTheUsersTableHas) {
  Target target = To("fsdp_dtensor", "mine");
  target.choices = {{"form", "b"}, {"expert_names", "grouped"}};
  const auto choices = ChoicesOf(target, Model());
  ASSERT_THAT(choices, IsOk());
  EXPECT_EQ(*choices, (layout::Choices{{"form", "b"}}));
}

// Whatever the source is like, and whatever is asked for.
TEST(TargetTest, HasNoFormThatOnlySourcesHave) {
  ModelSource model = Model();
  model.match.layout.choices = {{"form", "b"}, {"bits", "few"}};
  Target target = To("fsdp_dtensor", "mine");
  for (const bool is_asked : {false, true}) {
    if (is_asked) target.choices = {{"bits", "few"}};
    const auto choices = ChoicesOf(target, model);
    ASSERT_THAT(choices, IsOk());
    EXPECT_EQ(*choices, (layout::Choices{{"form", "b"}}));
  }
}

// Where each shard is a tensor, layers have keys of their own, whatever they are like. A
// configuration says it of layers that are apart anyway.
TEST(TargetTest, DoesNotKeepLayersApartForTheirShards) {
  const auto table = LoadMapping(
      "family mine\n"
      "dim h = hidden_size\n"
      "logical norm [h]\n"
      "naming torch_dist\n"
      "  choice layer_keys stacked | per_layer\n"
      "  source_choice shards global | singleton\n"
      "  norm : h = norm\n",
      "mine.layout", {});
  ASSERT_THAT(table, IsOk());
  ModelSource model;
  model.family = std::make_shared<const layout::LayoutTable>(*table);
  const layout::Choices apart = {{"layer_keys", "per_layer"}};
  model.match.layout.choices = apart;
  const Target target = To("torch_dist", "");
  EXPECT_THAT(ChoicesOf(target, model), IsOkAndHolds(apart));
  model.match.layout.choices["shards"] = "singleton";
  EXPECT_THAT(ChoicesOf(target, model), IsOkAndHolds(layout::Choices()));
  model.config["layer_keys"] = "per_layer";
  EXPECT_THAT(ChoicesOf(target, model), IsOkAndHolds(apart));
}

TEST(TargetTest, RefusesANamingThatTheContainerOrTheTableCannotHave) {
  struct Case {
    const char* container;
    const char* naming;
    const char* possible;
  };
  for (const Case& c : {Case{"fsdp_dtensor", "hf", "mine"}, Case{"fsdp_dtensor", "other", "mine"},
                        Case{"hf", "mine", "hf"}}) {
    SCOPED_TRACE(c.naming);
    const auto choices = ChoicesOf(To(c.container, c.naming), Model());
    ASSERT_THAT(choices, FailsWith(ErrorKind::kUsage));
    EXPECT_EQ(choices.status().first().expected, c.possible);
    EXPECT_THAT(choices.status().first().message, HasSubstr("naming " + std::string(c.naming)));
  }
}

TEST_F(ConvertTest, NamesTheNamingsThatPeopleCanAskFor) {
  struct Case {
    const char* container;
    const char* possible;
  };
  for (const Case& c : {Case{"dcp", "hf or fsdp2"}, Case{"fsdp_dtensor", "fsdp_dtensor"}}) {
    for (const char* naming : {"bogus", "trainer", "mp_rank"}) {
      SCOPED_TRACE(std::string(c.container) + naming);
      ConvertOptions options = Between("hf", c.container, Golden("qwen3-tied-bf16"), "none");
      options.to.naming = naming;
      const auto prepared = PrepareConversion(PosixStorage(), options);
      ASSERT_THAT(prepared, FailsWith(ErrorKind::kUsage));
      EXPECT_EQ(prepared.status().first().expected, c.possible);
      EXPECT_THAT(prepared.status().first().message, HasSubstr("naming " + std::string(naming)));
    }
  }
}

TEST(TargetTest, NeedsTheUsualNamingInTheTableIfNoneIsAskedFor) {
  EXPECT_THAT(ChoicesOf(To("hf", ""), Model()), IsOk());
  const auto choices = ChoicesOf(To("fsdp_dtensor", ""), Model());
  ASSERT_THAT(choices, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(choices.status().first().message, HasSubstr("naming fsdp_dtensor"));
  EXPECT_EQ(choices.status().first().expected, "mine");
}

// Scripts make the same choices for every model.
TEST_F(ConvertTest, WarnsOfAChoiceThatChangesNothing) {
  for (const auto& [model, num_idle] :
       {std::pair("llama-tied-fp32", 2U), {"qwen3moe-norm-bf16", 1U}}) {
    SCOPED_TRACE(model);
    ConvertOptions options = ToFsdp(Golden(model));
    options.to.choices = {{"expert_names", "sequential"},
                          {"further_names", "mtp_model_layer"},
                          {"transformer_impl", "local"}};
    options.to.asked = {"expert_names", "further_names", "transformer_impl"};
    const auto prepared = PrepareConversion(PosixStorage(), options);
    ASSERT_THAT(prepared, IsOk());
    std::vector<std::string> idle;
    for (const Problem& warning : prepared->warnings) {
      if (warning.kind == ErrorKind::kUsage) idle.push_back(warning.message);
    }
    EXPECT_EQ(idle.size(), num_idle);
    EXPECT_THAT(idle.back(), HasSubstr("--further-names changes nothing"));
  }
}

TEST_F(ConvertTest, AnotherNamingHoldsTheSameModel) {
  const Path source = Golden("qwen3moe-norm-bf16");
  ConvertOptions options = Between("hf", "dcp", source, "dcp");
  options.to.naming = "hf";
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->source_digest, report->target_digest);
  const auto written = OpenCheckpoint(PosixStorage(), options.target);
  ASSERT_THAT(written, IsOk());
  EXPECT_NE(written->source->index().FindTensor("model.norm.weight"), nullptr);
  EXPECT_EQ(DigestAsHf(options.target), DigestAsHf(source));
}

// The index of the source is of its own files.
TEST_F(ConvertTest, PlainFilesHaveTheTensorsOfARepositoryOfSeveral) {
  const Path source = Golden("llama-untied-bf16");
  ASSERT_TRUE(boost::filesystem::exists(source / "model.safetensors.index.json"));
  for (const int files : {0, 1, 3}) {
    ConvertOptions options = Between("hf", "safetensors", source, "");
    options.overwrite = true;
    options.files = files;
    const auto report = Convert(options);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->source_digest, report->target_digest);
    EXPECT_EQ(boost::filesystem::exists(options.target / "model.safetensors.index.json"),
              files != 1);
    EXPECT_EQ(DigestAsHf(options.target), DigestAsHf(source));
  }
}

}  // namespace
}  // namespace ckpt
