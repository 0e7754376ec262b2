// Quantised repositories on their way into every format.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

std::vector<std::string> QuantisedCases() {
  std::vector<std::string> names = testing::GoldenCases("hf");
  std::erase_if(names, [](const std::string& name) {
    const Path config = testing::GoldenDir() / "hf" / name / "ckpt" / "config.json";
    return Content(config).find("quantization_config") == std::string::npos;
  });
  return names;
}

class QuantisedTest : public ConvertTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // The text of the only file of this name below `directory`.
  static std::string ContentOf(const std::string& name, const Path& directory) {
    const auto files = ListRecursively(PosixStorage(), directory);
    EXPECT_THAT(files, IsOk());
    std::vector<Path> found;
    for (const std::string& file : *files) {
      if (Path(file).filename() == name) found.push_back(directory / file);
    }
    EXPECT_EQ(found.size(), 1U) << name;
    return found.empty() ? std::string() : Content(found.front());
  }
};

TEST_P(QuantisedTest, BecomesAPlainModelInEveryFormat) {
  const Path source = Golden(GetParam());
  const std::string digest = DigestAsHf(source);
  for (const char* to : {"fsdp_dtensor", "torch_dist", "fsdp2", "hf"}) {
    SCOPED_TRACE(to);
    ConvertOptions options = Between("hf", to, source, to);
    const auto report = Convert(options);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->source_digest, report->target_digest);
    EXPECT_EQ(DigestAsHf(options.target), digest);
    const auto says_so = [](const Problem& warning) {
      return warning.message.find("were decoded to bfloat16") != std::string::npos;
    };
    EXPECT_EQ(std::ranges::count_if(report->warnings, says_so), 1);
    EXPECT_THAT(ContentOf("config.json", options.target), Not(HasSubstr("quantization_config")));
    EXPECT_THAT(ContentOf("ckptkit.json", options.target), HasSubstr("\"decoded\""));
    // The way back is a plain repository, and says nothing of it.
    ConvertOptions back = Between("", "hf", options.target, std::string("back-from-") + to);
    const auto returned = Convert(back);
    ASSERT_THAT(returned, IsOk());
    EXPECT_EQ(std::ranges::count_if(returned->warnings, says_so), 0);
    EXPECT_EQ(DigestAsHf(back.target), digest);
    const std::string config = ContentOf("config.json", back.target);
    EXPECT_THAT(config, Not(HasSubstr("quantization_config")));
    EXPECT_THAT(config, HasSubstr("bfloat16"));
  }
}

TEST_P(QuantisedTest, DependsOnNeitherThreadsNorBudget) {
  ConvertOptions options = ToFsdp(Golden(GetParam()));
  ASSERT_THAT(Convert(options), IsOk());
  ExpectSameForAnyThreadsAndBudget(options.target, options);
}

// Under their own keys, tensors stay what they are.
TEST_P(QuantisedTest, StaysQuantisedWhereNothingIsRenamed) {
  ConvertOptions options = Between("", "dcp", Golden(GetParam()), "dcp");
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  const auto stored = OpenCheckpoint(PosixStorage(), Golden(GetParam()));
  const auto written = OpenCheckpoint(PosixStorage(), options.target);
  ASSERT_THAT(stored, IsOk());
  ASSERT_THAT(written, IsOk());
  const auto tensors = stored->source->index().tensors();
  ASSERT_EQ(written->source->index().tensors().size(), tensors.size());
  for (const GlobalTensor& tensor : tensors) {
    const GlobalTensor* const copy = written->source->index().FindTensor(tensor.key);
    ASSERT_NE(copy, nullptr) << tensor.key;
    EXPECT_EQ(copy->dtype, tensor.dtype) << tensor.key;
  }
  EXPECT_THAT(ContentOf("config.json", options.target), HasSubstr("quantization_config"));
}

// Rounded scales stand for other weights, and no longer are what their configuration says.
TEST_P(QuantisedTest, IsCastAfterItWasDecodedOnly) {
  ConvertOptions options = Between("", "hdf5", Golden(GetParam()), "cast.h5");
  options.dtype = DType::kFloat16;
  const auto refused = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(refused.status().first().message, HasSubstr("--dtype is for weights"));
  options.to.naming = "hf";
  EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Golden, QuantisedTest, ::testing::ValuesIn(QuantisedCases()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ckpt
