#include "tools/ckpt-train/experiment/internal/proxy.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "core/json/json_writer.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/random/philox.h"

namespace ckpt::train {
namespace {

constexpr std::uint64_t kTextSeed = 2025;
constexpr int kDocuments = 400;
constexpr int kSentencesPerDocument = 6;

constexpr std::array<std::string_view, 8> kNouns = {"fox",    "miller", "river", "lantern",
                                                    "garden", "ship",   "tower", "child"};
constexpr std::array<std::string_view, 6> kAdjectives = {"old",    "quiet", "silver",
                                                         "little", "brave", "hidden"};
constexpr std::array<std::string_view, 6> kVerbs = {"finds",  "follows", "guards",
                                                    "paints", "hears",   "remembers"};
constexpr std::array<std::string_view, 10> kNumbers = {"zero", "one", "two",   "three", "four",
                                                       "five", "six", "seven", "eight", "nine"};

// Draws one after another from one stream.
class Draws {
 public:
  std::uint64_t Below(std::uint64_t bound) {
    return trainer::UniformBelow(key_, position_++, bound);
  }
  template <std::size_t kSize>
  std::string_view From(const std::array<std::string_view, kSize>& words) {
    return words[Below(kSize)];
  }

 private:
  const std::array<std::uint32_t, 2> key_ = trainer::StreamKey(kTextSeed, "experiment text");
  std::uint64_t position_ = 0;
};

// Operands are named before they are used: calls in one expression would have no order.
std::string Scene(Draws& draws) {
  const std::string_view adjective = draws.From(kAdjectives);
  const std::string_view subject = draws.From(kNouns);
  const std::string_view verb = draws.From(kVerbs);
  const std::string_view object = draws.From(kNouns);
  return fmt::format("the {} {} {} the {}.", adjective, subject, verb, object);
}

std::string Sum(Draws& draws) {
  const std::uint64_t total = draws.Below(kNumbers.size());
  const std::uint64_t first = draws.Below(total + 1);
  return fmt::format("{} and {} make {}.", kNumbers[first], kNumbers[total - first],
                     kNumbers[total]);
}

}  // namespace

layout::Configuration ProxySettings(std::int64_t train_iters) {
  return {
      {"num_layers", 8},
      {"hidden_size", 64},
      {"ffn_hidden_size", 192},
      {"num_attention_heads", 4},
      {"vocab_size", trainer::kByteVocabSize},
      {"multi_latent_attention", true},
      {"q_lora_rank", 24},
      {"kv_lora_rank", 16},
      {"qk_head_dim", 16},
      {"qk_pos_emb_head_dim", 8},
      {"v_head_dim", 16},
      {"num_experts", 8},
      {"moe_layer_freq", layout::Value::List{0, 0, 0, 1, 1, 1, 1, 1}},
      {"moe_ffn_hidden_size", 48},
      {"moe_shared_expert_intermediate_size", 48},
      {"moe_router_topk", 4},
      {"moe_router_score_function", "sigmoid"},
      {"moe_router_num_groups", 4},
      {"moe_router_group_topk", 2},
      {"moe_router_topk_scaling_factor", 2.5},
      {"moe_router_enable_expert_bias", true},
      {"moe_router_bias_update_rate", 1e-3},
      {"moe_router_load_balancing_type", "seq_aux_loss"},
      {"moe_aux_loss_coeff", 1e-4},
      {"seq_length", 256},
      {"micro_batch_size", 1},
      {"global_batch_size", 8},
      {"lr", 5e-4},
      {"min_lr", 5e-5},
      {"lr_decay_style", "cosine"},
      {"lr_warmup_iters", std::min<std::int64_t>(10, train_iters / 2)},
      {"lr_decay_iters", train_iters},
      {"weight_decay", 0.1},
      {"adam_beta2", 0.95},
      {"clip_grad", 1.0},
  };
}

std::string ProxyText() {
  Draws draws;
  std::string lines;
  for (int document = 0; document < kDocuments; ++document) {
    std::string text;
    for (int sentence = 0; sentence < kSentencesPerDocument; ++sentence) {
      if (!text.empty()) text += ' ';
      text += draws.Below(3) == 0 ? Sum(draws) : Scene(draws);
    }
    lines += fmt::format("{{\"text\": {}}}\n", JsonQuote(text));
  }
  return lines;
}

}  // namespace ckpt::train
