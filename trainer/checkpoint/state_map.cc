#include "trainer/checkpoint/state_map.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/tensor/box.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

// Rows [begin, begin + count) of one tensor.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// Ranks that hold the same rows.
class Holders {
 public:
  void Add(int rank) { ranks_.push({0, rank}); }

  // The rank that stages the fewest bytes; the lowest of several.
  [[nodiscard]] int LeastLoaded(std::span<const std::uint64_t> staged) {
    // A rank's staged bytes only grow. So an outdated entry is too low: it comes up first and is
    // corrected. The other entries need no check.
    for (;;) {
      const auto [load, rank] = ranks_.top();
      const std::uint64_t now = staged[static_cast<std::size_t>(rank)];
      if (load == now) return rank;
      ranks_.pop();
      ranks_.push({now, rank});
    }
  }

 private:
  using Entry = std::pair<std::uint64_t, int>;  // its staged bytes when last checked, and the rank
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ranks_;
};

// The ranks that hold each slice of a group's main weights, for every way to divide a group.
class HoldersOfSlices {
 public:
  explicit HoldersOfSlices(const MeshConfig& mesh) {
    for (int rank = 0; rank < mesh.world_size; ++rank) places_.emplace_back(mesh, rank);
  }

  // `expert`: the expert-parallel rank whose experts the group's parameters belong to, if they
  // belong to experts.
  std::vector<Holders>& Of(const GroupPlan& group, int expert) {
    const bool is_expert = group.param_class == ParamClass::kExpert;
    const bool divides_inner = group.part.elems < group.layout.total_elems;
    const bool divides_outer = group.main.elems < group.part.elems;
    std::vector<Holders>& slices =
        slices_[{is_expert ? expert : kEveryExpert, divides_inner, divides_outer}];
    if (!slices.empty()) return slices;
    slices.resize(static_cast<std::size_t>(group.layout.total_elems / group.main.elems));
    for (const Topology& place : places_) {
      if (is_expert && place.expert() != expert) continue;
      // Slice (i, o) is part i·outer + o, as GroupPlan says.
      int slice = 0;
      if (divides_inner) slice = is_expert ? place.expert_inner() : place.inner();
      if (divides_outer) slice = slice * group.outer + place.outer();
      slices[static_cast<std::size_t>(slice)].Add(place.rank());
    }
    return slices;
  }

 private:
  static constexpr int kEveryExpert = -1;

  std::vector<Topology> places_;  // of each rank
  std::map<std::tuple<int, bool, bool>, std::vector<Holders>> slices_;
};

struct HeldTensor {
  struct Piece {
    Rows rows;
    Holders* holders = nullptr;
  };
  Dims shape;
  bool trainable = false;
  std::vector<Piece> pieces;  // in order of rows
};
using HeldTensors = std::map<std::string, HeldTensor>;

// Adds a group's tensors, cut into pieces where slices end.
void AddGroup(const UnitSpec& unit, const GroupPlan& group, std::vector<Holders>& slices,
              HeldTensors& tensors) {
  const std::int64_t slice_elems = group.main.elems;
  for (std::size_t i = 0; i < group.params.size(); ++i) {
    const ParamSpec& spec = unit.params[group.params[i]];
    HeldTensor& tensor = tensors[spec.name];
    tensor.shape = spec.shape;
    tensor.trainable = group.trainable;
    const std::int64_t begin = group.layout.offsets[i];
    const std::int64_t end = begin + group.layout.num_elems[i];
    const std::int64_t row = group.layout.row_elems[i];
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t slice = at / slice_elems;
      const std::int64_t until = std::min(end, (slice + 1) * slice_elems);
      tensor.pieces.push_back({.rows = {(at - begin) / row, (until - at) / row},
                               .holders = &slices[static_cast<std::size_t>(slice)]});
      at = until;
    }
  }
}

// Which ranks hold which rows of the whole state. Cost: linear in the pieces, because a group is
// laid out once and not once per rank: all its ranks have the same layout and hold equal slices.
// `holders` outlives the result.
HeldTensors FindHolders(const TrainConfig& config, HoldersOfSlices& holders, Holders& everyone) {
  HeldTensors tensors;
  for (int expert = 0; expert < config.mesh.expert_parallel; ++expert) {
    const Topology first(config.mesh, expert);  // the first rank that holds these experts
    const std::vector<UnitSpec> units = ListTrainedUnits(config, expert);
    const ShardPlan plan = PlanShards(units, first, config.plan_options());
    for (const GroupPlan& group : plan.groups) {
      if (group.param_class != ParamClass::kExpert && expert > 0) continue;  // as for expert 0
      AddGroup(units[static_cast<std::size_t>(group.unit)], group, holders.Of(group, expert),
               tensors);
    }
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(config.model)) {
    tensors[buffer.name] = {.shape = buffer.shape,
                            .pieces = {{.rows = {0, buffer.shape.front()}, .holders = &everyone}}};
  }
  return tensors;
}

class MapBuilder {
 public:
  explicit MapBuilder(int num_ranks) : staged_(static_cast<std::size_t>(num_ranks)) {
    for (int rank = 0; rank < num_ranks; ++rank) builder_.AddFile(fmt::format("rank-{}", rank));
    raw_ = builder_.AddEncoding("raw");
  }

  void Add(std::string_view part, const std::string& name, const HeldTensor& tensor) {
    builder_.AddTensor(std::string(part) + name, DType::kFloat32, tensor.shape);
    const std::int64_t row_elems = NumElements(tensor.shape) / tensor.shape.front();
    for (const auto& [rows, holders] : tensor.pieces) {
      Box box = WholeBox(tensor.shape);
      box.offsets.front() = rows.begin;
      box.sizes.front() = rows.count;
      Stage(box, holders->LeastLoaded(staged_),
            static_cast<std::uint64_t>(rows.count * row_elems) * sizeof(float));
    }
  }

  Status AddWhole(const MemoryTensor& tensor) {
    builder_.AddTensor(std::string(kRunPart) + tensor.key, tensor.dtype, tensor.shape);
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    Stage(WholeBox(tensor.shape), 0, bytes);
    return OkStatus();
  }

  Result<StateMap> Build() {
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder_.Build());
    return StateMap{.index = std::move(index), .staged_bytes = std::move(staged_)};
  }

 private:
  void Stage(const Box& box, int rank, std::uint64_t bytes) {
    std::uint64_t& staged = staged_[static_cast<std::size_t>(rank)];
    builder_.AddChunk(box, static_cast<FileId>(rank), raw_, staged, bytes);
    staged += bytes;
  }

  IndexBuilder builder_;
  EncodingId raw_ = 0;
  std::vector<std::uint64_t> staged_;
};

}  // namespace

std::string MomentPart(int moment) { return fmt::format("moment{}.", moment); }

Result<StateMap> MapState(const TrainConfig& config, std::span<const MemoryTensor> run_tensors) {
  HoldersOfSlices holders(config.mesh);
  Holders everyone;
  for (int rank = 0; rank < config.mesh.world_size; ++rank) everyone.Add(rank);
  const HeldTensors tensors = FindHolders(config, holders, everyone);
  MapBuilder map(config.mesh.world_size);
  for (const auto& [name, tensor] : tensors) map.Add(kWeightsPart, name, tensor);
  for (int moment = 0; moment < NumMoments(config.optimizer); ++moment) {
    for (const auto& [name, tensor] : tensors) {
      if (tensor.trainable) map.Add(MomentPart(moment), name, tensor);
    }
  }
  for (const MemoryTensor& tensor : run_tensors) CKPT_RETURN_IF_ERROR(map.AddWhole(tensor));
  return map.Build();
}

}  // namespace ckpt::trainer
