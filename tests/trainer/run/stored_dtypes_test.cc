// Numbers of a source that the trainer's float32 does not hold: no run goes on with rounded ones,
// and a run that takes weights alone says that it rounds them.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/convert.h"
#include "converters/verbs/training_state.h"
#include "core/checkpoint/memory_source.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/tensor/dtype.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/run/saved_state.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::SmallSessions;
using testing::With;
using trainer::HostGroup;

// The same tensors, all 0, those of float32 in float64.
std::shared_ptr<const CheckpointSource> Widened(const CheckpointSource& source) {
  std::vector<MemoryTensor> tensors;
  for (const GlobalTensor& tensor : source.index().tensors()) {
    const DType dtype = tensor.dtype == DType::kFloat32 ? DType::kFloat64 : tensor.dtype;
    const std::uint64_t bytes = CountBytes(tensor.shape, dtype).value();
    tensors.push_back({.key = tensor.key,
                       .dtype = dtype,
                       .shape = tensor.shape,
                       .values = Bytes(static_cast<std::size_t>(bytes))});
  }
  return MakeMemorySource(std::move(tensors)).value();
}

class StoredDtypesTest : public ::testing::Test {
 protected:
  TrainingState Saved() { return testing::SavedState(*storage_); }
  Status Load(const TrainingState& state) { return testing::LoadInto(*storage_, state); }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(StoredDtypesTest, ARunDoesNotGoOnWithRoundedWeights) {
  TrainingState state = Saved();
  EXPECT_THAT(Load(state), IsOk());
  state.weights.decoded.source = Widened(state.weights.source());
  const Status refused = Load(state);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kDtypeMismatch));
  const Problem& first = refused.first();
  EXPECT_THAT(first.file, HasSubstr("/runs/a/iter_0000002"));
  EXPECT_THAT(first.tensor, HasSubstr("weight"));
  EXPECT_EQ(first.expected, "float32");
  EXPECT_EQ(first.actual, "float64");
  EXPECT_THAT(first.hint, HasSubstr("--set finetune=true"));
}

TEST_F(StoredDtypesTest, ARunDoesNotGoOnWithWhatTheOptimizerKeepsRounded) {
  const TrainingState saved = Saved();
  ASSERT_EQ(saved.moments.size(), 2U);
  for (std::size_t m = 0; m < saved.moments.size(); ++m) {
    TrainingState state = saved;
    state.moments[m].decoded.source = Widened(saved.moments[m].source());
    const Status refused = Load(state);
    ASSERT_THAT(refused, FailsWith(ErrorKind::kDtypeMismatch));
    EXPECT_THAT(refused.first().message, HasSubstr("what the optimizer keeps"));
    EXPECT_EQ(refused.first().actual, "float64");
  }
}

// What a published model in float64 says to a run that begins with it, and to a run that takes the
// weights of the run.
TEST(RoundedWeightsTest, AreTold) {
  const testing::TempDir directory;
  ConvertOptions options;
  options.source = testing::GoldenDir() / "hf" / "llama-tied-fp32" / "ckpt";
  options.target = directory.path() / "wide";
  options.to.container = *FindFormat("hf");
  options.dtype = DType::kFloat64;
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_THAT(RunConversion(PosixStorage(), *prepared, options), IsOk());

  const layout::Configuration common = {
      {"seq_length", 4}, {"global_batch_size", 2}, {"train_iters", 3}};
  const layout::Configuration sources[] = {{{"init", "hf:" + options.target.string()}},
                                           {{"load", options.target.string()}, {"finetune", true}}};
  for (const layout::Configuration& source : sources) {
    auto sessions = SmallSessions::Create(PosixStorage(), With(common, source), 2);
    ASSERT_THAT(sessions, IsOk());
    EXPECT_THAT(
        sessions->Run([](RankSession& session, HostGroup&) { return session.Start().status(); }),
        IsOk());
    EXPECT_THAT(sessions->notices(),
                Contains(AllOf(HasSubstr("wide"), HasSubstr("rounded"), HasSubstr("float64"))));
  }
}

}  // namespace
}  // namespace ckpt::train
