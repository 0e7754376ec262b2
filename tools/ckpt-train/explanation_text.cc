#include "tools/ckpt-train/explanation_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/units.h"
#include "tools/cli/table.h"

namespace ckpt::train {
namespace {

using cli::Align;
using cli::Table;
using trainer::Group;
using trainer::MeshConfig;
using trainer::ModelConfig;
using trainer::ParamClass;

// "671.0 B"
std::string FormatCount(std::int64_t count) {
  constexpr std::array<std::pair<double, const char*>, 3> kUnits = {
      {{1e9, " B"}, {1e6, " M"}, {1e3, " k"}}};
  for (const auto& [size, unit] : kUnits) {
    if (static_cast<double>(count) >= size) {
      return fmt::format("{:.1f}{}", static_cast<double>(count) / size, unit);
    }
  }
  return std::to_string(count);
}

// "0 to 6 by 2": the members of a group are evenly spaced.
std::string FormatMembers(const std::vector<int>& members) {
  if (members.size() == 1) return std::to_string(members.front());
  const int stride = members[1] - members[0];
  return fmt::format("{} to {}{}", members.front(), members.back(),
                     stride == 1 ? "" : fmt::format(" by {}", stride));
}

std::string Percent(double percent) { return fmt::format("{:.2f}%", percent); }

std::string ModelLines(const ModelConfig& model) {
  std::int64_t moe_layers = 0;
  for (const bool is_moe : model.is_moe_layer) moe_layers += is_moe ? 1 : 0;
  std::string text = "model       " + Counted(model.num_layers, "layer");
  if (model.moe) {
    text += fmt::format(" ({} with {})", moe_layers, Counted(model.moe->num_experts, "expert"));
  }
  text += fmt::format(", hidden {}, {} parameters", model.hidden_size,
                      FormatCount(trainer::CountParameters(model)));
  if (model.moe) {
    text += fmt::format(", {} active", FormatCount(trainer::CountActiveParameters(model)));
  }
  return text + "\n";
}

std::string MeshLines(const trainer::TrainConfig& config) {
  const MeshConfig& mesh = config.mesh;
  return fmt::format(
             "mesh        ranks {} = instances {} x {}, experts over {}\n"
             "sharding    {}, outer {}\n"
             "batch       sequences {} = micro-batches {} x {} x ranks {}, of {} tokens\n",
             mesh.world_size, mesh.num_instances, mesh.world_size / mesh.num_instances,
             mesh.expert_parallel, trainer::ShardingName(mesh.sharding),
             trainer::OuterShardingName(mesh.outer), config.global_batch_size,
             config.num_micro_batches(), config.micro_batch_size, mesh.world_size,
             config.seq_length) +
         (config.expert_choice ? fmt::format("auto        {}\n", config.expert_choice->Reason())
                               : "");
}

std::string GroupTable(const trainer::Topology& rank) {
  Table table({{"GROUP"}, {"RANKS", Align::kRight}, {"MEMBERS"}});
  for (int g = 0; g < trainer::kNumGroups; ++g) {
    const auto group = static_cast<Group>(g);
    table.AddRow({std::string(trainer::GroupName(group)), std::to_string(rank.Size(group)),
                  FormatMembers(rank.Members(group))});
  }
  return fmt::format("groups of rank {}\n", rank.rank()) + table.Format();
}

std::string ByteTable(const Explanation& e) {
  const trainer::PlannedBytes& bytes = e.bytes;
  const auto ranks = static_cast<std::uint64_t>(e.config.mesh.world_size);
  Table table({{"MEMORY"}, {"EVERY RANK", Align::kRight}, {"ALL RANKS", Align::kRight}});
  for (const auto& [use, size] :
       {std::pair("weights", bytes.weights), std::pair("main weights", bytes.main_weights),
        std::pair("gradients", bytes.gradients), std::pair("optimizer", bytes.optimizer),
        std::pair("slots", bytes.slots), std::pair("activations", e.activation_bytes),
        std::pair("other", e.other_bytes), std::pair("total", e.total_bytes())}) {
    table.AddRow({use, FormatByteSize(size), FormatByteSize(size * ranks)});
  }
  if (e.host_bytes > 0) {
    table.AddRow({"optimizer, on the host", FormatByteSize(e.host_bytes),
                  FormatByteSize(e.host_bytes * ranks)});
  }
  if (!e.copy_bytes.empty()) {
    table.AddRow({fmt::format("a save's copy, on the host (rank {})", e.rank.rank()),
                  FormatByteSize(e.copy_bytes_here()), FormatByteSize(e.copy_bytes_of_all())});
  }
  const trainer::ShardPlan& plan = e.plan;
  std::string text = table.Format();
  text += fmt::format(
      "slots hold whole units: {} x {} and ends {} of weights, {} x {} and ends {} of gradients",
      plan.slots.weight_slots, FormatByteSize(plan.weight_slot_bytes),
      FormatByteSize(plan.end_weight_bytes()), plan.slots.gradient_slots,
      FormatByteSize(plan.gradient_slot_bytes), FormatByteSize(plan.end_gradient_bytes()));
  if (plan.wire_bytes > 0) text += fmt::format(", {} on the wire", FormatByteSize(plan.wire_bytes));
  if (e.config.max_unsharded_bytes > 0) {
    text += fmt::format("; {} allowed", FormatByteSize(e.config.max_unsharded_bytes));
  }
  return text + "\n";
}

std::string ArrayTable(const std::vector<FlatArrays>& all) {
  Table table({{"FLAT ARRAY OF A UNIT"},
               {"CLASS"},
               {"PARAMS", Align::kRight},
               {"ELEMENTS", Align::kRight},
               {"PADDING", Align::kRight},
               {"HERE: WEIGHTS", Align::kRight},
               {"GRADIENTS", Align::kRight},
               {"OPTIMIZED", Align::kRight}});
  for (const FlatArrays& arrays : all) {
    table.AddRow(
        {arrays.units,
         fmt::format("{}{}", arrays.param_class == ParamClass::kExpert ? "expert" : "dense",
                     arrays.trainable ? "" : ", frozen"),
         std::to_string(arrays.num_params), std::to_string(arrays.elems),
         Percent(arrays.padding_percent()), std::to_string(arrays.weight_elems),
         std::to_string(arrays.gradient_elems),
         std::to_string(arrays.trainable ? arrays.main_elems : 0)});
  }
  return table.Format();
}

void AddCollectives(Table& table, std::string_view what, const Collectives& collectives) {
  if (collectives.calls == 0) return;
  table.AddRow(
      {std::string(what), std::to_string(collectives.calls), FormatByteSize(collectives.bytes)});
}

void AddMicroBatch(Table& table, std::string_view which, const MicroBatchSchedule& schedule) {
  const std::string prefix(which);
  AddCollectives(table, prefix + ": forward, gather weights of a unit", schedule.forward_gathers);
  AddCollectives(table, prefix + ": backward, gather weights of a unit", schedule.backward_gathers);
  AddCollectives(table, prefix + ": exchange tokens with experts", schedule.token_exchanges);
  AddCollectives(table, prefix + ": reduce gradients of a unit", schedule.reduces);
}

std::string ScheduleTable(const Explanation& e) {
  const std::int64_t micro_batches = e.config.num_micro_batches();
  Table table({{"A STEP OF A RANK"}, {"CALLS", Align::kRight}, {"BYTES", Align::kRight}});
  AddMicroBatch(table, "first micro-batch", e.schedule.first);
  if (micro_batches > 1) {
    AddMicroBatch(table, fmt::format("each of {} more", micro_batches - 1), e.schedule.later);
  }
  AddCollectives(table, "end: reduce sums of a flat array", e.schedule.late_reduces);
  AddCollectives(table, "update: gather weights of a flat array", e.schedule.refreshes);
  if (table.empty()) return "a step gathers and reduces nothing\n";
  return table.Format();
}

// What marks a forecast of a run that does not fit.
std::string_view MarkOf(const Forecast& forecast) {
  if (forecast.fits) return "";
  return forecast.bytes_with_mean_rows ? " !r" : " !";
}

// "180.3 ms  4.1%": the step, and how much of it is communication that computing waits for.
std::string CellText(const Forecast& forecast) {
  return fmt::format("{:.1f} ms {:4.1f}%{}", forecast.step.total(),
                     100 * forecast.step.exposed() / forecast.step.total(), MarkOf(forecast));
}

std::string ForecastTable(const ClusterForecast& cluster) {
  std::vector<cli::Column> columns = {{"GPUS", Align::kRight}};
  for (int s = 0; s < kNumStrategies; ++s) {
    columns.push_back({std::string(StrategyName(static_cast<Strategy>(s))), Align::kRight});
  }
  std::map<int, std::vector<std::string>> rows;
  for (const SweepCell& cell : cluster.sweep) {
    const int gpus = cell.forecast.mesh.world_size;
    std::vector<std::string>& row = rows[gpus];
    row.resize(columns.size(), "-");
    row.front() = std::to_string(gpus);
    row[static_cast<std::size_t>(cell.strategy) + 1] = CellText(cell.forecast);
  }
  Table table(std::move(columns));
  for (auto& [gpus, row] : rows) table.AddRow(std::move(row));
  return table.Format();
}

// How a run that does not fit would.
std::string AdviceText(const Forecast& forecast) {
  if (!forecast.bytes_with_mean_rows) return {};
  return fmt::format(
      "            experts have memory for the most rows that can come, {} a GPU in all; for the "
      "mean "
      "of rows it would be {}: set moe_expert_rank_capacity_factor\n",
      FormatByteSize(forecast.bytes_of_gpu), FormatByteSize(*forecast.bytes_with_mean_rows));
}

std::string ForecastLines(const ClusterForecast& cluster) {
  const Forecast& run = cluster.run;
  const bool may_bound_rows = std::ranges::any_of(cluster.sweep, [](const SweepCell& cell) {
    return cell.forecast.bytes_with_mean_rows.has_value();
  });
  return fmt::format(
             "\nforecast    {}: {:.1f} ms a step: computing {:.1f}, waiting for weights {:.1f}, "
             "for sums of gradients {:.1f}, for tokens {:.1f}\n"
             "            {:.0f} tokens/s a GPU, MFU {:.1f} %{}\n",
             cluster.name, run.step.total(), run.step.compute, run.step.gather_wait,
             run.step.reduce_wait, run.step.exchange, run.tokens_per_s_of_gpu, 100 * run.mfu,
             run.fits ? "" : "; needs more memory than the GPU has") +
         AdviceText(run) +
         fmt::format(
             "the same batch a GPU on other numbers of GPUs; of each step, the share that "
             "computing waits; !: more memory than a GPU has{}\n",
             may_bound_rows ? "; !r: that too, unless moe_expert_rank_capacity_factor bounds the "
                              "rows of a rank's experts"
                            : "") +
         ForecastTable(cluster);
}

}  // namespace

std::string ExplanationText(const Explanation& e) {
  return ModelLines(e.config.model) + MeshLines(e.config) + "\n" + GroupTable(e.rank) + "\n" +
         ByteTable(e) + "\n" + ArrayTable(e.arrays) + "\n" + ScheduleTable(e) +
         (e.forecast ? ForecastLines(*e.forecast) : "");
}

}  // namespace ckpt::train
