#include "formats/mp_rank/internal/optimizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json/json_writer.h"
#include "formats/megatron/stored_settings.h"
#include "formats/mp_rank/internal/global_name.h"
#include "formats/mp_rank/internal/optimizer_buffers.h"
#include "formats/mp_rank/internal/optimizer_groups.h"
#include "formats/mp_rank/internal/parameters.h"
#include "formats/mp_rank/internal/rounded_copy.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankPart;
using torch_save::RankSet;
using torch_save::TorchSaveSource;

bool HasMember(const TorchSaveSource& file, std::string_view name) {
  const std::vector<std::string> members = file.members();
  return std::ranges::find(members, name) != members.end();
}

// A sample shows whether what is kept belongs to the parameter. One tensor rank of each stage is
// enough to show that the parameters were counted in the right order.
Status CheckExactValues(const std::vector<ParameterState>& states,
                        const std::vector<Parameter>& parameters) {
  for (const ParameterState& state : states) {
    if (state.field != kExactValue) continue;
    const Parameter& parameter = parameters[state.parameter];
    if (Status status = CheckIsRounded(parameter.weight, state.local); !status.ok()) {
      return std::move(status).Tensor(parameter.key);
    }
  }
  return OkStatus();
}

// Every parameter must have all that any has: a part that was overlooked would be lost.
Status CheckWhole(const OptimizerState& state, const std::vector<std::vector<RankPart>>& parts,
                  const Arguments& arguments, const std::vector<RankDirectory>& ranks,
                  const RankSet& set) {
  std::set<std::string> fields;
  std::set<std::pair<std::string, std::string>> present;  // of a parameter, by its place
  const auto place_of = [&](std::size_t rank, std::size_t position) {
    const std::string& key = parts[rank][position].key;
    const bool is_of_expert_rank =
        HasExpertOptimizer(arguments) && IsOfExpert(ParseLocalName(key)->name);
    // All expert ranks have the other parameters, and one of them saves what is kept of these.
    return fmt::format("{}.{}.{}.{}", ranks[rank].at.tensor, ranks[rank].at.pipeline,
                       is_of_expert_rank ? ranks[rank].at.expert : 0, key);
  };
  for (const OptimizerPart& part : state.parts) {
    // Weights of float32 are exact themselves.
    if (part.field != kExactValue) fields.insert(part.field);
    present.emplace(place_of(part.rank, part.position), part.field);
  }
  if (fields.empty()) {
    return Error(ErrorKind::kMissing, "the optimizer keeps nothing for the model's parameters")
        .File(set.names.front());
  }
  Status absent;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    for (const Parameter& parameter :
         ListParameters(parts[rank], arguments, ranks[rank].at.pipeline)) {
      for (const std::string& field : fields) {
        if (present.contains({place_of(rank, parameter.position), field})) continue;
        absent.Add(Error(ErrorKind::kMissing, "a parameter has no moment of the optimizer")
                       .File(set.names[rank])
                       .Tensor(parameter.key)
                       .Expected(field));
      }
    }
  }
  return absent;
}

// How often all parameters were updated; nothing if the optimizer, as SGD, does not count.
Result<std::optional<std::int64_t>> FindStep(const RankSet& set) {
  std::set<double> steps;
  for (std::size_t rank = 0; rank < set.files.size(); ++rank) {
    const auto collect = [&]() -> Status {
      if (!HasMember(*set.files[rank], kOptimizerMember)) return OkStatus();
      CKPT_ASSIGN_OR_RETURN(const JsonDocument member, ReadOptimizerMember(*set.files[rank]));
      return CollectSteps(*set.files[rank], member.root(), steps);
    };
    if (Status status = collect(); !status.ok()) return std::move(status).File(set.names[rank]);
  }
  if (steps.empty()) return std::optional<std::int64_t>();
  const Result<std::int64_t> step = megatron::CountOf(*steps.begin(), kOptimizerMember);
  if (steps.size() == 1 && step.ok()) return std::optional(*step);
  return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
      .File(set.names.front())
      .Tensor(kOptimizerMember)
      .Expected("one number of updates")
      .Actual(fmt::format("{}", fmt::join(steps, ", ")));
}

// What Megatron-Core has in its common state, from a rank's file. `step`: how often parameters were
// updated, if that is known.
Result<RenderedObject> RenderCommonState(const TorchSaveSource& file,
                                         std::optional<std::int64_t> step) {
  JsonWriter json;
  json.BeginObject();
  for (const std::string& member : file.members()) {
    if (ParseLocalName(member + ".") || member == kRandomMember) continue;
    json.Key(member);
    if (member != kOptimizerMember) {
      CKPT_ASSIGN_OR_RETURN(const RenderedObject value, file.ReadObject({.key = member}));
      json.Raw(value.json);
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(const JsonDocument optimizer, ReadOptimizerMember(file));
    CKPT_ASSIGN_OR_RETURN(const std::string groups, RenderGroups(optimizer.root(), step));
    json.Raw(groups);
  }
  json.End();
  return RenderedObject{.type = "dict", .json = json.Take(), .warnings = {}};
}

}  // namespace

Result<BufferFiles> OpenBufferFiles(Storage& storage, const Path& directory,
                                    const std::vector<RankDirectory>& ranks) {
  BufferFiles buffers;
  std::vector<std::string> present;
  for (const RankDirectory& rank : ranks) {
    const std::string name = fmt::format("{}/{}", rank.name, kBuffersFile);
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / name));
    const bool is_there = stat.type == FileType::kRegular;
    if (is_there) present.push_back(name);
    buffers.names.push_back(is_there ? std::optional(name) : std::nullopt);
  }
  CKPT_ASSIGN_OR_RETURN(buffers.files,
                        torch_save::OpenRankFiles(storage, directory, std::move(present)));
  return buffers;
}

Result<OptimizerState> ReadOptimizer(BufferFiles buffers, const RankSet& set,
                                     const std::vector<RankDirectory>& ranks,
                                     const std::vector<std::vector<RankPart>>& parts,
                                     const Arguments& arguments) {
  OptimizerState state;
  state.files = std::move(buffers.files);
  std::size_t next = 0;  // of these files
  for (std::size_t rank = 0; rank < set.files.size(); ++rank) {
    const std::int64_t stage = ranks[rank].at.pipeline;
    const std::vector<Parameter> parameters = ListParameters(parts[rank], arguments, stage);
    const auto read = [&]() -> Result<std::vector<ParameterState>> {
      if (buffers.names[rank]) {
        return ReadBuffers(*state.files.files[next], parameters, arguments, stage);
      }
      // What is distributed is saved by one of the ranks that have the same parameters.
      if (!state.files.names.empty() || !HasMember(*set.files[rank], kOptimizerMember)) {
        return std::vector<ParameterState>();
      }
      CKPT_ASSIGN_OR_RETURN(const JsonDocument member, ReadOptimizerMember(*set.files[rank]));
      return ReadGroupedStates(*set.files[rank], member.root(), parameters, arguments);
    };
    const std::string& file_name = buffers.names[rank] ? *buffers.names[rank] : set.names[rank];
    Result<std::vector<ParameterState>> states = read();
    if (!states.ok()) return std::move(states).status().File(file_name);
    if (ranks[rank].at.tensor == 0) {
      if (Status status = CheckExactValues(*states, parameters); !status.ok()) {
        return std::move(status).File(file_name);
      }
    }
    const std::size_t file = buffers.names[rank] ? set.files.size() + next++ : rank;
    for (ParameterState& own : *states) {
      state.parts.push_back({.rank = rank,
                             .position = parameters[own.parameter].position,
                             .field = std::move(own.field),
                             .file = file,
                             .local = std::move(own.local)});
    }
  }
  CKPT_RETURN_IF_ERROR(CheckWhole(state, parts, arguments, ranks, set));
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> step, FindStep(set));
  CKPT_RETURN_IF_ERROR(RenderCommonState(*set.files.front(), step).status());
  state.common = [step](const RankSet& all, std::size_t file) {
    return RenderCommonState(*all.files[file], step);
  };
  return state;
}

}  // namespace ckpt::mp_rank
