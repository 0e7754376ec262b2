#include "tools/ckpt-inspect/mesh_text.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/base/quote.h"
#include "core/base/text_number.h"

namespace ckpt::inspect {
namespace {

constexpr int kMaxRanks = 1'000'000;

Result<int> ParseCount(std::string_view word, std::string_view text) {
  const std::optional<int> number = ParseNumber<int>(text);
  if (number && *number >= 1 && *number <= kMaxRanks) return *number;
  return Error(ErrorKind::kUsage, "a number of ranks is expected in the mesh")
      .Expected(std::string(word) + "=N, N from 1 to " + std::to_string(kMaxRanks))
      .Actual(Quote(text));
}

Result<trainer::Sharding> ParseSharding(std::string_view text) {
  std::string known;
  for (const trainer::Sharding sharding :
       {trainer::Sharding::kNoShard, trainer::Sharding::kOptim, trainer::Sharding::kOptimGrads,
        trainer::Sharding::kOptimGradsParams}) {
    if (text == trainer::ShardingName(sharding)) return sharding;
    known += (known.empty() ? "" : ", ") + std::string(trainer::ShardingName(sharding));
  }
  return Error(ErrorKind::kUsage, "unknown sharding in the mesh")
      .Expected("one of " + known)
      .Actual(Quote(text));
}

}  // namespace

Result<trainer::MeshConfig> ParseMesh(std::string_view text) {
  std::map<std::string_view, std::string_view> words;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t equals = item.find('=');
    const bool is_new = equals != std::string_view::npos &&
                        words.emplace(item.substr(0, equals), item.substr(equals + 1)).second;
    if (is_new) continue;
    return Error(ErrorKind::kUsage, "the mesh is a list of different WORD=VALUE")
        .Expected("dp=8,hsdp=2,ep=4")
        .Actual(Quote(item));
  }
  trainer::MeshConfig mesh;
  const auto take = [&](std::string_view word) {
    const auto found = words.find(word);
    const std::string_view value = found == words.end() ? "" : found->second;
    if (found != words.end()) words.erase(found);
    return value;
  };
  const std::string_view dp = take("dp");
  if (dp.empty()) {
    return Error(ErrorKind::kUsage, "the mesh does not say how many ranks there are")
        .Expected("dp=N")
        .Actual(Quote(text));
  }
  CKPT_ASSIGN_OR_RETURN(mesh.world_size, ParseCount("dp", dp));
  for (const auto& [word, outer] : {std::pair("hsdp", trainer::OuterSharding::kNoShard),
                                    std::pair("hfsdp", trainer::OuterSharding::kOptim)}) {
    const std::string_view value = take(word);
    if (value.empty()) continue;
    if (mesh.num_instances != 1) {
      return Error(ErrorKind::kUsage, "a mesh is hsdp or hfsdp, not both").Actual(Quote(text));
    }
    CKPT_ASSIGN_OR_RETURN(mesh.num_instances, ParseCount(word, value));
    mesh.outer = outer;
  }
  if (const std::string_view ep = take("ep"); !ep.empty()) {
    CKPT_ASSIGN_OR_RETURN(mesh.expert_parallel, ParseCount("ep", ep));
  }
  if (const std::string_view sharding = take("sharding"); !sharding.empty()) {
    CKPT_ASSIGN_OR_RETURN(mesh.sharding, ParseSharding(sharding));
  }
  if (words.empty()) return mesh;
  return Error(ErrorKind::kUsage, "unknown word in the mesh")
      .Expected("dp, hsdp, hfsdp, ep or sharding")
      .Actual(Quote(words.begin()->first));
}

trainer::MeshWords WordsOfMesh(const trainer::MeshConfig& mesh) {
  const bool divides_again = mesh.outer != trainer::OuterSharding::kNoShard;
  return {.instances = divides_again ? "hfsdp" : "hsdp",
          .expert_parallel = "ep",
          .sharding = "sharding",
          .without_outer = "take hsdp instead"};
}

}  // namespace ckpt::inspect
