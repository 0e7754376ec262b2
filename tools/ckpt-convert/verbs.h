// The verbs of ckpt-convert. Each is a name for one kind of conversion.
#ifndef CKPT_TOOLS_CKPT_CONVERT_VERBS_H_
#define CKPT_TOOLS_CKPT_CONVERT_VERBS_H_

#include <array>
#include <string_view>

namespace ckpt::cli {

struct ConvertVerb {
  std::string_view name;
  std::string_view from;  // naming of the source, as in layout tables
  std::string_view to;    // format of the target
  std::string_view purpose;
  std::array<std::string_view, 2> examples;
};

inline constexpr std::array kConvertVerbs = {
    ConvertVerb{"hf-to-fsdp",
                "hf",
                "fsdp_dtensor",
                "Convert a Hugging Face repository to a Megatron-FSDP checkpoint",
                {"ckpt-convert hf-to-fsdp Qwen3-30B-A3B out/qwen3 --parity 8",
                 "ckpt-convert hf-to-fsdp Llama-3.1-8B out/llama --transformer-impl local --dtype "
                 "float32"}},
    ConvertVerb{
        "fsdp-to-hf",
        "fsdp_dtensor",
        "hf",
        "Convert a Megatron-FSDP checkpoint to a Hugging Face repository",
        {"ckpt-convert fsdp-to-hf out/qwen3 published/qwen3",
         "ckpt-convert fsdp-to-hf run7/ckpt llama-sft --hf-assets Llama-3.1-8B --dtype bfloat16"}},
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CKPT_CONVERT_VERBS_H_
