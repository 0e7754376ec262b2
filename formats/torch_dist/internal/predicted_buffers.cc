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

#include "core/tensor/shape.h"
#include "formats/megatron/buffer_layout.h"
#include "formats/torch_dist/internal/local_parameter.h"
#include "formats/torch_dist/internal/module_order.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/run_ranks.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

// Which layers are used: "transformer_engine" or "local".
constexpr std::string_view kImplementation = "transformer_impl";
constexpr std::string_view kLocal = "local";

Status Refuse(ErrorKind kind, std::string_view what, std::string_view name,
              std::string_view hint = kOtherForm) {
  return Error(kind, fmt::format("which parameter lies where in the run's buffers is not known: {}",
                                 what))
      .Tensor(name)
      .Hint(hint);
}

// Megatron's arguments.
class Arguments {
 public:
  explicit Arguments(const layout::Configuration& args) : args_(args) {}

  [[nodiscard]] bool Has(std::string_view name) const { return Find(name) != nullptr; }
  [[nodiscard]] bool IsTrue(std::string_view name) const {
    return Has(name) && *Find(name) == layout::Value(true);
  }
  [[nodiscard]] std::optional<std::int64_t> Number(std::string_view name) const {
    const std::int64_t* const value = Has(name) ? Find(name)->AsInt() : nullptr;
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  [[nodiscard]] bool IsText(std::string_view name, std::string_view text) const {
    return Has(name) && *Find(name) == layout::Value(std::string(text));
  }

 private:
  // Null: it is not there, or None.
  [[nodiscard]] const layout::Value* Find(std::string_view name) const {
    const auto found = args_.find(name);
    return found == args_.end() || found->second.is_null() ? nullptr : &found->second;
  }

  const layout::Configuration& args_;
};

// A parameter of one rank's module.
struct Registered {
  ModulePlace place;
  DType dtype = DType::kFloat32;
  BufferPart part;
  std::int64_t elems = 0;
};

// Which weights the optimizer updates, by their keys.
std::set<std::string> TrainedWeights(std::span<const TargetTensor> tensors) {
  std::set<std::string> trained;
  for (const TargetTensor& tensor : tensors) {
    if (const auto state = StateIn(tensor.key)) trained.insert(state->second);
  }
  return trained;
}

Result<ModuleForm> FormOf(const Arguments& args, bool has_experts) {
  if (!args.Has(kImplementation)) {
    return Refuse(
        ErrorKind::kMissing, "of which implementation layers are", "args.transformer_impl",
        "ckpt-convert --transformer-impl says it; --optimizer-form fully_reshardable needs "
        "it not");
  }
  const bool is_local = args.IsText(kImplementation, kLocal);
  ModuleForm form = {.norm_in_projection = !is_local};
  if (!has_experts) return form;
  const bool is_grouped = args.IsTrue("moe_grouped_gemm");
  if (!args.Has("moe_grouped_gemm")) {
    return Refuse(
        ErrorKind::kMissing, "whether experts are grouped", "args.moe_grouped_gemm",
        "ckpt-convert --expert-names says it; --optimizer-form fully_reshardable needs it "
        "not");
  }
  if (is_grouped && (is_local || args.IsTrue("moe_use_legacy_grouped_gemm"))) {
    return Refuse(ErrorKind::kUnsupported, "the older class of grouped experts has one parameter",
                  "args.moe_use_legacy_grouped_gemm");
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
Result<DType> GradientDType(const Arguments& args, DType dtype) {
  if (dtype == DType::kFloat16) {
    return Refuse(ErrorKind::kUnsupported, "float16 also has the state of a loss scale",
                  "args.fp16");
  }
  const bool reduces_in_bf16 = args.IsTrue("grad_reduce_in_bf16");
  return reduces_in_bf16 && !args.IsTrue("accumulate_allreduce_grads_in_fp32") ? dtype
                                                                               : DType::kFloat32;
}

class Predictor {
 public:
  Predictor(std::span<const TargetTensor> tensors, const layout::Configuration& args)
      : args_(args),
        ranks_(RunRanks::Of(args)),
        trained_(TrainedWeights(tensors)),
        tensors_(tensors) {}

  Result<RankBuffers> Predict() && {
    CKPT_RETURN_IF_ERROR(CheckArguments());
    const bool has_experts =
        std::ranges::any_of(trained_, [](const std::string& name) { return IsOfExperts(name); });
    CKPT_ASSIGN_OR_RETURN(form_, FormOf(args_, has_experts));
    // With expert parallelism, experts are divided by other ranks, and have an optimizer.
    const bool are_apart = has_experts && ranks_.expert > 1;
    for (std::int64_t rank = 0; rank < ranks_.tensor; ++rank) {
      CKPT_RETURN_IF_ERROR(AddGroup(are_apart ? "chained_0." : "", rank,
                                    [&](bool of_experts) { return !of_experts || !are_apart; }));
    }
    for (std::int64_t rank = 0; are_apart && rank < ranks_.expert_tensor * ranks_.expert; ++rank) {
      CKPT_RETURN_IF_ERROR(
          AddGroup("chained_1.", rank, [](bool of_experts) { return of_experts; }));
    }
    std::ranges::sort(buffers_, {}, &RankBuffer::id);
    return std::move(buffers_);
  }

 private:
  [[nodiscard]] Status CheckArguments() const {
    if (args_.IsTrue("fp8_param_gather")) {
      return Refuse(ErrorKind::kUnsupported, "weights of 8 bits have a buffer of their own",
                    "args.fp8_param_gather");
    }
    if (ranks_.pipeline > 1) {
      return Refuse(ErrorKind::kUnsupported, "how stages of a pipeline divide layers",
                    "args.pipeline_model_parallel_size");
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

  [[nodiscard]] std::optional<std::int64_t> BucketElems() const {
    if (!args_.IsTrue("overlap_grad_reduce")) return std::nullopt;
    return std::max<std::int64_t>(
        args_.Number("ddp_bucket_size").value_or(megatron::UsualBucketElems(ranks_.data)), 0);
  }

  // The buffers of the ranks `group`, with what they have of such weights.
  template <typename Takes>
  Status AddGroup(const std::string& optimizer, std::int64_t group, const Takes& takes) {
    std::vector<Registered> module;
    for (const TargetTensor& weight : tensors_) {
      if (!trained_.contains(weight.key) || !takes(IsOfExperts(weight.key))) continue;
      CKPT_RETURN_IF_ERROR(AddWeight(weight, group, module));
    }
    std::ranges::sort(module, {}, &Registered::place);
    std::vector<DType> dtypes;
    for (const Registered& parameter : module) {
      if (std::ranges::find(dtypes, parameter.dtype) == dtypes.end()) {
        dtypes.push_back(parameter.dtype);
      }
    }
    for (std::size_t b = 0; b < dtypes.size(); ++b) {
      CKPT_ASSIGN_OR_RETURN(const DType of_gradients, GradientDType(args_, dtypes[b]));
      buffers_.push_back({.id = {.optimizer = optimizer,
                                 .group = group,
                                 .buffer = static_cast<std::int64_t>(b),
                                 .dtypes = fmt::format("torch.{}, torch.{}", DTypeName(dtypes[b]),
                                                       DTypeName(of_gradients))},
                          .buckets = LayOut(module, dtypes[b])});
    }
    return OkStatus();
  }

  // The rank's part of every layer and expert that it has.
  Status AddWeight(const TargetTensor& weight, std::int64_t group,
                   std::vector<Registered>& module) const {
    const KeyForm form = FormOfKey(weight.key);
    const std::size_t leading = form.leading_dims();
    if (weight.shape.size() < leading) {
      return Refuse(ErrorKind::kUnsupported, "a weight without layers", weight.key);
    }
    const bool is_expert = IsOfExperts(weight.key);
    const std::int64_t count = ranks_.TensorRanks(form.name);
    const auto boxes = BoxesOfRank(form.name, std::span(weight.shape).subspan(leading),
                                   group % count, count, ranks_.is_gated);
    if (!boxes) {
      return Refuse(ErrorKind::kUnsupported,
                    fmt::format("how {} tensor ranks divide a weight", count), weight.key);
    }
    std::int64_t elems = 0;
    for (const Box& box : *boxes) elems += NumElements(box.sizes);
    const std::int64_t layers = form.stacks_layers ? weight.shape[0] : 1;
    const std::int64_t experts = form.stacks_experts ? weight.shape[leading - 1] : 1;
    const std::int64_t of_rank = is_expert ? experts / ranks_.expert : experts;
    const std::int64_t first = is_expert && ranks_.expert > 1 ? group / count * of_rank : 0;
    if (is_expert && (!form.stacks_experts || experts % ranks_.expert != 0)) {
      return Refuse(ErrorKind::kUnsupported, "how ranks divide experts", weight.key);
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
        module.push_back(
            {.place = *place, .dtype = weight.dtype, .part = std::move(part), .elems = elems});
      }
    }
    return OkStatus();
  }

  [[nodiscard]] std::vector<BufferBucket> LayOut(const std::vector<Registered>& module,
                                                 DType dtype) const {
    std::vector<megatron::InBuffer> in_buffer;
    std::vector<BufferPart> parts;
    for (const Registered& parameter : module) {
      if (parameter.dtype != dtype) continue;
      in_buffer.push_back({.elems = parameter.elems});
      parts.push_back(parameter.part);
    }
    const megatron::BufferLayout layout = megatron::LayOutBuffer(in_buffer, BucketElems());
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

  const Arguments args_;
  const RunRanks ranks_;
  const std::set<std::string> trained_;
  const std::span<const TargetTensor> tensors_;
  ModuleForm form_;
  RankBuffers buffers_;
};

}  // namespace

Result<RankBuffers> PredictBuffers(std::span<const TargetTensor> tensors,
                                   const layout::Configuration& args) {
  return Predictor(tensors, args).Predict();
}

Status CheckOrder(const RankBuffers& buffers, const layout::Configuration& args) {
  const Arguments arguments(args);
  if (!arguments.Has(kImplementation)) return OkStatus();
  ModuleForm form = {.norm_in_projection = !arguments.IsText(kImplementation, kLocal)};
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
        .Actual(FormatValue(args.find(kImplementation)->second))
        .Hint("ckpt-convert --transformer-impl names the run's");
  }
  return OkStatus();
}

}  // namespace ckpt::torch_dist
