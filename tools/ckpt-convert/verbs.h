// The verbs of ckpt-convert. Each is a name for one kind of conversion.
#ifndef CKPT_TOOLS_CKPT_CONVERT_VERBS_H_
#define CKPT_TOOLS_CKPT_CONVERT_VERBS_H_

#include <array>
#include <string_view>

namespace ckpt::cli {

struct ConvertVerb {
  std::string_view name;
  std::string_view from;  // naming of the source, as in layout tables; empty: any
  std::string_view to;    // format of the target; empty: --to says, else the source's origin
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
    ConvertVerb{"hf-to-torch-dist",
                "hf",
                "torch_dist",
                "Convert a Hugging Face repository to a Megatron-Core checkpoint",
                {"ckpt-convert hf-to-torch-dist Qwen3-30B-A3B out/qwen3 --parity 8",
                 "ckpt-convert hf-to-torch-dist Llama-3.1-8B out/llama --tree megatron-bridge"}},
    ConvertVerb{
        "fsdp-to-torch-dist",
        "fsdp_dtensor",
        "torch_dist",
        "Convert a Megatron-FSDP checkpoint to a Megatron-Core checkpoint",
        {"ckpt-convert fsdp-to-torch-dist run7/ckpt run7-core",
         "ckpt-convert fsdp-to-torch-dist run7/ckpt run7-core --iteration 100 --dtype bfloat16"}},
    ConvertVerb{"torch-dist-to-hf",
                "torch_dist",
                "hf",
                "Convert a Megatron-Core checkpoint to a Hugging Face repository",
                {"ckpt-convert torch-dist-to-hf out/qwen3 published/qwen3",
                 "ckpt-convert torch-dist-to-hf run7/ckpt llama-sft --hf-assets Llama-3.1-8B"}},
    ConvertVerb{"torch-dist-to-fsdp",
                "torch_dist",
                "fsdp_dtensor",
                "Convert a Megatron-Core checkpoint to a Megatron-FSDP checkpoint",
                {"ckpt-convert torch-dist-to-fsdp run7/ckpt run7-fsdp",
                 "ckpt-convert torch-dist-to-fsdp run7/ckpt run7-fsdp --transformer-impl local"}},
    ConvertVerb{"convert",
                "",
                "",
                "Convert a checkpoint of any format to any other",
                {"ckpt-convert convert --from auto --to dcp --naming fsdp2 run7/ckpt run7-fsdp2",
                 "ckpt-convert convert --to safetensors step-1000 model --only 'model.*' --rename "
                 "'model.*=*'"}},
    ConvertVerb{"torch-to-dcp",
                "",
                "dcp",
                "Convert torch.save files to PyTorch Distributed Checkpoint, under their own keys",
                {"ckpt-convert torch-to-dcp model.pt out/dcp",
                 "ckpt-convert torch-to-dcp model.pt out/dcp --files 8 --rename 'module.*=*'"}},
    ConvertVerb{"dcp-to-torch",
                "",
                "torch_save",
                "Convert PyTorch Distributed Checkpoint to one file for torch.load",
                {"ckpt-convert dcp-to-torch step-1000 model.pt",
                 "ckpt-convert dcp-to-torch step-1000 model.pt --only 'model.*' --rename "
                 "'model.*=*'"}},
    ConvertVerb{"to-hdf5",
                "",
                "hdf5",
                "Convert a checkpoint to an HDF5 file, one data set a tensor",
                {"ckpt-convert to-hdf5 run7/ckpt/iter_0001000 run7.h5",
                 "ckpt-convert to-hdf5 model.safetensors model.h5 --only 'model.layers.0.*'"}},
    ConvertVerb{"from-hdf5",
                "",
                "",
                "Convert an HDF5 file to a checkpoint of the format that it was made from",
                {"ckpt-convert from-hdf5 run7.h5 run7-again",
                 "ckpt-convert from-hdf5 model.h5 model --to safetensors"}},
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CKPT_CONVERT_VERBS_H_
