#include "tools/ckpt-inspect/finding.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/quote.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {
namespace {

// "chunk [0:16, 0:32) of embed.weight", "a, b, c and 4 more", "header".
std::string DescribePlace(const DamagePlace& place) {
  if (place.keys.empty()) return place.region;
  if (place.chunk)
    return fmt::format("chunk {} of {}", FormatBox(*place.chunk), place.keys.front());
  return NameSome(place.keys);
}

void AppendPlace(const DamagePlace& place, JsonWriter& json) {
  json.Key("offset").Int(place.offset_bytes).Key("length").Int(place.size_bytes);
  if (place.bit) json.Key("bit").Int(*place.bit);
  json.Key("keys").BeginArray();
  for (const std::string& key : place.keys) json.Text(key);
  json.End();
  if (place.chunk) {
    json.Key("chunk").BeginObject();
    json.Key("offsets").Ints(place.chunk->offsets).Key("sizes").Ints(place.chunk->sizes).End();
  }
  if (!place.region.empty()) json.Key("region").Text(place.region);
}

bool IsNotUnderstood(const Problem& problem) {
  return problem.severity == Severity::kError && problem.kind == ErrorKind::kUnsupported &&
         !problem.tensor.empty();
}

}  // namespace

bool HasErrors(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.problem.severity == Severity::kError;
  });
}

bool HasDamage(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.problem.severity == Severity::kError && !IsNotUnderstood(finding.problem);
  });
}

std::vector<std::string> NotUnderstood(const std::vector<Finding>& findings) {
  std::set<std::string> keys;
  for (const Finding& finding : findings) {
    if (IsNotUnderstood(finding.problem)) keys.insert(finding.problem.tensor);
  }
  return {keys.begin(), keys.end()};
}

void PrintFindings(const std::vector<Finding>& findings, cli::Streams& streams) {
  std::vector<Problem> without_place;
  for (const Finding& finding : findings) {
    if (!finding.place) without_place.push_back(finding.problem);
  }
  PrintProblemList(without_place, streams);
  for (const Finding& finding : findings) {
    if (!finding.place) continue;
    PrintProblemList({finding.problem}, streams);
    const std::string place = DescribePlace(*finding.place);
    if (!place.empty()) streams.out.Write(fmt::format("  in: {}\n", EscapeControls(place)));
  }
}

void AppendFindings(const std::vector<Finding>& findings, JsonWriter& json) {
  json.Key("problems").BeginArray();
  for (const Finding& finding : findings) {
    json.BeginObject();
    json.Key("severity").Text(finding.problem.severity == Severity::kError ? "error" : "warning");
    cli::AppendProblemMembers(finding.problem, json);
    if (finding.place) AppendPlace(*finding.place, json);
    json.End();
  }
  json.End();
}

}  // namespace ckpt::inspect
