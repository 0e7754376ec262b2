#include "converters/verbs/side_files.h"

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/registry/registry.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

// Makes files of one byte and sorts them.
Result<SideFiles> Sort(const std::vector<std::string>& names) {
  const auto storage = MakeMemoryStorage();
  for (const std::string& name : names) {
    const Path path = Path("/repo") / name;
    EXPECT_THAT(storage->MakeDirectories(path.parent_path()), testing::IsOk());
    EXPECT_THAT(WriteSmallFile(*storage, path, AsBytes("x")), testing::IsOk());
  }
  return ListSideFiles(*storage, "/repo");
}

std::vector<std::string> NamesOf(const std::vector<LeftOutEntry>& entries) {
  std::vector<std::string> names;
  for (const LeftOutEntry& entry : entries) {
    EXPECT_EQ(entry.bytes, 1U) << entry.key;
    EXPECT_FALSE(entry.why.empty()) << entry.key;
    names.push_back(entry.key);
  }
  return names;
}

TEST(SideFiles, WhatAPublishedModelHasIsCarried) {
  const std::vector<std::string> published = {".gitattributes",
                                              "LICENSE",
                                              "LICENSE.txt",
                                              "Notice",
                                              "README.md",
                                              "USE_POLICY.md",
                                              "added_tokens.json",
                                              "additional_chat_templates/tool_use.jinja",
                                              "chat_template.jinja",
                                              "chat_template.json",
                                              "config.json",
                                              "config_sentence_transformers.json",
                                              "configuration_deepseek.py",
                                              "figures/benchmark.png",
                                              "generation_config.json",
                                              "inference/configs/config_671B.json",
                                              "inference/model.py",
                                              "inference/requirements.txt",
                                              "merges.txt",
                                              "model.safetensors.index.json",
                                              "modeling.py",
                                              "modules.json",
                                              "1_Pooling/config.json",
                                              "original/params.json",
                                              "original/tokenizer.model",
                                              "params.json",
                                              "preprocessor_config.json",
                                              "processor_config.json",
                                              "qwen.tiktoken",
                                              "special_tokens_map.json",
                                              "spiece.model",
                                              "tekken.json",
                                              "tokenizer.json",
                                              "tokenizer.model",
                                              "tokenizer.model.v3",
                                              "tokenizer_config.json",
                                              "video_preprocessor_config.json",
                                              "vocab.json",
                                              "vocab.txt"};
  const Result<SideFiles> files = Sort(published);
  ASSERT_THAT(files, testing::IsOk());
  EXPECT_THAT(files->carried, ::testing::UnorderedElementsAreArray(published));
  EXPECT_THAT(files->left_out, ::testing::IsEmpty());
}

TEST(SideFiles, WhatATrainingRunLeavesIsLeftOutWithItsBytes) {
  const std::vector<std::string> left_out = {
      "adapter_config.json",
      "adapter_model.safetensors",
      "all_results.json",
      "checkpoint-500/README.md",
      "checkpoint-500/chat_template.jinja",
      "checkpoint-500/config.json",
      "checkpoint-500/global_step500/zero_to_fp32.py",
      "checkpoint-500/model.safetensors",
      "checkpoint-500/optimizer.pt",
      "checkpoint-500/tokenizer.json",
      "consolidated.00.pth",
      "ds_config.json",
      "ds_config_zero3.json",
      "global_step500/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
      "latest",
      "model-q4.gguf",
      "model.onnx",
      "optimizer.pt",
      "original/consolidated.00.pth",
      "pytorch_model.bin",
      "pytorch_model.bin.index.json",
      "rng_state_0.pth",
      "runs/Nov23/events.out.tfevents.1",
      "scheduler.pt",
      "tf_model.h5",
      "trainer_state.json",
      "training_args.bin",
      "vocab.pt"};
  std::vector<std::string> all = left_out;
  all.insert(all.end(),
             {"config.json", "original/params.json", ".git/config", ".cache/x", "ckptkit.json",
              "integrity.json", "out.ckptkit-partial/model.safetensors"});
  const Result<SideFiles> files = Sort(all);
  ASSERT_THAT(files, testing::IsOk());
  EXPECT_THAT(files->carried, ::testing::ElementsAre("config.json", "original/params.json"));
  EXPECT_THAT(NamesOf(files->left_out), ::testing::ElementsAreArray(left_out));
}

TEST(SideFiles, GitLfsPointersAreNamed) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/repo"), testing::IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/repo/tokenizer.model",
                             AsBytes("version https://git-lfs.github.com/spec/v1\noid sha256:"
                                     "4d7a\nsize 499723\n")),
              testing::IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/repo/config.json", AsBytes("{}")), testing::IsOk());
  EXPECT_THAT(CheckFetched(*storage, "/repo", {"config.json"}), testing::IsOk());
  const Status status = CheckFetched(*storage, "/repo", {"config.json", "tokenizer.model"});
  EXPECT_THAT(status, testing::FailsWith(ErrorKind::kIncomplete));
  EXPECT_EQ(status.first().file, "/repo/tokenizer.model");
  EXPECT_EQ(status.first().expected, "a file of 499723 bytes");
}

TEST(SideFiles, AnAdaptersConfigurationIsCarriedWithItsWeightsAlone) {
  const Result<SideFiles> alone = Sort({"adapter_config.json", "adapter_model.safetensors"});
  ASSERT_THAT(alone, testing::IsOk());
  EXPECT_THAT(alone->carried, ::testing::ElementsAre("adapter_config.json"));
  for (const std::string model :
       {"model.safetensors", "pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "m.gguf"}) {
    const Result<SideFiles> beside =
        Sort({"adapter_config.json", "adapter_model.safetensors", model});
    ASSERT_THAT(beside, testing::IsOk());
    EXPECT_THAT(beside->carried, ::testing::IsEmpty()) << model;
  }
}

TEST(SideFiles, WhatATrainerLeavesBesideAnAdapterIsNoModel) {
  const Result<SideFiles> files =
      Sort({"adapter_config.json", "adapter_model.safetensors", "optimizer.pt", "rng_state_0.pth",
            "scheduler.pt", "training_args.bin"});
  ASSERT_THAT(files, testing::IsOk());
  EXPECT_THAT(files->carried, ::testing::ElementsAre("adapter_config.json"));
  EXPECT_THAT(NamesOf(files->left_out),
              ::testing::ElementsAre("adapter_model.safetensors", "optimizer.pt", "rng_state_0.pth",
                                     "scheduler.pt", "training_args.bin"));
  // Where the weights lie elsewhere, the configuration is all that is here.
  const Result<SideFiles> assets = Sort({"adapter_config.json"});
  ASSERT_THAT(assets, testing::IsOk());
  EXPECT_THAT(assets->carried, ::testing::ElementsAre("adapter_config.json"));
  const Result<SideFiles> other = Sort({"adapter_config.json", "model.pt"});
  ASSERT_THAT(other, testing::IsOk());
  EXPECT_THAT(other->carried, ::testing::IsEmpty());
}

// The manifest is JSON: it could not name such a file, and would call the copy damaged.
TEST(SideFiles, OfNamesThatAreNoUtf8AreRefused) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/repo"), testing::IsOk());
  ASSERT_THAT(WriteSmallFile(*storage, "/repo/a\xff.txt", AsBytes("x")), testing::IsOk());
  EXPECT_THAT(ListSideFiles(*storage, "/repo"), testing::FailsWith(ErrorKind::kUnsupported));
}

std::vector<std::string> NamesOf(const std::vector<WriteCopy>& copies) {
  std::vector<std::string> names;
  for (const WriteCopy& copy : copies) names.push_back(copy.name);
  return names;
}

TEST(SideFiles, TravelAsTheTargetsReadersNeedThem) {
  const std::vector<std::string> names = {"config.json", "consolidated.safetensors.index.json",
                                          "model.safetensors.index.json", "tokenizer.json"};
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/repo"), testing::IsOk());
  for (const std::string& name : names) {
    const std::string text = name == "config.json" ? R"({"dtype": "bfloat16"})" : "of " + name;
    ASSERT_THAT(WriteSmallFile(*storage, Path("/repo") / name, AsBytes(text)), testing::IsOk());
  }
  const auto carry = [&](const CarryOptions& options) {
    return CarrySideFiles(*storage, "/repo", names, options).value();
  };
  const Format* const hf = *FindFormat("hf");
  const CarriedFiles published = carry({.target = hf, .dtype = DType::kFloat32});
  EXPECT_EQ(NamesOf(published.copies), std::vector<std::string>{"tokenizer.json"});
  ASSERT_EQ(published.texts.size(), 1U);
  EXPECT_EQ(published.texts[0].name, "config.json");
  EXPECT_EQ(published.texts[0].content, R"({"dtype": "float32"})");
  ASSERT_EQ(published.indexes.size(), 2U);
  EXPECT_EQ(published.indexes[0].name, "consolidated.safetensors.index.json");
  EXPECT_EQ(published.indexes[1].content, "of model.safetensors.index.json");
  // What config.json says already stays byte for byte.
  const CarriedFiles same = carry({.target = hf, .dtype = DType::kBfloat16, .drops_index = true});
  EXPECT_EQ(NamesOf(same.copies), (std::vector<std::string>{"config.json", "tokenizer.json"}));
  EXPECT_TRUE(same.indexes.empty());
  // Readers of Megatron's formats do not go by config.json.
  const Format* const megatron = *FindFormat("fsdp_dtensor");
  EXPECT_EQ(NamesOf(carry({.target = megatron, .dtype = DType::kFloat32}).copies), names);
  EXPECT_EQ(NamesOf(carry({.target = megatron, .drops_index = true}).copies),
            (std::vector<std::string>{"config.json", "tokenizer.json"}));
}

TEST(SideFiles, OfDecodedWeightsSayNothingOfTheirCodes) {
  const std::vector<std::string> names = {"config.json"};
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/repo"), testing::IsOk());
  const std::string text =
      R"({"quantization_config": {"quant_method": "fp8"}, "dtype": "float16"})";
  ASSERT_THAT(WriteSmallFile(*storage, "/repo/config.json", AsBytes(text)), testing::IsOk());
  for (const char* format : {"hf", "fsdp_dtensor"}) {
    const auto files = CarrySideFiles(
        *storage, "/repo", names,
        {.target = *FindFormat(format), .dtype = DType::kBfloat16, .is_decoded = true});
    ASSERT_THAT(files, testing::IsOk());
    EXPECT_TRUE(files->copies.empty());
    ASSERT_EQ(files->texts.size(), 1U);
    EXPECT_EQ(files->texts[0].content,
              format == std::string("hf") ? R"({"dtype": "bfloat16"})" : R"({"dtype": "float16"})");
  }
}

}  // namespace
}  // namespace ckpt
