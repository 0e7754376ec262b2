#include "trainer/checkpoint/state_map.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/tensor/box.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

// Half-open, of one tensor.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  friend auto operator<=>(const Rows&, const Rows&) = default;
};

struct Holders {
  Dims shape;
  bool trainable = false;
  std::map<Rows, std::vector<int>> ranks;  // who holds these rows
};
using HoldersByName = std::map<std::string, Holders>;

HoldersByName FindHolders(const TrainConfig& config) {
  HoldersByName holders;
  for (int rank = 0; rank < config.mesh.world_size; ++rank) {
    const Topology topology(config.mesh, rank);
    const std::vector<UnitSpec> units = ListTrainedUnits(config, topology.expert());
    const ShardPlan plan = PlanShards(units, topology, config.precision, config.slots);
    for (const GroupPlan& group : plan.groups) {
      for (const ParamPiece& piece :
           ListPieces(units[static_cast<std::size_t>(group.unit)], group)) {
        Holders& of_param = holders[piece.spec->name];
        of_param.shape = piece.spec->shape;
        of_param.trainable = group.trainable;
        of_param.ranks[{piece.row_begin, piece.rows}].push_back(rank);
      }
    }
  }
  std::vector<int> everyone(static_cast<std::size_t>(config.mesh.world_size));
  for (std::size_t rank = 0; rank < everyone.size(); ++rank) {
    everyone[rank] = static_cast<int>(rank);
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(config.model)) {
    holders[buffer.name] = {.shape = buffer.shape,
                            .ranks = {{{0, buffer.shape.front()}, everyone}}};
  }
  return holders;
}

class MapBuilder {
 public:
  explicit MapBuilder(int num_ranks) : staged_(static_cast<std::size_t>(num_ranks)) {
    for (int rank = 0; rank < num_ranks; ++rank) builder_.AddFile(fmt::format("rank-{}", rank));
    raw_ = builder_.AddEncoding("raw");
  }

  void Add(std::string_view part, const std::string& name, const Holders& holders) {
    builder_.AddTensor(std::string(part) + name, DType::kFloat32, holders.shape);
    const std::int64_t row_elems = NumElements(holders.shape) / holders.shape.front();
    for (const auto& [rows, ranks] : holders.ranks) {
      Box box = WholeBox(holders.shape);
      box.offsets.front() = rows.begin;
      box.sizes.front() = rows.count;
      Stage(box, LeastLoaded(ranks),
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
  [[nodiscard]] int LeastLoaded(const std::vector<int>& ranks) const {
    return *std::ranges::min_element(ranks, {}, [this](int rank) {
      return std::pair(staged_[static_cast<std::size_t>(rank)], rank);
    });
  }

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
  const HoldersByName holders = FindHolders(config);
  MapBuilder map(config.mesh.world_size);
  for (const auto& [name, of_param] : holders) map.Add(kWeightsPart, name, of_param);
  for (int moment = 0; moment < NumMoments(config.optimizer); ++moment) {
    for (const auto& [name, of_param] : holders) {
      if (of_param.trainable) map.Add(MomentPart(moment), name, of_param);
    }
  }
  for (const MemoryTensor& tensor : run_tensors) CKPT_RETURN_IF_ERROR(map.AddWhole(tensor));
  return map.Build();
}

}  // namespace ckpt::trainer
