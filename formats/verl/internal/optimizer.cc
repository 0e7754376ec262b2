#include "formats/verl/internal/optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "core/json/json_copy.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "formats/verl/internal/rank_tensors.h"

namespace ckpt::verl {
namespace {

using torch_save::RankPart;
using torch_save::RankSet;

constexpr std::string_view kState = "state.";
constexpr std::string_view kGroups = "param_groups";
constexpr std::string_view kParams = "params";
constexpr std::string_view kOptimizer = "optim.";

// Python's name of a plain value's type.
std::string_view TypeOf(const JsonCursor& value) {
  switch (value.kind()) {
    case JsonKind::kNull:
      return "NoneType";
    case JsonKind::kBool:
      return "bool";
    case JsonKind::kInt:
    case JsonKind::kUint:
      return "int";
    case JsonKind::kFloat:
      return "float";
    case JsonKind::kText:
      return "str";
    case JsonKind::kArray:
      return "list";
    case JsonKind::kObject:
      return value.Find("$tuple") ? "tuple" : "dict";
  }
  return "dict";
}

Status CannotName(std::string_view what, const std::string& file) {
  return Error(ErrorKind::kUnsupported, what).File(file);
}

// The numbers in the only group are those of all parameters, in order.
Status CheckNumbers(const JsonCursor& group, std::size_t num_parameters, const std::string& file) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor params, group.At(kParams));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> numbers, params.Int64Array());
  bool are_in_order = true;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    are_in_order = are_in_order && numbers[i] == static_cast<std::int64_t>(i);
  }
  if (are_in_order && numbers.size() == num_parameters) return OkStatus();
  return CannotName("the optimizer has other parameters than the model", file)
      .Expected(fmt::format("{} parameters, numbered in order", num_parameters))
      .Actual(fmt::format("{}", numbers.size()));
}

// The groups of a rank's file, of which there must be one.
Result<JsonDocument> ReadOnlyGroup(const RankSet& set, std::size_t file) {
  const std::string& name_of_file = set.names[file];
  const Result<RenderedObject> rendered =
      set.files[file]->ReadObject({.key = std::string(kGroups)});
  if (!rendered.ok() && rendered.status().kind() == ErrorKind::kNotFound) {
    return CannotName("the file holds no groups of parameters, as torch's optimizers save them",
                      name_of_file);
  }
  if (!rendered.ok()) return rendered.status();
  CKPT_ASSIGN_OR_RETURN(JsonDocument document, JsonDocument::Parse(rendered->json, name_of_file));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> groups, document.root().Items());
  if (groups.size() == 1) return document;
  return CannotName("the optimizer numbers its parameters by groups", name_of_file)
      .Expected("one group")
      .Actual(fmt::format("{}", groups.size()));
}

// As a rank's file has them, by the keys of the checkpoint.
Result<std::map<std::string, RenderedObject>> ReadGroups(const RankSet& set, std::size_t file,
                                                         const std::vector<Parameter>& parameters) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, ReadOnlyGroup(set, file));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> groups, document.root().Items());
  CKPT_RETURN_IF_ERROR(CheckNumbers(groups.front(), parameters.size(), set.names[file]));
  std::map<std::string, RenderedObject> objects;
  CKPT_ASSIGN_OR_RETURN(const auto members, groups.front().Members());
  for (const auto& [name, value] : members) {
    RenderedObject& object = objects[fmt::format("{}{}.0.{}", kOptimizer, kGroups, name)];
    JsonWriter json;
    if (name == kParams) {
      json.BeginArray();
      for (const Parameter& parameter : parameters) json.Text(parameter.name);
      json.End();
    } else {
      CKPT_RETURN_IF_ERROR(CopyJson(value, json));
    }
    object.type = TypeOf(value);
    object.json = json.Take();
  }
  return objects;
}

// "state.7.exp_avg" → 7 and "exp_avg".
struct NumberedKey {
  std::size_t number = 0;
  std::string_view field;
};
std::optional<NumberedKey> ParseKey(std::string_view key) {
  key.remove_prefix(kState.size());
  const std::optional<std::size_t> number = TakeNumber<std::size_t>(key);
  if (!number || !TakePrefix(".", key)) return std::nullopt;
  return NumberedKey{.number = *number, .field = key};
}

// Whether ranks share it, be it one rank. FSDP shares every parameter and no buffer.
bool IsShared(const RankPart& part) { return !part.cut_dims.empty() || part.box.has_value(); }

// Whether it is what FSDP1 keeps of the parameters of a layer, which it flattens into one. FSDP2
// has a DTensor for each parameter.
bool IsFlat(const RankPart& part, const std::vector<Parameter>& parameters) {
  return part.shape.size() == 1 && part.cut_dims.empty() &&
         std::ranges::find(parameters, part.shape, &Parameter::shape) == parameters.end();
}

// The number of a flat parameter is that of no parameter of the model. So this comes before numbers
// are compared.
Status CheckShapes(const std::map<std::string, Parts>& state,
                   const std::vector<Parameter>& parameters, const RankSet& set) {
  for (const auto& [key, parts] : state) {
    const std::optional<NumberedKey> parsed = ParseKey(key);
    if (!parsed || parsed->number >= parameters.size()) continue;
    const Parameter& parameter = parameters[parsed->number];
    const Dims& shape = parts.front().part.shape;
    if (shape.empty() || shape == parameter.shape) continue;
    const bool is_flat = IsFlat(parts.front().part, parameters);
    Status refused =
        CannotName(is_flat ? "the optimizer keeps flat parameters, and nothing says where in them "
                             "one lies"
                           : "the optimizer has other parameters than the model, or another order",
                   set.names.front())
            .Tensor(key)
            .Expected(
                fmt::format("the shape of {}, {}", parameter.name, FormatDims(parameter.shape)))
            .Actual(FormatDims(shape));
    if (!is_flat) return refused;
    return std::move(refused).Hint("FSDP1 saves it so; FSDP2 (actor.strategy=fsdp2) does not");
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<Parameter>> ListParameters(const RankSet& set) {
  CKPT_ASSIGN_OR_RETURN(std::vector<RankPart> parts, set.files.front()->RankParts());
  if (std::ranges::any_of(parts, &IsShared)) std::erase_if(parts, std::not_fn(&IsShared));
  std::vector<Parameter> parameters;
  std::set<std::pair<const void*, std::uint64_t>> places;  // of those so far, in the file
  for (RankPart& part : parts) {
    // Of a tied parameter there are several names, and one array.
    const bool is_tied = NumElements(part.local.shape) > 0 &&
                         !places.emplace(part.local.storage, part.local.array.offset_bytes).second;
    if (!is_tied) parameters.push_back({.name = std::move(part.key), .shape = part.shape});
  }
  return parameters;
}

Result<NamedOptimizer> NameOptimizer(const RankSet& set, const std::vector<Parameter>& parameters) {
  CKPT_ASSIGN_OR_RETURN(const auto state, CollectParts(set, kState));
  // Numbers go from group to group, so with several of them shapes differ for that reason alone.
  CKPT_RETURN_IF_ERROR(ReadOnlyGroup(set, 0).status());
  CKPT_RETURN_IF_ERROR(CheckShapes(state, parameters, set));
  NamedOptimizer named;
  CKPT_ASSIGN_OR_RETURN(const auto groups, ReadGroups(set, 0, parameters));
  const auto shared = std::make_shared<const std::vector<Parameter>>(parameters);
  for (const auto& [key, value] : groups) {
    named.groups[key] = [key = key, shared](const RankSet& all,
                                            std::size_t file) -> Result<RenderedObject> {
      CKPT_ASSIGN_OR_RETURN(auto of_rank, ReadGroups(all, file, *shared));
      const auto found = of_rank.find(key);
      if (found != of_rank.end()) return std::move(found->second);
      return Error(ErrorKind::kMissing, "a rank's optimizer lacks a setting of another's")
          .File(all.names[file])
          .Tensor(key);
    };
  }
  for (const auto& [key, parts] : state) {
    const std::optional<NumberedKey> parsed = ParseKey(key);
    if (!parsed || parsed->number >= parameters.size()) {
      return CannotName("the optimizer keeps something for no parameter of the model",
                        set.names.front())
          .Tensor(key);
    }
    named.tensors.push_back(Assemble(fmt::format("{}{}{}.{}", kOptimizer, kState,
                                                 parameters[parsed->number].name, parsed->field),
                                     parts, set.names));
  }
  return named;
}

}  // namespace ckpt::verl
