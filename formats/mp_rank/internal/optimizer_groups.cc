#include "formats/mp_rank/internal/optimizer_groups.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/checkpoint/read.h"
#include "core/json/json_copy.h"
#include "core/json/json_writer.h"
#include "core/tensor/shape.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankPart;
using torch_save::TorchSaveSource;

constexpr std::string_view kGroups = "param_groups";
constexpr std::string_view kParams = "params";
constexpr std::string_view kStep = "step";
constexpr std::array<std::string_view, 3> kMoments = {"exp_avg", "exp_avg_sq", "momentum_buffer"};

// One optimizer in the member.
struct Optimizer {
  std::string prefix;  // of the keys of its tensors
  std::string state;   // of those that it keeps for parameters: a number and a field follow
  std::vector<JsonCursor> groups = {};
};

// An optimizer for float32 weights is torch's own; others have it as a member, too.
Result<std::vector<Optimizer>> FindOptimizers(const JsonCursor& member) {
  std::vector<std::pair<std::string, JsonCursor>> found;
  if (member.kind() == JsonKind::kArray) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, member.Items());
    for (std::size_t i = 0; i < items.size(); ++i) {
      found.emplace_back(fmt::format("{}.{}.", kOptimizerMember, i), items[i]);
    }
  } else {
    found.emplace_back(fmt::format("{}.", kOptimizerMember), member);
  }
  std::vector<Optimizer> optimizers;
  for (const auto& [prefix, whole] : found) {
    const std::optional<JsonCursor> inner = whole.Find(kOptimizerMember);
    CKPT_ASSIGN_OR_RETURN(const JsonCursor groups, inner.value_or(whole).At(kGroups));
    Optimizer& optimizer = optimizers.emplace_back(
        Optimizer{.prefix = prefix, .state = prefix + (inner ? "optimizer.state." : "state.")});
    CKPT_ASSIGN_OR_RETURN(optimizer.groups, groups.Items());
  }
  return optimizers;
}

Status CheckCount(const std::vector<Optimizer>& optimizers, const Arguments& arguments) {
  const std::size_t expected = HasExpertOptimizer(arguments) ? 2 : 1;
  if (optimizers.size() == expected) return OkStatus();
  return Error(ErrorKind::kUnsupported, "the file has other optimizers than the arguments ask for")
      .Expected(fmt::format("{}", expected))
      .Actual(fmt::format("{}", optimizers.size()));
}

// A group's parameters, by their positions in the list, and the numbers that it gives them.
struct GroupMembers {
  std::size_t group = 0;
  std::vector<std::int64_t> numbers;
  std::vector<std::size_t> parameters = {};
};

bool FlagOf(const JsonCursor& group, std::string_view name, bool otherwise) {
  const std::optional<JsonCursor> flag = group.Find(name);
  if (!flag) return otherwise;
  const Result<bool> value = flag->Bool();
  return value.ok() ? *value : otherwise;
}

// Whether the parameter can be in the group. A single group has all.
bool CanHold(const JsonCursor& group, const Parameter& parameter, bool is_only) {
  if (is_only) return true;
  // Megatron-Core says it by one of two flags, depending on the version.
  const bool has_own_rate =
      FlagOf(group, "is_decoupled_lr", false) || !FlagOf(group, "default_config", true);
  if (has_own_rate != parameter.has_own_rate) return false;
  const std::optional<JsonCursor> factor = group.Find("wd_mult");
  if (!factor) return true;
  const Result<double> number = factor->Double();
  return number.ok() && (*number != 0) == parameter.decays;
}

Result<std::vector<GroupMembers>> AssignParameters(const Optimizer& optimizer,
                                                   std::span<const Parameter> parameters,
                                                   bool of_experts) {
  std::vector<GroupMembers> used;
  for (std::size_t g = 0; g < optimizer.groups.size(); ++g) {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor params, optimizer.groups[g].At(kParams));
    CKPT_ASSIGN_OR_RETURN(std::vector<std::int64_t> numbers, params.Int64Array());
    if (!numbers.empty()) used.push_back({.group = g, .numbers = std::move(numbers)});
  }
  // By all that tells parameters apart: whether they have a rate of their own, and decay.
  std::map<std::pair<bool, bool>, std::vector<GroupMembers*>> candidates_of;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (parameters[p].is_expert != of_experts) continue;
    const auto [known, is_new] =
        candidates_of.try_emplace(std::pair(parameters[p].has_own_rate, parameters[p].decays));
    std::vector<GroupMembers*>& candidates = known->second;
    for (std::size_t u = 0; is_new && u < used.size(); ++u) {
      const bool can_hold =
          CanHold(optimizer.groups[used[u].group], parameters[p], used.size() == 1);
      if (can_hold) candidates.push_back(&used[u]);
    }
    if (candidates.size() != 1) {
      return Error(ErrorKind::kUnsupported,
                   "nothing says to which of its groups the optimizer counts a parameter")
          .Tensor(parameters[p].key)
          .Expected(
              "one group that decays and one that does not, at most, beside that of decoupled_lr")
          .Actual(fmt::format("{} groups that may have it", candidates.size()));
    }
    candidates.front()->parameters.push_back(p);
  }
  for (const GroupMembers& members : used) {
    if (members.numbers.size() == members.parameters.size()) continue;
    return Error(ErrorKind::kUnsupported, "the optimizer has other parameters than the model")
        .Expected(fmt::format("{} in group {}", members.parameters.size(), members.group))
        .Actual(fmt::format("{}", members.numbers.size()));
  }
  return used;
}

// The tensors of the member, of which each is taken once.
class OptimizerTensors {
 public:
  static Result<OptimizerTensors> Read(const TorchSaveSource& file) {
    OptimizerTensors tensors;
    CKPT_ASSIGN_OR_RETURN(std::vector<RankPart> parts,
                          file.RankParts(fmt::format("{}.", kOptimizerMember)));
    for (RankPart& part : parts) tensors.left_.emplace(part.key, std::move(part.local));
    return tensors;
  }

  [[nodiscard]] bool Has(const std::string& key) const { return left_.contains(key); }
  void Drop(const std::string& key) { left_.erase(key); }

  // Moves a tensor to the states, if there is one. Errors: kUnsupported (it has another shape).
  Status Take(const std::string& key, std::string field, std::size_t position,
              const Parameter& parameter, std::vector<ParameterState>& states) {
    const auto found = left_.find(key);
    if (found == left_.end()) return OkStatus();
    if (found->second.shape != parameter.weight.shape) {
      return Error(ErrorKind::kUnsupported,
                   "the optimizer keeps something of another shape than the parameter has")
          .Tensor(key)
          .Expected(fmt::format("{}, as {}", FormatDims(parameter.weight.shape), parameter.key))
          .Actual(FormatDims(found->second.shape));
    }
    states.push_back(
        {.parameter = position, .field = std::move(field), .local = std::move(found->second)});
    left_.erase(found);
    return OkStatus();
  }

  // Errors: kUnsupported (a tensor of this beginning was not taken).
  [[nodiscard]] Status CheckNoneLeft(const std::string& prefix) const {
    const auto left = left_.lower_bound(prefix);
    if (left == left_.end() || !left->first.starts_with(prefix)) return OkStatus();
    return Error(ErrorKind::kUnsupported,
                 "the optimizer keeps something that neither Adam nor SGD keeps for a parameter of "
                 "the model")
        .Tensor(left->first);
  }

 private:
  std::map<std::string, torch_save::RebuiltTensor> left_;
};

// The exact values of a group's 16-bit weights have a list of their own; float32 ones are exact.
Status TakeGroup(const Optimizer& optimizer, const GroupMembers& members,
                 std::span<const Parameter> parameters, OptimizerTensors& tensors,
                 std::vector<ParameterState>& states) {
  std::size_t exact = 0;
  for (std::size_t i = 0; i < members.parameters.size(); ++i) {
    const std::size_t p = members.parameters[i];
    const Parameter& parameter = parameters[p];
    const std::string state = fmt::format("{}{}.", optimizer.state, members.numbers[i]);
    tensors.Drop(state + std::string(kStep));
    for (const std::string_view moment : kMoments) {
      CKPT_RETURN_IF_ERROR(
          tensors.Take(state + std::string(moment), std::string(moment), p, parameter, states));
    }
    if (parameter.weight.array.dtype == DType::kFloat32) continue;
    const std::string key =
        fmt::format("{}fp32_from_fp16_params.{}.{}", optimizer.prefix, members.group, exact++);
    if (!tensors.Has(key)) {
      return Error(ErrorKind::kMissing, "the optimizer has no exact value of a parameter")
          .Tensor(key)
          .Expected(fmt::format("the value of {}", parameter.key));
    }
    CKPT_RETURN_IF_ERROR(tensors.Take(key, std::string(kExactValue), p, parameter, states));
  }
  return OkStatus();
}

Status RenderOptimizer(const Optimizer& optimizer, std::optional<std::int64_t> step,
                       JsonWriter& json) {
  json.BeginObject();
  if (step) json.Key("common_step").Int(*step);
  json.Key(kGroups).BeginArray();
  for (const JsonCursor& group : optimizer.groups) {
    json.BeginObject();
    CKPT_ASSIGN_OR_RETURN(const auto members, group.Members());
    for (const auto& [name, value] : members) {
      if (name == kParams) continue;
      json.Key(name);
      CKPT_RETURN_IF_ERROR(CopyJson(value, json));
    }
    json.End();
  }
  json.End().End();
  return OkStatus();
}

}  // namespace

Result<JsonDocument> ReadOptimizerMember(const TorchSaveSource& file) {
  CKPT_ASSIGN_OR_RETURN(const std::string json, file.OutlineMember(kOptimizerMember));
  return JsonDocument::Parse(json, kOptimizerMember);
}

Result<std::vector<ParameterState>> ReadGroupedStates(const TorchSaveSource& file,
                                                      const JsonCursor& member,
                                                      std::span<const Parameter> parameters,
                                                      const Arguments& arguments) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Optimizer> optimizers, FindOptimizers(member));
  CKPT_RETURN_IF_ERROR(CheckCount(optimizers, arguments));
  CKPT_ASSIGN_OR_RETURN(OptimizerTensors tensors, OptimizerTensors::Read(file));
  std::vector<ParameterState> states;
  for (std::size_t o = 0; o < optimizers.size(); ++o) {
    const Optimizer& optimizer = optimizers[o];
    CKPT_ASSIGN_OR_RETURN(const std::vector<GroupMembers> groups,
                          AssignParameters(optimizer, parameters, o == 1));
    for (const GroupMembers& members : groups) {
      CKPT_RETURN_IF_ERROR(TakeGroup(optimizer, members, parameters, tensors, states));
    }
    CKPT_RETURN_IF_ERROR(tensors.CheckNoneLeft(optimizer.state));
    CKPT_RETURN_IF_ERROR(tensors.CheckNoneLeft(optimizer.prefix + "fp32_from_fp16_params."));
  }
  return states;
}

Status CollectSteps(const TorchSaveSource& file, const JsonCursor& member,
                    std::set<double>& steps) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Optimizer> optimizers, FindOptimizers(member));
  const std::string ending = fmt::format(".{}", kStep);
  for (const Optimizer& optimizer : optimizers) {
    for (const JsonCursor& group : optimizer.groups) {
      const std::optional<JsonCursor> step = group.Find(kStep);
      if (!step || step->is_null()) continue;
      CKPT_ASSIGN_OR_RETURN(const double number, step->Double());
      steps.insert(number);
    }
    const std::span<const GlobalTensor> tensors = file.index().tensors();
    for (auto tensor = std::ranges::lower_bound(tensors, optimizer.state, {}, &GlobalTensor::key);
         tensor != tensors.end() && tensor->key.starts_with(optimizer.state); ++tensor) {
      if (!tensor->key.ends_with(ending)) continue;
      CKPT_ASSIGN_OR_RETURN(const double number, ReadStoredNumber(file, *tensor));
      steps.insert(number);
    }
  }
  return OkStatus();
}

Result<std::string> RenderGroups(const JsonCursor& member, std::optional<std::int64_t> step) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Optimizer> optimizers, FindOptimizers(member));
  JsonWriter json;
  if (member.kind() != JsonKind::kArray) {
    CKPT_RETURN_IF_ERROR(RenderOptimizer(optimizers.front(), step, json));
    return json.Take();
  }
  json.BeginObject().Key("$dict").BeginArray();
  for (std::size_t o = 0; o < optimizers.size(); ++o) {
    json.BeginArray().Int(o);
    CKPT_RETURN_IF_ERROR(RenderOptimizer(optimizers[o], step, json));
    json.End();
  }
  json.End().End();
  return json.Take();
}

}  // namespace ckpt::mp_rank
