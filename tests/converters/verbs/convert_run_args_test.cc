// What the arguments of a run say of its model, where the target has it in another form.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/internal/convert_run.h"
#include "tests/converters/verbs/convert_run_fixture.h"

namespace ckpt {
namespace {

using layout::Value;
using testing::ConvertRunTest;
using testing::IsOk;

class ConvertRunArgsTest : public ConvertRunTest {
 protected:
  // Dense, of two layers.
  static TrainingState State() { return WholeState(RunOf("fsdp_dtensor", "dense_fsdp2")); }

  // The run as the format stores it under its own names.
  static TrainingRun RunFor(const TrainingState& state, const std::string& format,
                            const layout::Choices& choices) {
    const Format& target = **FindFormat(format);
    auto view = ViewModel(state.weights, format, choices);
    EXPECT_THAT(view, IsOk());
    for (TargetTensor& tensor : view->tensors) {
      tensor.key = target.run->weight_key(tensor.key.substr(view->layout.prefix.size()));
    }
    view->layout.prefix.clear();
    EXPECT_THAT(AddOptimizer(state, target, {}, *view), IsOk());
    std::vector<LeftOutEntry> left_out;
    auto run = RunForTarget(state, target, *view, left_out);
    EXPECT_THAT(run, IsOk());
    return run.ok() ? *std::move(run) : TrainingRun();
  }

  // Null also if it is not there.
  static Value Arg(const TrainingRun& run, const std::string& name) {
    const Value* const found = FindArg(run, name);
    return found == nullptr ? Value() : *found;
  }
};

// Megatron-LM computes `padded_vocab_size` from its tokenizer and leaves `vocab_size` unset.
TEST_F(ConvertRunArgsTest, SayHowManyRowsAVocabularyWithoutPaddingHas) {
  TrainingState state = State();
  const Value rows = state.weights.config.at("vocab_size");
  for (const bool is_there : {true, false}) {
    SetArg("padded_vocab_size", rows, state.run);
    SetArg("vocab_size", Value(), state.run);
    if (!is_there) {
      std::erase_if(state.run.args, [](const auto& arg) { return arg.first == "vocab_size"; });
    }
    const TrainingRun run = RunFor(state, "fsdp2", {});
    EXPECT_EQ(Arg(run, "vocab_size"), rows);
    EXPECT_EQ(FindArg(run, "padded_vocab_size"), nullptr);
    const TrainingRun padded = RunFor(state, "torch_dist", {});
    EXPECT_EQ(Arg(padded, "vocab_size"), Value());
    EXPECT_EQ(Arg(padded, "padded_vocab_size"), rows);
  }
  SetArg("vocab_size", 60, state.run);
  EXPECT_EQ(Arg(RunFor(state, "fsdp2", {}), "vocab_size"), Value(60));
}

// A loader asks for the keys that the run's model would give to its layers.
TEST_F(ConvertRunArgsTest, SayWhatTheKeysOfLayersAre) {
  const std::string freq = "moe_layer_freq";
  const std::string apart = "hetereogenous_dist_checkpoint";
  const layout::Choices per_layer = {{"layer_keys", "per_layer"}};
  const layout::Choices stacked = {{"layer_keys", "stacked"}};
  const Value ones(Value::List{1, 1});
  struct Case {
    const char* name;
    std::int64_t experts;
    Value freq;
    Value apart;
    layout::Choices keys;
    Value want_freq;
    Value want_apart;
  };
  for (const Case& c :
       {Case{"as it was", 4, 1, false, stacked, 1, false},
        Case{"apart as it was", 4, ones, {}, per_layer, ones, {}},
        Case{"apart by a number", 4, 2, {}, per_layer, 2, {}},
        Case{"experts, now apart", 4, 1, false, per_layer, ones, false},
        Case{"experts without a number", 4, {}, {}, per_layer, ones, {}},
        Case{"experts, now stacked", 4, ones, {}, stacked, 1, {}},
        Case{"dense, now apart", 0, 1, {}, per_layer, 1, true},
        Case{"dense, now stacked", 0, 1, true, stacked, 1, false},
        Case{"dense with a list", 0, Value::List{0, 0}, {}, stacked, 1, {}},
        Case{"no layer has them", 4, Value::List{0, 0}, {}, stacked, Value::List{0, 0}, {}}}) {
    SCOPED_TRACE(c.name);
    TrainingState state = State();
    SetArg("num_layers", 2, state.run);
    SetArg("num_experts", c.experts, state.run);
    SetArg(freq, c.freq, state.run);
    SetArg(apart, c.apart, state.run);
    const TrainingRun run = RunFor(state, "torch_dist", c.keys);
    EXPECT_EQ(Arg(run, freq), c.want_freq);
    EXPECT_EQ(Arg(run, apart), c.want_apart);
    // The names of others have no such form.
    const TrainingRun other = RunFor(state, "fsdp_dtensor", {});
    EXPECT_EQ(Arg(other, freq), c.freq);
    EXPECT_EQ(Arg(other, apart), c.apart);
  }
}

}  // namespace
}  // namespace ckpt
