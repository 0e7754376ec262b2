#include "formats/mp_rank/internal/arguments.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/json/json_reader.h"
#include "core/layout/flatten_json.h"
#include "core/training/weight_decay.h"
#include "formats/megatron/buffer_layout.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::TorchSaveSource;

constexpr std::string_view kArgs = "args";
constexpr std::string_view kVersion = "checkpoint_version";
// How args, a Namespace, is rendered (docs/formats/objects.md).
constexpr std::string_view kState = "$object.state.";

class Reader {
 public:
  explicit Reader(layout::Configuration members) : members_(std::move(members)) {}

  [[nodiscard]] std::optional<std::int64_t> Integer(std::string_view name) const {
    const layout::Value* const value = Find(name);
    const std::int64_t* const number = value == nullptr ? nullptr : value->AsInt();
    return number == nullptr ? std::nullopt : std::optional(*number);
  }
  // Null if it is absent.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const {
    const auto found = members_.find(std::string(kState) + std::string(name));
    return found == members_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool Flag(std::string_view name) const {
    const layout::Value* const value = Find(name);
    const bool* const flag = value == nullptr ? nullptr : value->AsBool();
    return flag != nullptr && *flag;
  }
  [[nodiscard]] bool HasNumber(std::string_view name) const {
    const layout::Value* const value = Find(name);
    return value != nullptr && (value->AsFloat() != nullptr || value->AsInt() != nullptr);
  }
  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }

 private:
  layout::Configuration members_;
};

// Before version 3, rows of linear_qkv were in another order.
Status CheckVersion(const TorchSaveSource& file, bool has_version) {
  double version = 0;
  if (has_version) {
    CKPT_ASSIGN_OR_RETURN(const RenderedObject object,
                          file.ReadObject({.key = std::string(kVersion)}));
    CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, kVersion));
    CKPT_ASSIGN_OR_RETURN(version, json.root().Double());
  }
  if (version >= 3) return OkStatus();
  return Error(ErrorKind::kUnsupported, "a checkpoint of an old version of Megatron")
      .Tensor(kVersion)
      .Expected("3.0 or later")
      .Actual(has_version ? std::to_string(version) : "none")
      .Hint("load and save it with a Megatron-LM that reads it");
}

// What Megatron makes of the options of its DistributedDataParallel.
void ReadBuckets(const Reader& reader, Arguments& arguments) {
  if (!reader.Flag("overlap_grad_reduce")) return;
  constexpr std::int64_t kMaxRanks = 1 << 24;
  const std::int64_t ranks =
      std::clamp<std::int64_t>(reader.Integer("data_parallel_size").value_or(1), 1, kMaxRanks);
  arguments.bucket_elems =
      reader.Integer("ddp_bucket_size").value_or(megatron::UsualBucketElems(ranks));
  arguments.knows_buckets = !reader.Integer("ddp_num_buckets") && *arguments.bucket_elems >= 0;
}

}  // namespace

Result<Arguments> ReadArguments(const TorchSaveSource& file) {
  const std::vector<std::string> members = file.members();
  const auto has = [&](std::string_view name) {
    return std::ranges::find(members, name) != members.end();
  };
  if (!has(kArgs)) {
    return Error(ErrorKind::kMissing, "without arguments, how ranks divide the model is not known")
        .Tensor(kArgs);
  }
  CKPT_RETURN_IF_ERROR(CheckVersion(file, has(kVersion)));
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, file.ReadObject({.key = std::string(kArgs)}));
  CKPT_ASSIGN_OR_RETURN(layout::Configuration flattened, layout::FlattenJson(object.json, kArgs));
  const Reader reader(std::move(flattened));
  Arguments arguments;
  const std::optional<std::int64_t> tensor = reader.Integer("tensor_model_parallel_size");
  if (!tensor) {
    return Error(ErrorKind::kMissing, "the arguments do not say by how many ranks tensors are cut")
        .Tensor(kArgs)
        .Expected("tensor_model_parallel_size");
  }
  arguments.sizes = {.tensor = *tensor,
                     .pipeline = reader.Integer("pipeline_model_parallel_size").value_or(1),
                     .expert = reader.Integer("expert_model_parallel_size").value_or(1)};
  arguments.expert_tensor = reader.Integer("expert_tensor_parallel_size").value_or(*tensor);
  arguments.num_layers = reader.Integer("num_layers");
  arguments.num_experts = reader.Integer("num_experts").value_or(0);
  arguments.divides_each_expert = reader.Flag("moe_extended_tp");
  arguments.is_gated = reader.Flag("swiglu") || reader.Flag("quick_geglu");
  arguments.ties_head = reader.Has("untie_embeddings_and_output_weights") &&
                        !reader.Flag("untie_embeddings_and_output_weights");
  arguments.predicts_further = reader.Integer("mtp_num_layers").value_or(0) > 0;
  ReadBuckets(reader, arguments);
  arguments.decouples_rate = reader.HasNumber("decoupled_lr");
  arguments.decays_qk_norms =
      DecaysQueryKeyNorms([&](std::string_view name) { return reader.Find(name); });
  arguments.divides_optimizer = reader.Flag("overlap_param_gather_with_optimizer_step");
  return arguments;
}

}  // namespace ckpt::mp_rank
