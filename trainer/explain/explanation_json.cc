#include <string>
#include <string_view>

#include "core/json/json_writer.h"
#include "trainer/explain/explanation.h"

namespace ckpt::train {
namespace {

using trainer::Group;
using trainer::ParamClass;

void WriteModel(const trainer::ModelConfig& model, JsonWriter& json) {
  json.Key("model").BeginObject();
  json.Key("layers").Int(model.num_layers);
  json.Key("hidden_size").Int(model.hidden_size);
  json.Key("experts").Int(model.moe ? model.moe->num_experts : 0);
  json.Key("parameters").Int(trainer::CountParameters(model));
  json.Key("active_parameters").Int(trainer::CountActiveParameters(model));
  json.End();
}

void WriteMesh(const trainer::MeshConfig& mesh, JsonWriter& json) {
  json.Key("mesh").BeginObject();
  json.Key("ranks").Int(mesh.world_size);
  json.Key("num_distributed_optimizer_instances").Int(mesh.num_instances);
  json.Key("expert_model_parallel_size").Int(mesh.expert_parallel);
  json.Key("data_parallel_sharding_strategy").Text(trainer::ShardingName(mesh.sharding));
  json.Key("outer_dp_sharding_strategy").Text(trainer::OuterShardingName(mesh.outer));
  json.End();
}

void WriteExpertChoice(const trainer::ExpertChoice& choice, JsonWriter& json) {
  json.Key("auto").BeginObject();
  json.Key("expert_model_parallel_size").Int(choice.expert_parallel);
  json.Key("candidate").Int(choice.candidate).Key("tokens").Int(choice.tokens);
  json.Key("gather_time").Double(choice.gather_time);
  json.Key("exchange_time").Double(choice.exchange_time);
  json.Key("hidden_tokens").Double(choice.hidden_tokens);
  json.Key("reason").Text(choice.Reason());
  json.End();
}

void WriteRank(const trainer::Topology& rank, JsonWriter& json) {
  json.Key("rank").BeginObject();
  json.Key("rank").Int(rank.rank()).Key("outer").Int(rank.outer()).Key("inner").Int(rank.inner());
  json.Key("expert").Int(rank.expert()).Key("expert_inner").Int(rank.expert_inner());
  json.Key("groups").BeginObject();
  for (int g = 0; g < trainer::kNumGroups; ++g) {
    const auto group = static_cast<Group>(g);
    json.Key(trainer::GroupName(group)).Ints(rank.Members(group));
  }
  json.End().End();
}

void WriteBytes(std::string_view key, const Explanation& e, std::uint64_t ranks,
                std::uint64_t copy_bytes, JsonWriter& json) {
  const trainer::PlannedBytes& bytes = e.bytes;
  json.Key(key).BeginObject();
  json.Key("weights").Int(bytes.weights * ranks);
  json.Key("main_weights").Int(bytes.main_weights * ranks);
  json.Key("gradients").Int(bytes.gradients * ranks);
  json.Key("optimizer").Int(bytes.optimizer * ranks);
  json.Key("slots").Int(bytes.slots * ranks);
  json.Key("activations").Int(e.activation_bytes * ranks);
  json.Key("other").Int(e.other_bytes * ranks);
  json.Key("total").Int(e.total_bytes() * ranks);
  if (e.host_bytes > 0) json.Key("optimizer_on_host").Int(e.host_bytes * ranks);
  if (!e.copy_bytes.empty()) json.Key("save_copy_on_host").Int(copy_bytes);
  json.End();
}

void WriteSlots(const Explanation& e, JsonWriter& json) {
  json.Key("slots").BeginObject();
  json.Key("weight_slots").Int(e.plan.slots.weight_slots);
  json.Key("weight_slot_bytes").Int(e.plan.weight_slot_bytes);
  json.Key("root_weight_bytes").Int(e.plan.end_weight_bytes());
  json.Key("gradient_slots").Int(e.plan.slots.gradient_slots);
  json.Key("gradient_slot_bytes").Int(e.plan.gradient_slot_bytes);
  json.Key("root_gradient_bytes").Int(e.plan.end_gradient_bytes());
  json.Key("wire_bytes").Int(e.plan.wire_bytes);
  json.Key("max_unsharded_bytes");
  e.config.max_unsharded_bytes == 0 ? json.Null() : json.Int(e.config.max_unsharded_bytes);
  json.End();
}

void WriteArrays(const FlatArrays& arrays, JsonWriter& json) {
  json.BeginObject();
  json.Key("units").Text(arrays.units).Key("num_units").Int(arrays.num_units);
  json.Key("class").Text(arrays.param_class == ParamClass::kExpert ? "expert" : "dense");
  json.Key("trainable").Bool(arrays.trainable);
  json.Key("parameters").Int(arrays.num_params);
  json.Key("elements").Int(arrays.elems);
  json.Key("padding_elements").Int(arrays.padding_elems);
  json.Key("padding_percent").Double(arrays.padding_percent());
  json.Key("shards").Int(arrays.num_shards);
  json.Key("weight_elements").Int(arrays.weight_elems);
  json.Key("gradient_elements").Int(arrays.gradient_elems);
  json.Key("main_elements").Int(arrays.trainable ? arrays.main_elems : 0);
  json.End();
}

void WriteCollectives(std::string_view key, const Collectives& collectives, JsonWriter& json) {
  json.Key(key).BeginObject();
  json.Key("calls").Int(collectives.calls).Key("bytes").Int(collectives.bytes);
  json.End();
}

void WriteMicroBatch(std::string_view key, const MicroBatchSchedule& schedule, JsonWriter& json) {
  json.Key(key).BeginObject();
  WriteCollectives("forward_gathers", schedule.forward_gathers, json);
  WriteCollectives("backward_gathers", schedule.backward_gathers, json);
  WriteCollectives("token_exchanges", schedule.token_exchanges, json);
  WriteCollectives("reduces", schedule.reduces, json);
  json.End();
}

void WriteSchedule(const Explanation& e, JsonWriter& json) {
  json.Key("schedule").BeginObject();
  json.Key("micro_batches").Int(e.config.num_micro_batches());
  WriteMicroBatch("first_micro_batch", e.schedule.first, json);
  WriteMicroBatch("later_micro_batch", e.schedule.later, json);
  WriteCollectives("late_reduces", e.schedule.late_reduces, json);
  WriteCollectives("refreshes", e.schedule.refreshes, json);
  json.End();
}

}  // namespace

std::string ExplanationJson(const Explanation& e) {
  JsonWriter json(1);
  json.BeginObject().Key("ok").Bool(true);
  WriteModel(e.config.model, json);
  WriteMesh(e.config.mesh, json);
  if (e.config.expert_choice) WriteExpertChoice(*e.config.expert_choice, json);
  WriteRank(e.rank, json);
  WriteBytes("bytes_per_rank", e, 1, e.copy_bytes_here(), json);
  WriteBytes("bytes_of_all_ranks", e, static_cast<std::uint64_t>(e.config.mesh.world_size),
             e.copy_bytes_of_all(), json);
  WriteSlots(e, json);
  json.Key("flat_arrays").BeginArray();
  for (const FlatArrays& arrays : e.arrays) WriteArrays(arrays, json);
  json.End();
  WriteSchedule(e, json);
  if (e.forecast) {
    json.Key("cluster");
    WriteForecast(*e.forecast, json);
  }
  json.End();
  return json.Take() + "\n";
}

}  // namespace ckpt::train
