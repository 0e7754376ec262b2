#include "trainer/explain/load_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/weight_reader.h"
#include "core/base/checked_math.h"
#include "core/base/task_pool.h"
#include "core/checkpoint/read.h"
#include "core/exec/nest_reader.h"
#include "core/layout/affine.h"
#include "core/plan/stored_parts.h"
#include "core/tensor/box.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using trainer::GroupPlan;
using trainer::ParamPiece;
using trainer::ParamSpec;
using trainer::ShardPlan;
using trainer::Topology;
using trainer::TrainConfig;
using trainer::UnitSpec;

constexpr std::size_t kManyChunks = 16;
constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);

// Finds the chunks of a tensor that can hold some of its rows without a look at all of them, where
// they are stored in the order of their rows, as the ranks of a run store them.
class ChunksByRow {
 public:
  explicit ChunksByRow(const CheckpointIndex& index) : index_(&index) {
    last_ends_.resize(index.tensors().size());
    for (std::size_t t = 0; t < index.tensors().size(); ++t) AddTensor(t);
  }

  // All that hold rows of [begin, end), and maybe others.
  [[nodiscard]] std::span<const Chunk> Find(std::uint32_t tensor, std::int64_t begin,
                                            std::int64_t end) const {
    const std::span<const Chunk> chunks = index_->chunks(index_->tensors()[tensor]);
    const std::vector<std::int64_t>& ends = last_ends_[tensor];
    if (ends.empty()) return chunks;
    const auto first = std::ranges::upper_bound(ends, begin) - ends.begin();
    const auto last =
        std::ranges::partition_point(
            chunks, [&](const Chunk& chunk) { return index_->offsets(chunk)[0] < end; }) -
        chunks.begin();
    if (first >= last) return {};
    return chunks.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first));
  }

 private:
  void AddTensor(std::size_t t) {
    const GlobalTensor& tensor = index_->tensors()[t];
    const std::span<const Chunk> chunks = index_->chunks(tensor);
    const bool is_sorted = std::ranges::is_sorted(
        chunks, {}, [&](const Chunk& chunk) { return index_->offsets(chunk)[0]; });
    if (tensor.shape.empty() || chunks.size() < kManyChunks || !is_sorted) return;
    std::int64_t end = 0;
    for (const Chunk& chunk : chunks) {
      end = std::max(end, index_->offsets(chunk)[0] + index_->sizes(chunk)[0]);
      last_ends_[t].push_back(end);
    }
  }

  const CheckpointIndex* index_;
  // Of each tensor: where the chunks up to each one end. Empty: they are looked at one by one.
  std::vector<std::vector<std::int64_t>> last_ends_;
};

// A model under the trainer's names.
struct NamedModel {
  const ModelSource* model = nullptr;
  ModelView view;
  std::map<std::string_view, std::size_t> positions;  // into the view's tensors
  bool is_weights = false;                            // otherwise what the optimizer keeps for them

  static Result<NamedModel> Of(const ModelSource& model, bool is_weights) {
    NamedModel named;
    named.model = &model;
    if (model.family == nullptr) {
      named.view = ViewAsStored(model);
    } else {
      CKPT_ASSIGN_OR_RETURN(named.view, ViewModel(model, kTrainerNaming, {}, MixedDtypes::kWiden));
    }
    for (std::size_t t = 0; t < named.view.tensors.size(); ++t) {
      named.positions.emplace(named.view.tensors[t].key, t);
    }
    named.is_weights = is_weights;
    return named;
  }

  [[nodiscard]] bool Has(std::string_view name) const { return positions.contains(name); }

  // Errors: kMissing, kShapeMismatch.
  [[nodiscard]] Result<std::size_t> Find(const ParamSpec& spec) const {
    const auto found = positions.find(spec.name);
    if (found == positions.end()) {
      return Error(ErrorKind::kMissing,
                   is_weights ? "the checkpoint lacks a parameter of its model"
                              : "the optimizer keeps some of its values for a parameter, not all")
          .File(model->checkpoint->path.string())
          .Tensor(spec.name);
    }
    const Dims& shape = view.tensors[found->second].shape;
    if (shape != spec.shape) {
      return Error(ErrorKind::kShapeMismatch, "a parameter has another shape than in its model")
          .File(model->checkpoint->path.string())
          .Tensor(spec.name)
          .Expected(FormatDims(spec.shape))
          .Actual(FormatDims(shape));
    }
    return found->second;
  }
};

// Counts what one rank reads.
class RankCounter {
 public:
  explicit RankCounter(const ChunksByRow& chunks) : chunks_(&chunks) {}

  // The piece of a parameter, as PieceRows sets it and WeightReader reads it.
  Status Add(const NamedModel& model, std::size_t position, const ParamPiece& piece) {
    const std::int64_t step = RowsAtOnce(piece);
    const TensorRecipe& recipe = model.view.recipes[position];
    Box box = WholeBox(model.view.tensors[position].shape);
    for (std::int64_t row = 0; row < piece.rows; row += step) {
      if (!box.sizes.empty()) {
        box.offsets[0] = piece.row_begin + row;
        box.sizes[0] = std::min(step, piece.rows - row);
      }
      CKPT_RETURN_IF_ERROR(AddBox(model.model->source().index(), recipe, box));
    }
    const auto elems = static_cast<std::uint64_t>(std::min(step, piece.rows) * piece.row_elems);
    staged_bytes_ = std::max(staged_bytes_, 2 * elems * sizeof(float));
    if (recipe.source_dtype != DType::kFloat32) {
      stored_bytes_ = std::max(stored_bytes_, elems * ElementBytes(recipe.source_dtype));
    }
    return OkStatus();
  }

  RankLoad Finish(std::uint64_t held_bytes) {
    std::ranges::sort(files_);
    load_.files =
        static_cast<std::uint64_t>(std::unique(files_.begin(), files_.end()) - files_.begin());
    load_.peak_memory = held_bytes + kLoadBudgetBytes + staged_bytes_ + stored_bytes_;
    return load_;
  }

 private:
  Status AddBox(const CheckpointIndex& index, const TensorRecipe& recipe, const Box& box) {
    packed_.clear();
    for (const layout::Nest& nest : recipe.nests) {
      if (nest.is_zero_fill()) continue;
      for (const layout::Nest& part : layout::ClipToTarget(nest, box)) {
        CKPT_RETURN_IF_ERROR(AddNest(index, part, box));
      }
    }
    return OkStatus();
  }

  Status AddNest(const CheckpointIndex& index, const layout::Nest& nest, const Box& box) {
    const GlobalTensor& tensor = index.tensors()[nest.source];
    load_.needed_bytes +=
        static_cast<std::uint64_t>(layout::Volume(nest)) * ElementBytes(tensor.dtype);
    std::span<const Chunk> chunks = index.chunks(tensor);
    if (!tensor.shape.empty()) {
      const Box bounds = layout::SourceBounds(nest);
      chunks = chunks_->Find(nest.source, bounds.offsets[0], bounds.offsets[0] + bounds.sizes[0]);
    }
    return ForEachStoredPart(
        index, tensor, chunks, nest, 0,
        [&](const Chunk& chunk, const Box& stored, std::span<const layout::Nest> parts) -> Status {
          if (files_.empty() || files_.back() != chunk.file) files_.push_back(chunk.file);
          if (chunk.size_bytes < NumBytes(stored.sizes, tensor.dtype)) {
            AddPacked(chunk);
            return OkStatus();
          }
          const Dims strides = ContiguousStrides(stored.sizes);
          for (const layout::Nest& part : parts) {
            CKPT_RETURN_IF_ERROR(
                PlanReads(CopyOfPart(part, stored, strides, tensor.dtype, box),
                          NestReader::ScratchBytes(kLoadBudgetBytes), [&](const FileRead& read) {
                            load_.bytes += read.SizeBytes();
                            load_.reads += static_cast<std::uint64_t>(read.num_ranges);
                            return OkStatus();
                          }));
          }
          return OkStatus();
        });
  }

  // Compressed: it is unpacked once for each box.
  void AddPacked(const Chunk& chunk) {
    if (std::ranges::find(packed_, &chunk) != packed_.end()) return;
    packed_.push_back(&chunk);
    load_.bytes += chunk.size_bytes;
    ++load_.reads;
  }

  const ChunksByRow* chunks_;
  RankLoad load_;
  std::vector<FileId> files_;
  std::vector<const Chunk*> packed_;  // of one box
  std::uint64_t staged_bytes_ = 0;
  std::uint64_t stored_bytes_ = 0;
};

// The numbers of a tensor's name.
struct Place {
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> expert;
};

std::map<std::string, Place> PlacesOf(const layout::ResolvedLayout& layout) {
  std::map<std::string, Place> places;
  for (const layout::ResolvedTensor& tensor : layout.tensors) {
    Place& place = places[layout.Key(tensor)];
    for (const layout::Segment& segment : tensor.segments) {
      if (segment.logical == layout::kZeros) continue;
      const std::vector<std::string>& axes = layout.logicals[segment.logical].axes;
      for (std::size_t a = 0; a < segment.places.size(); ++a) {
        if (segment.places[a].dim != layout::AxisPlace::kInName) continue;
        if (axes[a] == kLayerAxis) place.layer = segment.places[a].index;
        if (axes[a] == kExpertAxis) place.expert = segment.places[a].index;
      }
    }
  }
  return places;
}

// How a model is divided that the trainer does not compute.
class StoredUnits {
 public:
  explicit StoredUnits(const ModelView& view) : view_(&view), places_(PlacesOf(view.layout)) {
    for (const auto& [key, place] : places_) {
      if (place.expert) num_experts_ = std::max(num_experts_, *place.expert + 1);
    }
  }

  [[nodiscard]] std::int64_t num_experts() const { return num_experts_; }

  // Those with the experts of one of `ranks` expert ranks.
  [[nodiscard]] std::vector<UnitSpec> List(int rank, int ranks) const {
    std::vector<UnitSpec> units;
    std::optional<std::int64_t> layer;  // of the last unit
    for (std::size_t t = 0; t < view_->tensors.size(); ++t) {
      const TargetTensor& tensor = view_->tensors[t];
      if (view_->derived[t] || IsEmpty(WholeBox(tensor.shape))) continue;
      const auto found = places_.find(tensor.key);
      const Place place = found == places_.end() ? Place() : found->second;
      if (place.expert && *place.expert / (num_experts_ / ranks) != rank) continue;
      if (!place.layer || place.layer != layer) {
        units.push_back(
            {.name = tensor.key, .params = {}, .is_end = !places_.empty() && !place.layer});
      }
      layer = place.layer;
      units.back().params.push_back({.name = tensor.key,
                                     .shape = tensor.shape,
                                     .param_class = place.expert ? trainer::ParamClass::kExpert
                                                                 : trainer::ParamClass::kDense});
    }
    return units;
  }

  // Errors: kResource (the positions in an array of them, divided by the ranks, cannot be counted).
  [[nodiscard]] Status CheckSizes(int ranks) const {
    for (const TargetTensor& tensor : view_->tensors) {
      std::int64_t elems = 0;
      if (CheckedMul(NumElements(tensor.shape), kMostAligned * ranks, &elems)) continue;
      return Error(ErrorKind::kResource, "a tensor is too large to be divided by so many ranks")
          .Tensor(tensor.key)
          .Actual(fmt::format("{} over {} ranks", FormatDims(tensor.shape), ranks));
    }
    return OkStatus();
  }

 private:
  static constexpr std::int64_t kMostAligned = 64 * 4;  // elements of an alignment, and room to add

  const ModelView* view_;
  std::map<std::string, Place> places_;  // by key; none of tensors as they are stored
  std::int64_t num_experts_ = 0;
};

// Everything that the ranks with the same experts share.
struct ExpertRanks {
  std::vector<UnitSpec> units;
  ShardPlan plan;
  std::uint64_t held_bytes = 0;
  // Of each unit, parameter and model: its position in the view, or kAbsent if the model has none.
  std::vector<std::vector<std::vector<std::size_t>>> positions;
};

// A checkpoint's settings may not say what is frozen: it is what the optimizer keeps nothing for,
// while it keeps something for others.
bool IsFrozen(std::span<const NamedModel> models, std::string_view name) {
  const std::span<const NamedModel> moments = models.subspan(1);
  return !moments.empty() &&
         std::ranges::none_of(moments, [&](const NamedModel& moment) { return moment.Has(name); });
}

void FreezeAsStored(std::span<const NamedModel> models, std::vector<UnitSpec>& units) {
  for (UnitSpec& unit : units) {
    for (ParamSpec& spec : unit.params) {
      if (IsFrozen(models, spec.name)) spec.trainable = false;
    }
  }
}

// The position of a parameter in the view of each model. One that several models lack is one error.
// Errors: those of NamedModel::Find.
Result<std::vector<std::size_t>> FindInAll(std::span<const NamedModel> models,
                                           const ParamSpec& spec) {
  std::vector<std::size_t> positions;
  for (const NamedModel& model : models) {
    positions.push_back(kAbsent);
    if (!spec.trainable && !model.is_weights) continue;
    CKPT_ASSIGN_OR_RETURN(positions.back(), model.Find(spec));
  }
  return positions;
}

Result<ExpertRanks> PlanExpertRanks(const TrainConfig& config, std::span<const NamedModel> models,
                                    const StoredUnits* stored, int expert) {
  ExpertRanks ranks;
  ranks.units = stored == nullptr ? trainer::ListTrainedUnits(config, expert)
                                  : stored->List(expert, config.mesh.expert_parallel);
  FreezeAsStored(models, ranks.units);
  ranks.plan =
      trainer::PlanShards(ranks.units, Topology(config.mesh, expert), config.plan_options());
  ranks.held_bytes = trainer::PlanTrainingBytes(config.optimizer, ranks.plan).total();
  Status missing;
  for (const UnitSpec& unit : ranks.units) {
    auto& of_unit = ranks.positions.emplace_back();
    for (const ParamSpec& spec : unit.params) {
      Result<std::vector<std::size_t>> positions = FindInAll(models, spec);
      if (positions.ok()) {
        of_unit.push_back(*std::move(positions));
      } else {
        missing.Add(std::move(positions).status());
      }
    }
  }
  if (!missing.ok()) return missing;
  return ranks;
}

// The rank that loads what `rank` does: itself, unless the mesh makes replicas.
int Representative(const trainer::MeshConfig& mesh, int rank) {
  if (mesh.sharding == trainer::Sharding::kNoShard) return rank % mesh.expert_parallel;
  if (mesh.outer == trainer::OuterSharding::kNoShard) {
    return rank % (mesh.world_size / mesh.num_instances);
  }
  return rank;
}

Status AddBuffers(const TrainConfig& config, std::span<const NamedModel> models,
                  RankCounter& counter) {
  for (const trainer::ReplicatedBufferSpec& buffer : trainer::ListBuffers(config.model)) {
    const ParamSpec spec = {.name = buffer.name, .shape = buffer.shape};
    for (const NamedModel& model : models) {
      if (!model.is_weights) continue;
      CKPT_ASSIGN_OR_RETURN(const std::size_t position, model.Find(spec));
      const std::int64_t rows = spec.shape.empty() ? 1 : spec.shape[0];
      CKPT_RETURN_IF_ERROR(
          counter.Add(model, position,
                      {.spec = &spec,
                       .row_begin = 0,
                       .rows = rows,
                       .row_elems = std::max<std::int64_t>(NumElements(spec.shape) / rows, 1)}));
    }
  }
  return OkStatus();
}

// Every tensor of the weights belongs to a parameter of the model, or to one of its buffers.
class LoadedTensors {
 public:
  explicit LoadedTensors(const NamedModel& weights)
      : weights_(&weights), are_loaded_(weights.view.tensors.size()) {}

  void Add(const ExpertRanks& ranks) {
    for (const auto& of_unit : ranks.positions) {
      for (const auto& of_param : of_unit) are_loaded_[of_param.front()] = true;
    }
  }

  // Errors: kUnsupported.
  [[nodiscard]] Status CheckAll(const trainer::ModelConfig& model) {
    for (const trainer::ReplicatedBufferSpec& buffer : trainer::ListBuffers(model)) {
      const auto found = weights_->positions.find(buffer.name);
      if (found != weights_->positions.end()) are_loaded_[found->second] = true;
    }
    Status unknown;
    for (std::size_t t = 0; t < are_loaded_.size(); ++t) {
      if (are_loaded_[t]) continue;
      unknown.Add(Error(ErrorKind::kUnsupported, "ckpt-train's model has no such parameter")
                      .File(weights_->model->checkpoint->path.string())
                      .Tensor(weights_->view.tensors[t].key));
    }
    return unknown;
  }

 private:
  const NamedModel* weights_;
  std::vector<bool> are_loaded_;
};

// The weights, then the moments.
Result<std::vector<NamedModel>> NameModels(const ModelSource& weights,
                                           std::span<const ModelSource> moments) {
  std::vector<NamedModel> models;
  CKPT_ASSIGN_OR_RETURN(NamedModel named, NamedModel::Of(weights, true));
  models.push_back(std::move(named));
  for (const ModelSource& moment : moments) {
    CKPT_ASSIGN_OR_RETURN(named, NamedModel::Of(moment, false));
    models.push_back(std::move(named));
  }
  return models;
}

// Of a model that the trainer does not compute. `weights` outlives it. Errors: kUsage, and those of
// CheckSizes.
Result<StoredUnits> DivideStored(const NamedModel& weights, const trainer::MeshConfig& mesh,
                                 const trainer::MeshWords& words) {
  StoredUnits stored(weights.view);
  if (mesh.expert_parallel > 1 && weights.model->family == nullptr) {
    return Error(ErrorKind::kUsage,
                 fmt::format("{} divides experts, and no table says which tensors they are",
                             words.expert_parallel))
        .Hint("ckpt-inspect plan takes what model it is from --hf-assets DIR");
  }
  CKPT_RETURN_IF_ERROR(stored.CheckSizes(mesh.world_size));
  return stored;
}

// What the loads of all ranks are planned from.
struct LoadInput {
  const TrainConfig& config;
  std::span<const NamedModel> models;
  const ChunksByRow& chunks;
  const StoredUnits* stored;  // null: the trainer computes the model
  const LoadPlanOptions& options;
};

// Of one rank. `plan` is that of any rank with the same experts, and becomes that of this one.
Result<RankLoad> CountRank(const LoadInput& input, const ExpertRanks& shared, int rank,
                           ShardPlan& plan) {
  const Topology topology(input.config.mesh, rank);
  RankCounter counter(input.chunks);
  for (GroupPlan& group : plan.groups) {
    trainer::PlaceRank(topology, group);
    const auto unit = static_cast<std::size_t>(group.unit);
    for (const ParamPiece& piece : trainer::ListPieces(shared.units[unit], group)) {
      const auto param = static_cast<std::size_t>(piece.spec - shared.units[unit].params.data());
      for (std::size_t m = 0; m < input.models.size(); ++m) {
        const std::size_t position = shared.positions[unit][param][m];
        if (position == kAbsent) continue;
        CKPT_RETURN_IF_ERROR(counter.Add(input.models[m], position, piece));
      }
    }
  }
  if (input.stored == nullptr) {
    CKPT_RETURN_IF_ERROR(AddBuffers(input.config, input.models, counter));
  }
  return counter.Finish(shared.held_bytes);
}

// Sets the loads of the ranks with the experts of `expert`, but for those that load what another
// one does.
Status CountRanks(const LoadInput& input, const ExpertRanks& shared, int expert,
                  std::span<RankLoad> loads) {
  const trainer::MeshConfig& mesh = input.config.mesh;
  std::vector<int> ranks;
  for (int rank = expert; rank < mesh.world_size; rank += mesh.expert_parallel) {
    if (Representative(mesh, rank) == rank) ranks.push_back(rank);
  }
  // Each worker moves a plan of its own from rank to rank.
  std::vector<std::optional<ShardPlan>> plans(
      static_cast<std::size_t>(std::max(input.options.threads, 1)));
  return RunTasks(ranks.size(), input.options.threads, input.options.stop,
                  [&](std::size_t task, std::size_t worker) -> Status {
                    std::optional<ShardPlan>& plan = plans[worker];
                    if (!plan) plan = shared.plan;
                    CKPT_ASSIGN_OR_RETURN(loads[static_cast<std::size_t>(ranks[task])],
                                          CountRank(input, shared, ranks[task], *plan));
                    return OkStatus();
                  });
}

}  // namespace

Result<std::vector<RankLoad>> PlanLoad(const ModelSource& weights,
                                       std::span<const ModelSource> moments,
                                       const TrainConfig& config, const LoadPlanOptions& options) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<NamedModel> models, NameModels(weights, moments));
  const trainer::MeshConfig& mesh = config.mesh;
  std::optional<StoredUnits> stored;
  std::int64_t num_experts = config.model.moe ? config.model.moe->num_experts : 0;
  if (!options.is_computed) {
    CKPT_ASSIGN_OR_RETURN(stored, DivideStored(models.front(), mesh, options.words));
    num_experts = stored->num_experts();
  }
  CKPT_RETURN_IF_ERROR(trainer::ValidateMesh(mesh, num_experts, options.words));
  const ChunksByRow chunks(weights.source().index());
  const LoadInput input = {.config = config,
                           .models = models,
                           .chunks = chunks,
                           .stored = stored ? &*stored : nullptr,
                           .options = options};
  std::vector<RankLoad> loads(static_cast<std::size_t>(mesh.world_size));
  LoadedTensors loaded(models.front());
  for (int expert = 0; expert < mesh.expert_parallel; ++expert) {
    CKPT_ASSIGN_OR_RETURN(const ExpertRanks shared,
                          PlanExpertRanks(config, models, input.stored, expert));
    loaded.Add(shared);
    CKPT_RETURN_IF_ERROR(CountRanks(input, shared, expert, loads));
  }
  if (!stored) CKPT_RETURN_IF_ERROR(loaded.CheckAll(config.model));
  for (int rank = 0; rank < mesh.world_size; ++rank) {
    loads[static_cast<std::size_t>(rank)] =
        loads[static_cast<std::size_t>(Representative(mesh, rank))];
  }
  return loads;
}

Result<std::size_t> CountFrozen(const ModelSource& weights, std::span<const ModelSource> moments,
                                const trainer::ModelConfig& model) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<NamedModel> models, NameModels(weights, moments));
  const ModelView& view = models.front().view;
  std::set<std::string_view> frozen;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const std::string& name = view.tensors[t].key;
    if (!view.derived[t] && IsFrozen(models, name)) frozen.insert(name);
  }
  for (const trainer::ReplicatedBufferSpec& buffer : trainer::ListBuffers(model)) {
    frozen.erase(buffer.name);
  }
  return frozen.size();
}

}  // namespace ckpt::train
