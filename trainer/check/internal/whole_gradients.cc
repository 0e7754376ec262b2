#include "trainer/check/internal/whole_gradients.h"

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/mesh/topology.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using trainer::GroupPlan;
using trainer::MainArrays;
using trainer::ParamSpec;
using trainer::TrainConfig;

// What one rank holds. A pure function of the mesh, so ranks need not send it.
struct Holdings {
  std::vector<trainer::UnitSpec> units;
  trainer::ShardPlan plan;
};

Holdings HoldingsOf(const TrainConfig& config, int rank) {
  const trainer::Topology topology(config.mesh, rank);
  Holdings holdings;
  holdings.units = trainer::ListTrainedUnits(config, topology.expert());
  holdings.plan = trainer::PlanShards(holdings.units, topology, config.plan_options());
  return holdings;
}

// Whole tensors, which are filled with rows.
class Assembly {
 public:
  // `main`: this rank's part of a flat array of gradients.
  void Add(const Holdings& holdings, const GroupPlan& group, std::span<const float> main);
  // Errors: kCoverage.
  Result<std::vector<MemoryTensor>> Take();

 private:
  struct Whole {
    MemoryTensor tensor;
    std::vector<bool> has_row;
  };
  Whole& Find(const ParamSpec& spec);

  std::map<std::string, Whole> tensors_;
};

Assembly::Whole& Assembly::Find(const ParamSpec& spec) {
  const auto [found, is_new] = tensors_.try_emplace(spec.name);
  if (is_new) {
    const auto elems = static_cast<std::size_t>(NumElements(spec.shape));
    found->second.tensor = {.key = spec.name,
                            .dtype = DType::kFloat32,
                            .shape = spec.shape,
                            .values = Bytes(elems * sizeof(float))};
    found->second.has_row.resize(static_cast<std::size_t>(spec.shape.front()));
  }
  return found->second;
}

void Assembly::Add(const Holdings& holdings, const GroupPlan& group, std::span<const float> main) {
  const trainer::UnitSpec& unit = holdings.units[static_cast<std::size_t>(group.unit)];
  for (const trainer::ParamPiece& piece : trainer::ListPieces(unit, group)) {
    Whole& whole = Find(*piece.spec);
    const auto values = main.subspan(static_cast<std::size_t>(piece.main_offset),
                                     static_cast<std::size_t>(piece.rows * piece.row_elems));
    std::memcpy(whole.tensor.values.data() +
                    static_cast<std::size_t>(piece.row_begin * piece.row_elems) * sizeof(float),
                values.data(), values.size_bytes());
    for (std::int64_t row = piece.row_begin; row < piece.row_begin + piece.rows; ++row) {
      whole.has_row[static_cast<std::size_t>(row)] = true;
    }
  }
}

Result<std::vector<MemoryTensor>> Assembly::Take() {
  std::vector<MemoryTensor> all;
  for (auto& [name, whole] : tensors_) {
    for (const bool has_row : whole.has_row) {
      if (!has_row) return Error(ErrorKind::kCoverage, "no rank holds some rows").Tensor(name);
    }
    all.push_back(std::move(whole.tensor));
  }
  return all;
}

}  // namespace

Result<std::vector<MemoryTensor>> GatherGradients(trainer::RankTrainer& trainer,
                                                  trainer::HostGroup& world) {
  const bool assembles = world.rank() == 0;
  std::vector<Holdings> holdings;
  for (int rank = 0; assembles && rank < world.size(); ++rank) {
    holdings.push_back(HoldingsOf(trainer.config(), rank));
  }
  Assembly assembly;
  // Arrays have the same size on all ranks: shards are equal.
  for (const MainArrays& main : trainer.params().mains()) {
    if (!main.gradient) continue;
    CKPT_ASSIGN_OR_RETURN(const std::vector<float> mine, trainer.ReadGradient(main));
    std::vector<float> all(mine.size() * static_cast<std::size_t>(world.size()));
    CKPT_RETURN_IF_ERROR(
        world.Exchange(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all))));
    for (std::size_t rank = 0; rank < holdings.size(); ++rank) {
      assembly.Add(holdings[rank], holdings[rank].plan.groups[main.group],
                   std::span(all).subspan(rank * mine.size(), mine.size()));
    }
  }
  return assembly.Take();
}

}  // namespace ckpt::train
