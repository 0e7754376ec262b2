#include "formats/torch_dist/internal/predicted_buffers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/tensor/shape.h"
#include "formats/megatron/buffer_layout.h"
#include "formats/megatron/division.h"
#include "formats/torch_dist/internal/local_parameter.h"
#include "formats/torch_dist/internal/module_order.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/run_ranks.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

// Arguments that say otherwise which stage of a pipeline has what.
constexpr std::array<std::string_view, 7> kUnequalStages = {
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout",
    "standalone_embedding_stage",
    "mtp_num_layers"};

constexpr std::string_view kDecoderLayers = "decoder.layers.";
// Of one weight: layers times experts.
constexpr std::int64_t kMaxModules = 1 << 20;
// Whose layers the model has: "transformer_engine" or "local".
constexpr std::string_view kImplementation = "transformer_impl";

Status Refuse(ErrorKind kind, std::string_view what, std::string_view name,
              std::string_view hint = kOtherForm) {
  return Error(kind, fmt::format("which parameter lies where in the run's buffers is not known: {}",
                                 what))
      .Tensor(name)
      .Hint(hint);
}

// A parameter of one rank's module.
struct Registered {
  ModulePlace place;
  DType dtype = DType::kFloat32;
  BufferPart part;
  std::int64_t elems = 0;
  bool is_shared = false;  // an embedding that another stage has, too
};

// Which stage of a pipeline has what: layers in `parts` equal parts, dealt out in turn.
struct Pipeline {
  std::int64_t stages = 1;
  std::int64_t parts = 1;  // of each stage
  std::int64_t layers = 1;

  [[nodiscard]] bool Has(std::int64_t stage, std::int64_t part, std::string_view name,
                         std::int64_t layer) const {
    std::int64_t at = stages * parts - 1;
    if (at == 0) return true;
    if (name.starts_with(kDecoderLayers)) at = layer / (layers / (stages * parts));
    if (name.starts_with("embedding.")) at = 0;
    return at == part * stages + stage;
  }
};

// Which weights the optimizer updates, by their keys.
std::set<std::string> TrainedWeights(std::span<const TargetTensor> tensors) {
  std::set<std::string> trained;
  for (const TargetTensor& tensor : tensors) {
    if (const auto state = StateIn(tensor.key)) trained.insert(state->second);
  }
  return trained;
}

Result<ModuleForm> FormOf(const RunArguments& args, bool has_experts) {
  if (!args.Has(kImplementation)) {
    return Refuse(
        ErrorKind::kMissing, "whether layers are local or those of Transformer Engine",
        "args.transformer_impl",
        "ckpt-convert --transformer-impl says it; --optimizer-form fully_reshardable needs "
        "it not");
  }
  const bool is_local = args.HasLocalLayers();
  ModuleForm form = {.norm_in_projection = !is_local};
  if (!has_experts) return form;
  const bool is_grouped = args.IsTrue("moe_grouped_gemm");
  if (!args.Has("moe_grouped_gemm")) {
    return Refuse(ErrorKind::kMissing, "whether experts are grouped", "args.moe_grouped_gemm");
  }
  if (args.HasOneArrayOfExperts()) {
    const bool is_legacy = args.IsTrue("moe_use_legacy_grouped_gemm");
    return Refuse(ErrorKind::kUnsupported, "all experts of a layer are one parameter",
                  is_legacy ? "args.moe_use_legacy_grouped_gemm" : "args.moe_grouped_gemm");
  }
  form.experts_one_by_one = !is_grouped;
  return form;
}

// Whether a buffer has the last parameter first.
bool IsInOrder(const RankBuffer& buffer, const ModuleForm& form) {
  std::optional<ModulePlace> before;
  for (const BufferBucket& bucket : buffer.buckets) {
    for (const BufferPart& part : bucket.parts) {
      const auto place = PlaceOf(part.name, part.layer, part.expert, form);
      // The last stage has a tied embedding once more.
      if (!place || part.name == kEmbeddingKey) continue;
      if (before && !(*place < *before)) return false;
      before = place;
    }
  }
  return true;
}

// The dtype of gradients beside parameters of one dtype.
DType GradientDType(const RunArguments& args, DType dtype) {
  const bool is_kept = args.IsTrue("grad_reduce_in_bf16");
  return is_kept && !args.IsTrue("accumulate_allreduce_grads_in_fp32") ? dtype : DType::kFloat32;
}

class Predictor {
 public:
  Predictor(std::span<const TargetTensor> tensors, const layout::Configuration& args)
      : args_(args),
        ranks_(RunRanks::Of(args)),
        trained_(TrainedWeights(tensors)),
        tensors_(tensors),
        ties_head_(std::ranges::find(tensors, kHeadKey, &TargetTensor::key) == tensors.end()) {}

  Result<RankBuffers> Predict() && {
    const bool has_experts =
        std::ranges::any_of(trained_, [](const std::string& name) { return IsOfExperts(name); });
    CKPT_RETURN_IF_ERROR(CheckArguments(has_experts));
    CKPT_RETURN_IF_ERROR(CheckDTypes());
    CKPT_ASSIGN_OR_RETURN(form_, FormOf(args_, has_experts));
    CKPT_RETURN_IF_ERROR(FindPipeline());
    // With expert parallelism, experts are divided by other ranks, and have an optimizer.
    const bool are_apart = has_experts && ranks_.expert > 1;
    const auto all = [&](bool of_experts) { return !of_experts || !are_apart; };
    const auto experts = [](bool of_experts) { return of_experts; };
    for (std::int64_t stage = 0; stage < ranks_.pipeline; ++stage) {
      for (std::int64_t rank = 0; rank < ranks_.tensor; ++rank) {
        CKPT_RETURN_IF_ERROR(
            AddGroup(are_apart ? "chained_0." : "", stage, rank, ranks_.tensor, all));
      }
      const std::int64_t count = are_apart ? ranks_.expert_tensor * ranks_.expert : 0;
      for (std::int64_t rank = 0; rank < count; ++rank) {
        CKPT_RETURN_IF_ERROR(AddGroup("chained_1.", stage, rank, count, experts));
      }
    }
    std::ranges::sort(buffers_, {}, &RankBuffer::id);
    return std::move(buffers_);
  }

 private:
  [[nodiscard]] Status CheckArguments(bool has_experts) const {
    struct Effect {
      std::string_view argument;
      std::string_view what;
    };
    constexpr Effect kEffects[] = {
        {"fp8_param_gather", "weights of 8 bits have a buffer of their own"},
        {"fp4_param_gather", "weights of 4 bits have a buffer of their own"},
        {"overlap_param_gather_with_optimizer_step", "its buckets have other sizes"},
        {"fp16", "float16 also has the state of a loss scale"}};
    for (const auto& [argument, what] : kEffects) {
      if (!args_.IsTrue(argument)) continue;
      return Refuse(ErrorKind::kUnsupported, what, fmt::format("args.{}", argument));
    }
    const bool has_latents = std::ranges::any_of(
        trained_, [](const std::string& name) { return IsLatentProjection(name); });
    if (has_latents && args_.IsTrue("mla_down_proj_fusion")) {
      return Refuse(ErrorKind::kUnsupported, "one parameter projects to all latents",
                    "args.mla_down_proj_fusion");
    }
    if (args_.Has("use_distributed_optimizer") && !args_.IsTrue("use_distributed_optimizer")) {
      return Refuse(ErrorKind::kUnsupported, "its optimizer is not distributed",
                    "args.use_distributed_optimizer");
    }
    if (has_experts && ranks_.expert == 1 && ranks_.expert_tensor != ranks_.tensor) {
      return Refuse(ErrorKind::kUnsupported, "experts are divided by other tensor ranks",
                    "args.expert_tensor_parallel_size");
    }
    if (args_.IsTrue("overlap_grad_reduce") && args_.Has("ddp_num_buckets")) {
      return Refuse(ErrorKind::kUnsupported, "how large this number of buckets makes them",
                    "args.ddp_num_buckets");
    }
    const bool needs_ranks = args_.IsTrue("overlap_grad_reduce") && !args_.Has("ddp_bucket_size");
    if (needs_ranks && !args_.Has("data_parallel_size") && !args_.Has("world_size")) {
      return Refuse(ErrorKind::kMissing, "the usual size of buckets follows from the ranks",
                    "args.data_parallel_size");
    }
    return OkStatus();
  }

  // Megatron names buffers by the dtypes of the model that `args` make: float32, or bfloat16 but
  // for some weights that stay float32.
  [[nodiscard]] Status CheckDTypes() const {
    if (!args_.Has("bf16")) return OkStatus();
    const DType named = args_.IsTrue("bf16") ? DType::kBfloat16 : DType::kFloat32;
    const TargetTensor* found = nullptr;  // of another dtype
    bool has_named = false;
    for (const TargetTensor& weight : tensors_) {
      if (!trained_.contains(weight.key)) continue;
      has_named = has_named || weight.dtype == named;
      if (weight.dtype == named) continue;
      found = &weight;
      if (weight.dtype != DType::kFloat32) break;
    }
    if (found == nullptr || (has_named && found->dtype == DType::kFloat32)) return OkStatus();
    return Error(ErrorKind::kUnsupported, "the run's arguments name weights of another dtype")
        .Tensor(found->key)
        .Expected(fmt::format("{}, by args.bf16", DTypeName(named)))
        .Actual(DTypeName(found->dtype))
        .Hint(HintAtDType(named));
  }
  // How many layers the weights of a decoder have.
  [[nodiscard]] std::int64_t CountLayers() const {
    std::int64_t layers = 0;
    for (const TargetTensor& weight : tensors_) {
      const KeyForm form = FormOfKey(weight.key);
      if (!form.name.starts_with(kDecoderLayers)) continue;
      const std::int64_t last =
          form.stacks_layers ? weight.shape.at(0) : form.layer.value_or(-1) + 1;
      layers = std::max(layers, last);
    }
    return layers;
  }

  Status FindPipeline() {
    if (ranks_.pipeline == 1) return OkStatus();
    for (const std::string_view name : kUnequalStages) {
      if (!args_.Asks(name)) continue;
      return Refuse(ErrorKind::kUnsupported, "stages of a pipeline are not equal",
                    fmt::format("args.{}", name));
    }
    pipeline_ = {.stages = ranks_.pipeline,
                 .parts = args_.Number("virtual_pipeline_model_parallel_size").value_or(1),
                 .layers = args_.Number("num_layers").value_or(0)};
    const auto& [stages, parts, layers] = pipeline_;
    if (const std::int64_t stored = CountLayers(); layers != stored) {
      return Refuse(ErrorKind::kUnsupported,
                    fmt::format("the arguments name {} layers, and there are {}", layers, stored),
                    "args.num_layers");
    }
    const bool is_equal = parts > 0 && layers % parts == 0 && layers / parts % stages == 0;
    if (layers > 0 && is_equal) return OkStatus();
    return Refuse(
        ErrorKind::kUnsupported,
        fmt::format("{} stages of {} parts do not divide {} layers equally", stages, parts, layers),
        "args.num_layers");
  }

  // Only the first stage sends its buckets one by one, and of it the first part of the model.
  [[nodiscard]] std::optional<std::int64_t> BucketElems(bool is_first) const {
    if (!is_first || !args_.IsTrue("overlap_grad_reduce")) return std::nullopt;
    return std::max<std::int64_t>(
        args_.Number("ddp_bucket_size").value_or(megatron::UsualBucketElems(ranks_.data)), 0);
  }

  // The buffers of one of `count` ranks of a stage, with what it has of such weights.
  template <typename Takes>
  Status AddGroup(const std::string& optimizer, std::int64_t stage, std::int64_t rank,
                  std::int64_t count, const Takes& takes) {
    BufferId id = {.optimizer = optimizer, .group = stage * count + rank, .dtypes = {}};
    for (std::int64_t part = 0; part < pipeline_.parts; ++part) {
      std::vector<Registered> module;
      for (const TargetTensor& weight : tensors_) {
        if (!trained_.contains(weight.key) || !takes(IsOfExperts(weight.key))) continue;
        CKPT_RETURN_IF_ERROR(AddWeight(weight, stage, part, rank, module));
      }
      std::ranges::sort(module, {}, &Registered::place);
      std::vector<DType> dtypes;
      for (const Registered& parameter : module) {
        if (std::ranges::find(dtypes, parameter.dtype) == dtypes.end()) {
          dtypes.push_back(parameter.dtype);
        }
      }
      for (const DType dtype : dtypes) {
        id.dtypes = fmt::format("torch.{}, torch.{}", DTypeName(dtype),
                                DTypeName(GradientDType(args_, dtype)));
        const bool is_first = stage == 0 && part == 0;
        buffers_.push_back({.id = id, .buckets = LayOut(module, dtype, BucketElems(is_first))});
        ++id.buffer;
      }
    }
    return OkStatus();
  }

  // What one of `count` tensor ranks has of a module's weight.
  [[nodiscard]] std::optional<std::vector<Box>> PartOfRank(std::string_view key, DimsView module,
                                                           std::int64_t rank,
                                                           std::int64_t count) const {
    if (!IsLatentProjection(key)) return BoxesOfRank(key, module, rank, count, ranks_.is_gated);
    const bool is_local = !form_.norm_in_projection;
    return BoxesOfRank(is_local ? megatron::Division::kRows : megatron::Division::kWhole, module,
                       rank, count);
  }

  // The rank's part of every layer and expert that it has in a part of the model.
  Status AddWeight(const TargetTensor& weight, std::int64_t stage, std::int64_t model_part,
                   std::int64_t rank, std::vector<Registered>& module) const {
    const KeyForm form = FormOfKey(weight.key);
    const std::size_t leading = form.leading_dims();
    if (weight.shape.size() < leading) {
      return Refuse(ErrorKind::kUnsupported, "a weight without layers", weight.key);
    }
    const bool is_expert = IsOfExperts(weight.key);
    const std::int64_t count = ranks_.TensorRanks(weight.key);
    const auto boxes =
        PartOfRank(weight.key, std::span(weight.shape).subspan(leading), rank % count, count);
    if (!boxes) {
      return Refuse(ErrorKind::kUnsupported,
                    fmt::format("how {} tensor ranks divide a weight", count), weight.key);
    }
    std::int64_t elems = 0;
    for (const Box& box : *boxes) elems += NumElements(box.sizes);
    const std::int64_t layers = form.stacks_layers ? weight.shape[0] : 1;
    const std::int64_t experts = form.stacks_experts ? weight.shape[leading - 1] : 1;
    const std::int64_t of_rank = is_expert ? experts / ranks_.expert : experts;
    const std::int64_t first = is_expert && ranks_.expert > 1 ? rank / count * of_rank : 0;
    if (is_expert && (!form.stacks_experts || experts % ranks_.expert != 0)) {
      return Refuse(ErrorKind::kUnsupported, "how ranks divide experts", weight.key);
    }
    // A weight without elements may have any number of them.
    std::int64_t modules = 0;
    if (!CheckedMul(layers, of_rank, &modules) || modules > kMaxModules) {
      return Refuse(ErrorKind::kResource, "more layers and experts than any model has", weight.key);
    }
    for (std::int64_t l = 0; l < layers; ++l) {
      for (std::int64_t e = first; e < first + of_rank; ++e) {
        BufferPart part = {.name = form.name,
                           .layer = form.stacks_layers ? l : form.layer.value_or(0),
                           .expert = e,
                           .boxes = *boxes};
        const auto place = PlaceOf(form.name, part.layer, part.expert, form_);
        if (!place) {
          return Refuse(ErrorKind::kUnsupported, "a module of unknown place", weight.key);
        }
        Registered parameter = {
            .place = *place, .dtype = weight.dtype, .part = std::move(part), .elems = elems};
        if (weight.key == kEmbeddingKey && ties_head_ && pipeline_.stages > 1) {
          parameter.is_shared = true;
          // The last stage has it as the head.
          if (pipeline_.Has(stage, model_part, kHeadKey, 0)) {
            module.push_back(parameter);
            module.back().place = PlaceOfHead();
          }
        }
        const std::int64_t layer = parameter.part.layer;
        if (pipeline_.Has(stage, model_part, form.name, layer)) {
          module.push_back(std::move(parameter));
        }
      }
    }
    return OkStatus();
  }

  static std::vector<BufferBucket> LayOut(const std::vector<Registered>& module, DType dtype,
                                          std::optional<std::int64_t> bucket_elems) {
    std::vector<megatron::InBuffer> in_buffer;
    std::vector<BufferPart> parts;
    for (const Registered& parameter : module) {
      if (parameter.dtype != dtype) continue;
      in_buffer.push_back({.elems = parameter.elems, .has_own_bucket = parameter.is_shared});
      parts.push_back(parameter.part);
    }
    const megatron::BufferLayout layout = megatron::LayOutBuffer(in_buffer, bucket_elems);
    std::vector<BufferBucket> buckets;
    std::int64_t begin = 0;  // of the bucket
    std::size_t p = parts.size();
    for (const std::int64_t elems : layout.bucket_elems) {
      BufferBucket& bucket = buckets.emplace_back(BufferBucket{.elems = elems, .parts = {}});
      while (p > 0 && layout.begins[p - 1] < begin + elems) {
        --p;
        parts[p].begin = layout.begins[p] - begin;
        bucket.parts.push_back(std::move(parts[p]));
      }
      begin += elems;
    }
    return buckets;
  }

  const RunArguments args_;
  const RunRanks ranks_;
  const std::set<std::string> trained_;
  const std::span<const TargetTensor> tensors_;
  const bool ties_head_;
  ModuleForm form_;
  Pipeline pipeline_;
  RankBuffers buffers_;
};

}  // namespace

Result<RankBuffers> PredictBuffers(std::span<const TargetTensor> tensors,
                                   const layout::Configuration& args) {
  return Predictor(tensors, args).Predict();
}

Status CheckOrder(const RankBuffers& buffers, const layout::Configuration& args) {
  const RunArguments arguments(args);
  if (!arguments.Has(kImplementation)) return OkStatus();
  ModuleForm form = {.norm_in_projection = !arguments.HasLocalLayers()};
  for (const RankBuffer& buffer : buffers) {
    form.experts_one_by_one = false;
    bool fits = IsInOrder(buffer, form);
    form.experts_one_by_one = true;
    fits = fits || IsInOrder(buffer, form);
    if (fits) continue;
    return Error(ErrorKind::kUnsupported,
                 "the run has its parameters in the order of another implementation of layers")
        .Tensor("args.transformer_impl")
        .Expected("the run's")
        .Actual(FormatValue(*arguments.Find(kImplementation)))
        .Hint("ckpt-convert --transformer-impl names the run's");
  }
  return OkStatus();
}

}  // namespace ckpt::torch_dist
