// Small runs by their settings.
#ifndef CKPT_TESTS_TRAINER_RUN_SMALL_RUN_H_
#define CKPT_TESTS_TRAINER_RUN_SMALL_RUN_H_

#include "core/layout/value.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/parse_train_config.h"

namespace ckpt::testing {

// Three layers, the last two with eight experts; sequences of four tokens.
inline Result<trainer::TrainConfig> SmallMoeRun(int ranks, const layout::Configuration& more = {}) {
  layout::Configuration settings = {{"num_layers", 3},
                                    {"hidden_size", 20},
                                    {"ffn_hidden_size", 28},
                                    {"num_attention_heads", 4},
                                    {"kv_channels", 6},
                                    {"vocab_size", 37},
                                    {"num_experts", 8},
                                    {"moe_ffn_hidden_size", 9},
                                    {"moe_layer_freq", layout::Value::List{0, 1, 1}},
                                    {"seq_length", 4}};
  for (const auto& [name, value] : more) settings[name] = value;
  trainer::SettingsReader reader(settings);
  return trainer::ParseTrainConfig(reader, ranks);
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_RUN_SMALL_RUN_H_
