#include "formats/torch_dist/internal/packed_buffers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/tensor/shape.h"
#include "formats/megatron/buffer_layout.h"
#include "formats/megatron/division.h"
#include "formats/pickle/writer.h"
#include "formats/torch_dist/internal/buffer_keys.h"
#include "formats/torch_dist/internal/param_groups.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/run_ranks.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

using pickle::PickleWriter;

constexpr std::string_view kExpertOptimizer = "chained_1.";

// A trained weight, and what the optimizer keeps for it, by field.
struct Trained {
  const TargetTensor* weight = nullptr;
  std::map<std::string, const TargetTensor*> states = {};
  std::set<Dims> placed = {};  // where its parts begin
  std::int64_t placed_elems = 0;
};

class Packer {
 public:
  explicit Packer(std::vector<TargetTensor> tensors) : tensors_(std::move(tensors)) {
    std::map<std::string_view, const TargetTensor*> weights;
    for (const TargetTensor& tensor : tensors_) weights[tensor.key] = &tensor;
    for (const TargetTensor& tensor : tensors_) {
      const auto state = StateIn(tensor.key);
      if (!state) continue;
      const KeyForm form = FormOfKey(state->second);
      Trained& trained = trained_[{form.name, form.layer}];
      const auto weight = weights.find(state->second);
      trained.weight = weight == weights.end() ? &tensor : weight->second;
      trained.states[state->first] = &tensor;
    }
  }

  Result<PackedBuffers> Pack(const RankBuffers& buffers) && {
    for (const RankBuffer& buffer : buffers) {
      for (std::size_t b = 0; b < buffer.buckets.size(); ++b) {
        const std::string key = BucketKey(buffer.id, static_cast<std::int64_t>(b));
        CKPT_RETURN_IF_ERROR(PackBucket(key, buffer.id, buffer.buckets[b]));
      }
    }
    CKPT_RETURN_IF_ERROR(CheckPlaced());
    for (TargetTensor& tensor : tensors_) {
      if (!StateIn(tensor.key)) packed_.tensors.push_back(std::move(tensor));
    }
    std::ranges::move(buckets_, std::back_inserter(packed_.tensors));
    return std::move(packed_);
  }

 private:
  Status PackBucket(const std::string& key, const BufferId& id, const BufferBucket& bucket) {
    std::vector<std::int64_t> ends;
    std::map<std::string, TargetTensor> tensors;  // by field
    for (const BufferPart& part : bucket.parts) {
      CKPT_ASSIGN_OR_RETURN(Trained* const trained, Find(part, id));
      std::int64_t first = part.begin;
      ends.push_back(first);
      for (const Box& box : part.boxes) {
        CKPT_ASSIGN_OR_RETURN(Box in_weight, BoxIn(*trained->weight, part, box));
        CKPT_RETURN_IF_ERROR(CheckDivision(*trained->weight, in_weight));
        if (trained->placed.insert(in_weight.offsets).second) {
          trained->placed_elems += NumElements(box.sizes);
        }
        for (const auto& [field, state] : trained->states) {
          TargetTensor& tensor = tensors[field];
          if (tensor.key.empty()) {
            tensor = {.key = key + field, .dtype = state->dtype, .shape = {bucket.elems}};
          }
          CKPT_RETURN_IF_ERROR(CheckDtype(tensor, *state));
          packed_.parts[tensor.key].push_back(
              {.tensor = state->key, .box = in_weight, .first_elem = first});
        }
        first += NumElements(box.sizes);
      }
      ends.push_back(first);
    }
    for (auto& [field, tensor] : tensors) {
      packed_.chunk_ends[tensor.key] = ends;
      buckets_.push_back(std::move(tensor));
    }
    return OkStatus();
  }

  Result<Trained*> Find(const BufferPart& part, const BufferId& id) {
    auto found = trained_.find({part.name, std::nullopt});
    if (found == trained_.end()) found = trained_.find({part.name, part.layer});
    if (found == trained_.end()) {
      return Error(ErrorKind::kUnsupported,
                   "the run's ranks have a parameter in their buffers that is not the target's")
          .Tensor(part.name)
          .Expected("parameters with the same names as those of the run")
          .Hint(kOtherForm);
    }
    const TargetTensor& weight = *found->second.weight;
    const std::optional<BufferDTypes> dtypes = ParseBufferDTypes(id.dtypes);
    const bool is_same = dtypes && dtypes->parameters == weight.dtype;
    if (is_same && weight.dtype != DType::kFloat16) return &found->second;
    if (is_same) {
      return Error(ErrorKind::kUnsupported,
                   "beside buffers of float16 there is the state of a loss scale")
          .Tensor(weight.key)
          .Hint(kOtherForm);
    }
    return Error(ErrorKind::kUnsupported,
                 "the run's ranks have buffers for weights of another dtype")
        .Tensor(weight.key)
        .Expected(id.dtypes)
        .Actual(DTypeName(weight.dtype))
        .Hint(dtypes ? HintAtDType(dtypes->parameters) : std::string(kOtherForm));
  }

  // The box in the tensor of all layers and experts.
  static Result<Box> BoxIn(const TargetTensor& weight, const BufferPart& part, Box box) {
    const KeyForm form = FormOfKey(weight.key);
    const auto prepend = [&](std::int64_t offset) {
      box.offsets.insert(box.offsets.begin(), offset);
      box.sizes.insert(box.sizes.begin(), 1);
    };
    if (form.stacks_experts) prepend(part.expert);
    if (form.stacks_layers) prepend(part.layer);
    const bool fits =
        box.sizes.size() == weight.shape.size() && Intersect(box, WholeBox(weight.shape)) == box;
    if (fits) return box;
    return Error(ErrorKind::kUnsupported,
                 "the run's ranks have a part in their buffers that the weight does not have")
        .Tensor(weight.key)
        .Expected(FormatDims(weight.shape))
        .Actual(FormatBox(box))
        .Hint(kOtherForm);
  }

  // A reader finds a rank's part by the weight's key, as chunks of ours are others. Of a projection
  // to latents it tries equal rows.
  static Status CheckDivision(const TargetTensor& weight, const Box& in_weight) {
    const std::size_t leading = FormOfKey(weight.key).leading_dims();
    const bool is_whole = std::ranges::equal(std::span(in_weight.sizes).subspan(leading),
                                             std::span(weight.shape).subspan(leading));
    if (is_whole || megatron::DivisionOf(weight.key, /*is_gated=*/false)) return OkStatus();
    if (IsLatentProjection(weight.key) && IsOfEqualRows(weight, in_weight, leading)) {
      return OkStatus();
    }
    return Error(ErrorKind::kUnsupported, "it is not known how tensor ranks divide a weight")
        .Tensor(weight.key)
        .Actual(FormatBox(in_weight))
        .Hint(kOtherForm);
  }

  // Whether a box has rows, of the dim `rows`, of which equal parts make all.
  static bool IsOfEqualRows(const TargetTensor& weight, const Box& box, std::size_t rows) {
    const bool has_columns = std::ranges::equal(std::span(box.sizes).subspan(rows + 1),
                                                std::span(weight.shape).subspan(rows + 1));
    const std::int64_t count = box.sizes[rows];
    return has_columns && count > 0 && weight.shape[rows] % count == 0 &&
           box.offsets[rows] % count == 0;
  }

  static Status CheckDtype(const TargetTensor& bucket, const TargetTensor& state) {
    if (bucket.dtype == state.dtype) return OkStatus();
    return Error(ErrorKind::kDtypeMismatch, "a buffer has elements of one dtype")
        .Tensor(state.key)
        .Expected(DTypeName(bucket.dtype))
        .Actual(DTypeName(state.dtype))
        .Hint(kOtherForm);
  }

  [[nodiscard]] Status CheckPlaced() const {
    Status absent;
    for (const auto& [name, trained] : trained_) {
      const std::int64_t elems = NumElements(trained.weight->shape);
      if (trained.placed_elems == elems) continue;
      absent.Add(Error(ErrorKind::kUnsupported,
                       "the run's ranks have no place in their buffers for a part of a weight")
                     .Tensor(trained.weight->key)
                     .Expected(fmt::format("{} elements", elems))
                     .Actual(fmt::format("{}", trained.placed_elems))
                     .Hint(kOtherForm));
    }
    return absent;
  }

  std::vector<TargetTensor> tensors_;
  // By name and, if layers are not stacked, by layer.
  std::map<std::pair<std::string, std::optional<std::int64_t>>, Trained> trained_;
  std::vector<TargetTensor> buckets_;
  PackedBuffers packed_;
};

// {(torch.bfloat16, torch.float32): [128]} of each buffer, in a list.
template <typename ElemsOf>
void WriteBucketElems(const std::vector<const RankBuffer*>& buffers, const ElemsOf& elems_of,
                      PickleWriter& pickle) {
  pickle.BeginList();
  for (const RankBuffer* const buffer : buffers) {
    const std::optional<BufferDTypes> dtypes = ParseBufferDTypes(buffer->id.dtypes);
    CKPT_CHECK(dtypes.has_value());
    pickle.BeginDict().BeginTuple();
    pickle.Global("torch", DTypeName(dtypes->parameters));
    pickle.Global("torch", DTypeName(dtypes->gradients));
    pickle.EndTuple().BeginList();
    for (const BufferBucket& bucket : buffer->buckets) pickle.Int(elems_of(bucket));
    pickle.EndList().EndDict();
  }
  pickle.EndList();
}

// An object of a group of ranks: a list of one.
template <typename Write>
PickledEntry ObjectOf(const RankBuffer& any, std::string_view name, const Write& write) {
  PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginList();
  write(pickle);
  pickle.EndList();
  return {.key = fmt::format("{}{}/shard_0_1", GroupKey(any.id), name), .value = {pickle.Take()}};
}

}  // namespace

Result<PackedBuffers> PackBuffers(const RankBuffers& buffers, std::vector<TargetTensor> tensors) {
  return Packer(std::move(tensors)).Pack(buffers);
}

Result<bool> HaveExpertOptimizer(const RankBuffers& buffers) {
  bool are_several = false;
  for (const RankBuffer& buffer : buffers) {
    const std::string& optimizer = buffer.id.optimizer;
    if (optimizer.empty()) continue;
    are_several = true;
    const bool of_experts = optimizer == kExpertOptimizer;
    bool fits = of_experts || optimizer == "chained_0.";
    for (const BufferBucket& bucket : buffer.buckets) {
      for (const BufferPart& part : bucket.parts)
        fits = fits && IsOfExperts(part.name) == of_experts;
    }
    if (fits) continue;
    return Error(ErrorKind::kUnsupported,
                 "the run has other optimizers than those that are written")
        .Tensor(GroupKey(buffer.id))
        .Expected("one, or chained_0 and that of experts, chained_1")
        .Hint(kOtherForm);
  }
  return are_several;
}

Status CheckRanks(const RankBuffers& buffers, const layout::Configuration& args) {
  const RunRanks ranks = RunRanks::Of(args);
  std::set<std::int64_t> groups;
  for (const RankBuffer& buffer : buffers) {
    if (buffer.id.optimizer != kExpertOptimizer) groups.insert(buffer.id.group);
  }
  const std::int64_t named = ranks.tensor * ranks.pipeline;
  const auto found = static_cast<std::int64_t>(groups.size());
  if (found == named) return OkStatus();
  return Error(ErrorKind::kUnsupported, "the run's arguments name other ranks than have buffers")
      .Tensor("args.tensor_model_parallel_size")
      .Expected(fmt::format("{} groups of ranks", found))
      .Actual(fmt::format("{} tensor ranks in {} stages", ranks.tensor, ranks.pipeline))
      .Hint(kOtherForm);
}

std::vector<PickledEntry> ObjectsBesideBuffers(const RankBuffers& buffers, const TrainingRun& run,
                                               bool have_expert_optimizer) {
  const layout::Configuration args(run.args.begin(), run.args.end());
  const RunRanks ranks = RunRanks::Of(args);
  const bool for_busbw = RunArguments(args).IsTrue("ddp_pad_buckets_for_high_nccl_busbw");
  std::map<std::string, std::vector<const RankBuffer*>> groups;
  for (const RankBuffer& buffer : buffers) groups[GroupKey(buffer.id)].push_back(&buffer);
  std::vector<PickledEntry> objects;
  for (const auto& group : groups) {
    const std::vector<const RankBuffer*>& of_group = group.second;
    const RankBuffer& any = *of_group.front();
    const bool of_experts = have_expert_optimizer && any.id.optimizer == kExpertOptimizer;
    const std::int64_t dividing = of_experts ? ranks.expert_data : ranks.data;
    objects.push_back(ObjectOf(any, "optimizer", [&](PickleWriter& pickle) {
      WriteParamGroups(have_expert_optimizer ? GroupsOf(run, of_experts) : run.groups, pickle);
    }));
    objects.push_back(ObjectOf(any, "per_bucket_numel", [&](PickleWriter& pickle) {
      WriteBucketElems(
          of_group,
          [&](const BufferBucket& bucket) {
            return megatron::PaddedBucketElems(bucket.elems, dividing, for_busbw);
          },
          pickle);
    }));
    objects.push_back(ObjectOf(any, "per_bucket_numel_unpadded", [&](PickleWriter& pickle) {
      WriteBucketElems(
          of_group, [](const BufferBucket& bucket) { return bucket.elems; }, pickle);
    }));
  }
  return objects;
}

}  // namespace ckpt::torch_dist
