#include "formats/fsdp2/internal/read_groups.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/quote.h"
#include "core/base/warning.h"
#include "core/checkpoint/read.h"
#include "core/json/json_reader.h"
#include "core/training/run_settings.h"
#include "formats/fsdp2/internal/run_keys.h"
#include "formats/megatron/distinct_groups.h"
#include "formats/megatron/object_fields.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::fsdp2 {
namespace {

using megatron::ObjectFields;
using megatron::SettingValue;

// Torch's schedulers keep a group's first rate in it.
constexpr std::string_view kFirstRate = "initial_lr";

// Whether a setting that is an object is a tensor, or holds one in a pair.
bool HoldsTensor(const JsonCursor& value) {
  const auto is_tensor = [](const JsonCursor& part) { return part.Find("$tensor").has_value(); };
  if (is_tensor(value)) return true;
  const std::optional<JsonCursor> tuple = value.Find("$tuple");
  const Result<std::vector<JsonCursor>> items = (tuple ? *tuple : value).Items();
  return items.ok() && std::ranges::any_of(*items, is_tensor);
}

// A group's settings. Any number among them may be a tensor, so that a captured graph can read it.
class TorchGroup final : public ObjectFields {
 public:
  // Adds to `tensors` each object that is read and holds a tensor. REQUIRES: both outlive this.
  TorchGroup(const CheckpointSource& source, std::string_view prefix,
             std::vector<std::string>& tensors)
      : ObjectFields(source, prefix), source_(source), tensors_(tensors) {}

  [[nodiscard]] bool Has(std::string_view name) const override {
    return ObjectFields::Has(name) || Find(name) != nullptr;
  }
  [[nodiscard]] std::vector<std::string> Names() const override {
    std::vector<std::string> names = ObjectFields::Names();
    std::ranges::move(megatron::NamesBehind(Where(""), source_.index().tensors()),
                      std::back_inserter(names));
    std::ranges::sort(names);
    return names;
  }

 protected:
  Status Give(std::string_view name, const TakeValue& take) const override {
    const GlobalTensor* const tensor = Find(name);
    if (tensor == nullptr) {
      return ObjectFields::Give(name, [&](const SettingValue& value) {
        if (HoldsTensor(value.json())) tensors_.push_back(Where(name));
        return take(value);
      });
    }
    CKPT_ASSIGN_OR_RETURN(const double number, ReadStoredNumber(source_, *tensor));
    CKPT_ASSIGN_OR_RETURN(const JsonDocument json,
                          JsonDocument::Parse(fmt::format("{}", number), tensor->key));
    const JsonCursor root = json.root();
    return take(root).Tensor(tensor->key);
  }

 private:
  [[nodiscard]] const GlobalTensor* Find(std::string_view name) const {
    return source_.index().FindTensor(Where(name));
  }

  const CheckpointSource& source_;
  std::vector<std::string>& tensors_;
};

// `prefix` is that of torch's settings, `rest` that of what torch does not keep; empty: none is
// stored. Adds to `tensors` as TorchGroup does.
Result<ParamGroup> ReadGroup(const CheckpointSource& source, const std::string& prefix,
                             const std::string& rest, std::vector<std::string>& tensors,
                             StoredRun& into) {
  const TorchGroup stored(source, prefix, tensors);
  ParamGroup group;
  CKPT_RETURN_IF_ERROR(megatron::ReadTorchGroup(stored, group, into));
  group.max_lr = group.lr;
  CKPT_RETURN_IF_ERROR(stored.Read(kFirstRate, group.max_lr));
  if (stored.Has(kFirstRate)) into.said.insert(fmt::format("{}max_lr", kOfGroups));
  if (rest.empty()) return group;
  CKPT_RETURN_IF_ERROR(megatron::ReadAddedSettings(ObjectFields(source, rest), group, into.said));
  return group;
}

std::string OwnPrefix(std::string_view number) { return fmt::format("{}{}.", kRunGroups, number); }

// Whether a group's rest is stored.
bool HasRest(const CheckpointSource& source, std::string_view number) {
  return ObjectFields(source, OwnPrefix(number)).Has("wd_mult");
}

// Groups by number, each with the names of its parameters.
Result<Groups> ReadNumbered(const CheckpointSource& source, const std::string& base,
                            const std::set<std::string>& numbers, std::vector<std::string>& tensors,
                            StoredRun& into) {
  std::vector<std::string> sorted(numbers.begin(), numbers.end());
  std::ranges::sort(sorted, {},
                    [](const std::string& number) { return std::pair(number.size(), number); });
  Groups all;
  std::set<std::string> seen;
  for (const std::string& number : sorted) {
    const std::string prefix = fmt::format("{}{}.", base, number);
    CKPT_ASSIGN_OR_RETURN(
        ParamGroup group,
        ReadGroup(source, prefix, HasRest(source, number) ? OwnPrefix(number) : "", tensors, into));
    std::vector<std::string> names;
    Status read = ObjectFields(source, prefix).Read(kParams, names);
    if (!read.ok()) {
      return std::move(read).Hint(
          "parameters are numbered, as in an optimizer's own state_dict: save what "
          "torch.distributed.checkpoint.state_dict.get_state_dict returns");
    }
    for (std::string& name : names) {
      if (!seen.insert(name).second) {
        return Error(ErrorKind::kBadMetadata, "a parameter is in two groups of the optimizer")
            .Tensor(fmt::format("{}{}", prefix, kParams))
            .Actual(Quote(name));
      }
      all.group_of.emplace_back(std::move(name), all.groups.size());
    }
    all.groups.push_back(group);
  }
  return all;
}

// Puts groups in the order of `position_of`, which is parallel to them; of equal positions, those
// that decay first, as in most programs.
void Order(const std::vector<std::size_t>& position_of, Groups& groups) {
  std::vector<std::size_t> order(groups.groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t group) {
    return std::pair(position_of[group], groups.groups[group].weight_decay == 0);
  });
  megatron::ReorderGroups(order, groups.groups, groups.group_of);
}

// Settings under the name of every parameter. Those of equal settings are one group.
Result<Groups> ReadFlat(const CheckpointSource& source, const std::string& base,
                        const std::set<std::string>& parameters, std::vector<std::string>& tensors,
                        StoredRun& into) {
  std::map<std::string, std::size_t> rest_of;
  for (std::size_t g = 0; HasRest(source, std::to_string(g)); ++g) {
    std::vector<std::string> names;
    CKPT_RETURN_IF_ERROR(ObjectFields(source, OwnPrefix(std::to_string(g))).Read(kParams, names));
    for (const std::string& name : names) rest_of[name] = g;
  }
  Groups all;
  megatron::DistinctGroups distinct;
  std::vector<std::size_t> position_of;
  for (const std::string& parameter : parameters) {
    const std::string prefix = fmt::format("{}{}.", base, parameter);
    const auto rest = rest_of.find(parameter);
    const bool has_rest = rest != rest_of.end();
    CKPT_ASSIGN_OR_RETURN(
        const ParamGroup group,
        ReadGroup(source, prefix, has_rest ? OwnPrefix(std::to_string(rest->second)) : "", tensors,
                  into));
    const std::size_t position = distinct.Add(group);
    all.group_of.emplace_back(parameter, position);
    if (position == position_of.size()) position_of.push_back(has_rest ? rest->second : 0);
  }
  all.groups = distinct.groups();
  Order(position_of, all);
  return all;
}

// Torch has no factor for a group's decay. Megatron's schedule multiplies the run's decay by it.
void TellDecayApart(const CheckpointSource& source, std::vector<ParamGroup>& groups) {
  if (HasRest(source, "0")) return;
  const double largest = LargestDecay(groups);
  for (ParamGroup& group : groups) {
    group.wd_mult = largest > 0 ? group.weight_decay / largest : 1;
  }
}

// A run has plain numbers, with which torch computes the same. A graph that was captured reads
// tensors alone.
void NoteTensors(const std::vector<std::string>& settings, StoredRun& into) {
  if (settings.empty()) return;
  Problem note = Warning(ErrorKind::kUnsupported,
                         "settings of the optimizer are tensors, and become plain numbers", {},
                         settings.front());
  note.actual = NameSome(settings);
  note.hint = "make tensors of them again where updates are captured in a graph";
  into.assumptions.push_back(std::move(note));
}

}  // namespace

Result<Groups> ReadGroups(const CheckpointSource& source, const std::string& optimizer,
                          StoredRun& into) {
  std::set<std::string> owners;
  const auto add = [&](std::string_view text) {
    const auto key = ParseOptimizerKey(text);
    const bool is_setting = key && key->optimizer == optimizer && key->section == kGroups;
    if (is_setting) owners.emplace(key->owner);
    return is_setting;
  };
  for (const ObjectEntry& object : source.index().objects()) add(object.key);
  std::vector<std::string> tensors;
  for (const GlobalTensor& tensor : source.index().tensors()) {
    if (add(tensor.key)) tensors.push_back(tensor.key);
  }
  const std::string base = fmt::format("{}{}", optimizer, kGroups);
  if (owners.empty()) {
    return Error(ErrorKind::kMissing, "nothing says the settings of the optimizer")
        .Expected(fmt::format("objects {}*", base));
  }
  const bool are_numbered = std::ranges::all_of(owners, &IsNumber);
  CKPT_ASSIGN_OR_RETURN(Groups all, are_numbered ? ReadNumbered(source, base, owners, tensors, into)
                                                 : ReadFlat(source, base, owners, tensors, into));
  NoteTensors(tensors, into);
  TellDecayApart(source, all.groups);
  return all;
}

}  // namespace ckpt::fsdp2
