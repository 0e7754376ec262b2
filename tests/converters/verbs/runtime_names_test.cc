// What a program holds under the trainer's names, seen as Transformers holds it at run time.

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "converters/verbs/model_source.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/nest_reader.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

constexpr std::string_view kConfig = R"({
  "model_type": "deepseek_v3", "num_hidden_layers": 1, "hidden_size": 2, "num_attention_heads": 1,
  "vocab_size": 3, "intermediate_size": 2, "moe_intermediate_size": 1, "n_routed_experts": 2,
  "n_shared_experts": 1, "first_k_dense_replace": 0, "kv_lora_rank": 2, "q_lora_rank": null,
  "qk_nope_head_dim": 1, "qk_rope_head_dim": 2, "v_head_dim": 1, "padded_vocab_size": 4})";

// A tensor of float32 whose elements count up from `first`.
MemoryTensor Counting(std::string key, Dims shape, float first) {
  std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
  for (float& value : values) value = first++;
  const ByteSpan bytes = std::as_bytes(std::span(values));
  return {std::move(key), DType::kFloat32, std::move(shape), Bytes(bytes.begin(), bytes.end())};
}

// The gradients of one layer: experts apart, fc1 in one piece, no gradient of the routing
// correction.
std::vector<MemoryTensor> Gradients() {
  const std::string layer = "decoder.layers.0.";
  return {Counting("embedding.word_embeddings.weight", {4, 2}, 0),
          Counting(layer + "input_layernorm.weight", {2}, 10),
          Counting(layer + "self_attention.linear_q_proj.weight", {3, 2}, 20),
          Counting(layer + "self_attention.linear_kv_down_proj.weight", {4, 2}, 30),
          Counting(layer + "self_attention.kv_layernorm.weight", {2}, 40),
          Counting(layer + "self_attention.linear_kv_up_proj.weight", {2, 2}, 50),
          Counting(layer + "self_attention.linear_proj.weight", {2, 1}, 60),
          Counting(layer + "pre_mlp_layernorm.weight", {2}, 70),
          Counting(layer + "mlp.router.weight", {2, 2}, 80),
          Counting(layer + "mlp.experts.linear_fc1.weight0", {2, 2}, 100),
          Counting(layer + "mlp.experts.linear_fc1.weight1", {2, 2}, 110),
          Counting(layer + "mlp.experts.linear_fc2.weight0", {2, 1}, 120),
          Counting(layer + "mlp.experts.linear_fc2.weight1", {2, 1}, 130),
          Counting(layer + "mlp.shared_experts.linear_fc1.weight", {2, 2}, 140),
          Counting(layer + "mlp.shared_experts.linear_fc2.weight", {2, 1}, 150),
          Counting("decoder.final_layernorm.weight", {2}, 160),
          Counting("output_layer.weight", {4, 2}, 170)};
}

TEST(RuntimeNames, AreAViewOfWhatTheTrainerHolds) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/hf"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/hf/config.json", AsBytes(kConfig)), IsOk());
  OpenedCheckpoint opened;
  opened.path = "/nowhere";
  auto source = MakeMemorySource(Gradients());
  ASSERT_THAT(source, IsOk());
  opened.source = std::move(source).value();

  OpenModelOptions options;
  options.assets = "/hf";
  options.naming = "trainer";
  options.allow_missing = true;
  const auto model = UnderstandModel(
      *storage, std::make_shared<const OpenedCheckpoint>(std::move(opened)), options);
  ASSERT_THAT(model, IsOk());
  const auto view = ViewModel(*model, "hf", {{"expert_layout", "fused"}});
  ASSERT_THAT(view, IsOk());

  std::map<std::string, std::vector<float>> values;
  for (std::size_t t = 0; t < view->tensors.size(); ++t) {
    Bytes bytes;
    ASSERT_THAT(StreamRecipe(model->source(), view->recipes[t], view->tensors[t].shape, 1 << 20,
                             [&](ByteSpan block) {
                               Append(block, bytes);
                               return OkStatus();
                             }),
                IsOk());
    std::vector<float>& floats = values[view->tensors[t].key];
    floats.resize(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
  }
  const std::string layer = "model.layers.0.";
  const std::map<std::string, std::vector<float>> want = {
      {"model.embed_tokens.weight", {0, 1, 2, 3, 4, 5}},  // without the padding
      {layer + "input_layernorm.weight", {10, 11}},
      {layer + "self_attn.q_proj.weight", {20, 21, 22, 23, 24, 25}},
      {layer + "self_attn.kv_a_proj_with_mqa.weight", {30, 31, 32, 33, 34, 35, 36, 37}},
      {layer + "self_attn.kv_a_layernorm.weight", {40, 41}},
      {layer + "self_attn.kv_b_proj.weight", {50, 51, 52, 53}},
      {layer + "self_attn.o_proj.weight", {60, 61}},
      {layer + "post_attention_layernorm.weight", {70, 71}},
      {layer + "mlp.gate.weight", {80, 81, 82, 83}},
      {layer + "mlp.experts.gate_up_proj", {100, 101, 102, 103, 110, 111, 112, 113}},
      {layer + "mlp.experts.down_proj", {120, 121, 130, 131}},
      {layer + "mlp.shared_experts.gate_proj.weight", {140, 141}},
      {layer + "mlp.shared_experts.up_proj.weight", {142, 143}},
      {layer + "mlp.shared_experts.down_proj.weight", {150, 151}},
      {"model.norm.weight", {160, 161}},
      {"lm_head.weight", {170, 171, 172, 173, 174, 175}}};
  EXPECT_EQ(values, want);
}

}  // namespace
}  // namespace ckpt
