// The model against numbers that Transformers computed: loss, logits and every gradient of the
// golden repositories.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "converters/config/model_settings.h"
#include "converters/verbs/model_source.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/exec/nest_reader.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "core/tensor/cast.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/model/max_abs.h"
#include "tests/trainer/model/model_runner.h"

namespace ckpt::testing {
namespace {

using Values = std::vector<double>;

constexpr std::uint64_t kBudget = 64 << 20;
// Relative to the largest value of each tensor.
constexpr double kTransformersTolerance = 1e-5;

Values Decode(DType dtype, ByteSpan bytes) {
  Values values(bytes.size() / ElementBytes(dtype));
  if (dtype == DType::kInt64) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int64_t value = 0;
      std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
      values[i] = static_cast<double>(value);
    }
    return values;
  }
  CastElements(
      dtype, bytes, DType::kFloat64,
      MutableByteSpan(reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(double)));
  return values;
}

Values ReadTensor(const CheckpointSource& source, const std::string& key) {
  const GlobalTensor* tensor = source.index().FindTensor(key);
  if (tensor == nullptr) {
    ADD_FAILURE() << "no tensor " << key;
    return {};
  }
  Bytes bytes(NumBytes(tensor->shape, tensor->dtype));
  EXPECT_THAT(ReadBox(source, *tensor, WholeBox(tensor->shape), bytes, kBudget), IsOk());
  return Decode(tensor->dtype, bytes);
}

// Every tensor of a model under the names of `format`.
std::map<std::string, Values> ReadAs(const ModelSource& model, const std::string& format,
                                     const layout::Choices& choices = {}) {
  std::map<std::string, Values> values;
  const auto view = ViewModel(model, format, choices);
  EXPECT_THAT(view, IsOk());
  if (!view.ok()) return values;
  NestReader reader(model.source(), kBudget);
  for (std::size_t t = 0; t < view->tensors.size(); ++t) {
    const TargetTensor& tensor = view->tensors[t];
    const DType dtype = view->recipes[t].source_dtype;
    Bytes bytes(NumBytes(tensor.shape, dtype));
    reader.Reset();
    EXPECT_THAT(reader.Read(view->recipes[t], WholeBox(tensor.shape), bytes), IsOk());
    values[tensor.key] = Decode(dtype, bytes);
  }
  return values;
}

// What the reference calls `grad.<parameter>`, as a model of the same configuration.
std::map<std::string, Values> ReadReferenceGradients(
    const Path& assets, const std::shared_ptr<const OpenedCheckpoint>& reference) {
  const std::string kPrefix = "grad.";
  OpenModelOptions options;
  options.assets = assets;
  options.naming = "hf";
  options.allow_missing = true;  // what has no gradient
  options.only = {kPrefix + "*"};
  for (const GlobalTensor& tensor : reference->source->index().tensors()) {
    if (tensor.key.starts_with(kPrefix)) {
      options.rename[tensor.key] = tensor.key.substr(kPrefix.size());
    }
  }
  if (options.rename.empty()) return {};
  const auto model = UnderstandModel(PosixStorage(), reference, options);
  EXPECT_THAT(model, IsOk());
  return model.ok() ? ReadAs(*model, "trainer") : std::map<std::string, Values>();
}

// The trainer's gradients under the names, and in the shapes, that Transformers holds at run time.
std::map<std::string, Values> NameAsTransformers(
    const Path& assets, const std::map<std::string, Values>& gradients,
    const std::map<std::string, trainer::ParamSpec>& specs) {
  std::vector<MemoryTensor> tensors;
  for (const auto& [name, values] : gradients) {
    const ByteSpan bytes = std::as_bytes(std::span(values));
    tensors.push_back({.key = name,
                       .dtype = DType::kFloat64,
                       .shape = specs.at(name).shape,
                       .values = Bytes(bytes.begin(), bytes.end())});
  }
  auto source = MakeMemorySource(std::move(tensors));
  EXPECT_THAT(source, IsOk());
  auto opened = std::make_shared<OpenedCheckpoint>();
  opened->source = std::move(source).value();
  OpenModelOptions options;
  options.assets = assets;
  options.naming = "trainer";
  options.allow_missing = true;  // what has no gradient
  const auto model = UnderstandModel(PosixStorage(), opened, options);
  EXPECT_THAT(model, IsOk());
  if (!model.ok()) return {};
  return ReadAs(*model, "hf", {{"expert_layout", "fused"}});
}

// What reference.json says of one gradient.
struct GradientSummary {
  double max_abs = 0;
  double l2 = 0;
  Values first;
};

std::map<std::string, GradientSummary> ReadGradientSummaries(const Path& path) {
  std::map<std::string, GradientSummary> summaries;
  const auto text = ReadSmallFile(PosixStorage(), path, 64 << 20);
  EXPECT_THAT(text, IsOk());
  const auto json = JsonDocument::Parse(text.value(), "reference.json");
  EXPECT_THAT(json, IsOk());
  const auto members = json->root().At("gradient_summary").value().Members();
  for (const auto& [name, summary] : members.value()) {
    GradientSummary& read = summaries[name];
    read.max_abs = summary.At("max_abs").value().Double().value();
    read.l2 = summary.At("l2").value().Double().value();
    const auto items = summary.At("first").value().Items();
    for (const JsonCursor& item : items.value()) read.first.push_back(item.Double().value());
  }
  return summaries;
}

double Norm(const Values& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

double RelativeError(const Values& have, const Values& want) {
  EXPECT_EQ(have.size(), want.size());
  double max = 0;
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    max = std::max(max, std::abs(have[i] - want[i]));
  }
  return max / std::max(MaxAbs(want), 1e-30);
}

// Transformers shifts labels inside the model: token t is asked for label t + 1 of its sequence.
TokenBatch ReadBatch(const CheckpointSource& reference) {
  const Dims shape = reference.index().FindTensor("input_ids")->shape;
  TokenBatch batch{.batch = shape[0],
                   .seq = shape[1],
                   .tokens = ReadTensor(reference, "input_ids"),
                   .labels = ReadTensor(reference, "labels")};
  for (std::int64_t sequence = 0; sequence < batch.batch; ++sequence) {
    const auto begin = batch.labels.begin() + sequence * batch.seq;
    std::rotate(begin, begin + 1, begin + batch.seq);
    *(begin + batch.seq - 1) = -100;
  }
  return batch;
}

// The trainer's model of a repository; the error says why there is none.
Result<trainer::ModelConfig> ReadModelConfig(const layout::Configuration& hf_config) {
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings, ModelSettings(hf_config));
  return trainer::ParseModelConfig(settings);
}

// Golden repositories whose model the trainer computes, or the others.
std::vector<std::string> Cases(bool are_covered) {
  std::vector<std::string> cases;
  for (const std::string& name : GoldenCases("hf")) {
    bool is_covered = true;
    for (const char* prefix : {"gptoss", "olmoe"}) {
      if (name.starts_with(prefix)) is_covered = false;
    }
    if (is_covered == are_covered) cases.push_back(name);
  }
  return cases;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class TransformersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TransformersTest, LossLogitsAndGradientsAreEqual) {
  const Path directory = GoldenDir() / "hf" / GetParam();
  const auto model = OpenModel(PosixStorage(), directory / "ckpt", {});
  ASSERT_THAT(model, IsOk());
  const auto config = ReadModelConfig(model->config);
  ASSERT_THAT(config, IsOk());
  auto opened = OpenCheckpoint(PosixStorage(), directory / "reference.safetensors");
  ASSERT_THAT(opened, IsOk());
  const auto reference = std::make_shared<const OpenedCheckpoint>(std::move(*opened));

  const TokenBatch batch = ReadBatch(*reference->source);
  const auto num_counted =
      std::count_if(batch.labels.begin(), batch.labels.end(), [](double l) { return l >= 0; });
  ModelRunner runner(*config, batch,
                     {.compute = DType::kFloat32,
                      .scales = {.token = 1.0 / static_cast<double>(num_counted), .aux = 0}});
  std::map<std::string, Values> weights = ReadAs(*model, "trainer");
  for (trainer::ReplicatedBuffer& buffer : runner.model().buffers()) {
    ASSERT_TRUE(weights.contains(buffer.spec.name)) << buffer.spec.name;
    runner.Write(weights.extract(buffer.spec.name).mapped(), buffer.values);
  }
  ASSERT_EQ(weights.size(), runner.params().specs().size());
  for (const auto& [name, values] : weights) {
    ASSERT_TRUE(runner.params().specs().contains(name)) << name;
    runner.params().WriteWeight(name, values);
  }

  const StepValues step = runner.Step();
  const double loss = std::accumulate(step.losses.begin(), step.losses.end(), 0.0) /
                      static_cast<double>(num_counted);
  const double loss_error = RelativeError({loss}, ReadTensor(*reference->source, "loss"));
  EXPECT_LE(loss_error, kTransformersTolerance);
  Values logits;
  runner.Evaluate(&logits);
  const double logits_error = RelativeError(logits, ReadTensor(*reference->source, "logits"));
  EXPECT_LE(logits_error, kTransformersTolerance);

  double worst = 0;
  const auto named =
      NameAsTransformers(directory / "ckpt", step.gradients, runner.params().specs());
  for (const auto& [name, want] : ReadGradientSummaries(directory / "reference.json")) {
    ASSERT_TRUE(named.contains(name)) << name;
    const Values& have = named.at(name);
    const double error = std::max(RelativeError({MaxAbs(have)}, {want.max_abs}),
                                  RelativeError({Norm(have)}, {want.l2}));
    EXPECT_LE(error, kTransformersTolerance) << name;
    worst = std::max(worst, error);
    for (std::size_t i = 0; i < want.first.size(); ++i) {
      EXPECT_NEAR(have[i], want.first[i], kTransformersTolerance * want.max_abs) << name;
    }
  }
  const auto gradients = ReadReferenceGradients(directory / "ckpt", reference);
  EXPECT_TRUE(gradients.empty() || gradients.size() == step.gradients.size());
  for (const auto& [name, want] : gradients) {
    ASSERT_TRUE(step.gradients.contains(name)) << name;
    const double error = RelativeError(step.gradients.at(name), want);
    EXPECT_LE(error, kTransformersTolerance) << name;
    worst = std::max(worst, error);
  }
  std::cout << GetParam() << ": loss " << loss_error << ", logits " << logits_error << ", "
            << (gradients.empty() ? "summaries of gradients " : "gradients ") << worst << "\n";
}

INSTANTIATE_TEST_SUITE_P(Golden, TransformersTest, ::testing::ValuesIn(Cases(true)), TestName);

class OtherFamiliesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(OtherFamiliesTest, AreRefused) {
  const Path path = GoldenDir() / "hf" / GetParam() / "ckpt";
  const auto model = OpenModel(PosixStorage(), path, {});
  if (!model.ok()) {
    EXPECT_THAT(model, FailsWith(ErrorKind::kUnsupported));
  } else {
    EXPECT_THAT(ReadModelConfig(model->config).status(), FailsWith(ErrorKind::kUnsupported));
  }
}

// The selection inside the source tree has none.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OtherFamiliesTest);
INSTANTIATE_TEST_SUITE_P(Golden, OtherFamiliesTest, ::testing::ValuesIn(Cases(false)), TestName);

}  // namespace
}  // namespace ckpt::testing
