// The common state's file: what metadata.json says of it, and what becomes of a copy without it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/format.h"
#include "formats/torch_dist/format.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/source.h"
#include "tests/formats/torch_dist/planned_files.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

class TorchDistCommonFileTest : public ::testing::Test {
 protected:
  // A checkpoint of one tensor, which is not filled, and without common.pt.
  void Write(std::string_view generation) {
    WeightsRequest request;
    request.tensors = {{.key = "w", .dtype = DType::kFloat32, .shape = {2, 3}}};
    request.forms["torch-dist-generation"] = generation;
    const auto planned = PlanWeights(kFormat, std::move(request));
    ASSERT_THAT(planned, IsOk());
    const WritePlan& plan = planned->plan;
    for (std::uint32_t f = 0; f < plan.files.size(); ++f) {
      if (plan.files[f].name.ends_with(kCommonFile)) continue;
      testing::WritePlannedFile(plan, f, *storage_);
    }
  }
  void Say(std::string_view metadata) {
    ASSERT_THAT(storage_->RemoveAll("/run/release/metadata.json"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/run/release/metadata.json", AsBytes(metadata)), IsOk());
  }
  std::unique_ptr<Source> Opened() {
    auto source = Source::Open(*storage_, "/run/release");
    EXPECT_THAT(source, IsOk());
    return source.ok() ? *std::move(source) : nullptr;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(TorchDistCommonFileTest, ALostFileIsAnObjectThatCannotBeRead) {
  Write("compat");
  const auto source = Opened();
  const ObjectEntry* const common = source->index().FindObject(kCommonKey);
  ASSERT_NE(common, nullptr);
  for (const Status& refused :
       {source->ReadObject(*common).status(), source->ReadPickled(*common).status(),
        source->FileSize(common->file).status(), ReadArgs(*source).status()}) {
    ASSERT_THAT(refused, FailsWith(ErrorKind::kMissingFile));
    EXPECT_EQ(refused.first().file, "/run/release/common.pt");
    EXPECT_THAT(refused.first().hint, HasSubstr("copy all files"));
  }
  const std::vector<Problem> found = ValidateIndex(*source);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].kind, ErrorKind::kMissingFile);
  EXPECT_EQ(found[0].severity, Severity::kError);
  EXPECT_EQ(found[0].tensor, kCommonKey);
}

TEST_F(TorchDistCommonFileTest, TensorsAreThereWithoutIt) {
  Write("compat");
  const auto source = Opened();
  ASSERT_NE(source->index().FindTensor("w"), nullptr);
  EXPECT_THAT(source->index().CheckDeliverable("w"), IsOk());
}

TEST_F(TorchDistCommonFileTest, NothingIsLostWhereTheCommonStateIsAnItem) {
  Write("0.19");
  EXPECT_TRUE(ValidateIndex(*Opened()).empty());
  EXPECT_THAT(ReadArgs(*Opened()), IsOk());
  // Then a file would be a second copy.
  Say(R"({"sharded_backend": "torch_dist", "common_backend": "torch"})");
  EXPECT_TRUE(ValidateIndex(*Opened()).empty());
  EXPECT_THAT(ReadArgs(*Opened()), IsOk());
}

TEST_F(TorchDistCommonFileTest, NothingIsLostThatWasNotAnnounced) {
  Write("compat");
  for (const char* metadata : {R"({"sharded_backend": "torch_dist"})",
                               R"({"sharded_backend": "torch_dist", "common_backend": null})"}) {
    Say(metadata);
    const auto source = Opened();
    EXPECT_EQ(source->index().FindObject(kCommonKey), nullptr);
    EXPECT_TRUE(ValidateIndex(*source).empty());
  }
}

TEST_F(TorchDistCommonFileTest, AnotherVersionIsRefused) {
  Write("compat");
  Say(R"({"sharded_backend": "torch_dist", "sharded_backend_version": 2})");
  EXPECT_THAT(Source::Open(*storage_, "/run/release"), FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt::torch_dist
