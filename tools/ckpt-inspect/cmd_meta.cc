#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/quote.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/ckpt-inspect/held_tensors.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/cli/error_report.h"

namespace ckpt::inspect {
namespace {

struct NamedObject {
  std::string key;
  std::string json;
  std::vector<HeldTensor> held;
};

struct Contents {
  std::vector<NamedObject> objects;
  std::optional<std::string> value;  // JSON of the whole pickled object, of a torch.save file
  std::vector<Problem> problems;
};

void AddProblem(Problem problem, const std::string& key, std::vector<Problem>& problems) {
  if (problem.tensor.empty()) problem.tensor = key;
  problems.push_back(std::move(problem));
}

// The object as JSON; nothing if it cannot be read. Errors and warnings go to `problems`.
std::optional<RenderedObject> Render(const CheckpointSource& source, const ObjectEntry& object,
                                     std::vector<Problem>& problems) {
  const auto add = [&](const std::vector<Problem>& found) {
    for (const Problem& problem : found) AddProblem(problem, object.key, problems);
  };
  if (const Status status = source.index().CheckDeliverable(object.key); !status.ok()) {
    add(status.problems());
    return std::nullopt;
  }
  Result<RenderedObject> rendered = source.ReadObject(object);
  if (!rendered.ok()) {
    add(rendered.status().problems());
    return std::nullopt;
  }
  add(rendered->warnings);
  return *std::move(rendered);
}

Contents ReadContents(const OpenedCheckpoint& checkpoint) {
  const CheckpointSource& source = *checkpoint.source;
  Contents contents;
  for (const ObjectEntry& object : source.index().objects()) {
    std::optional<RenderedObject> value = Render(source, object, contents.problems);
    if (!value) continue;
    contents.objects.push_back({object.key, std::move(value->json), std::move(value->held)});
  }
  if (source.is_one_object()) {
    std::optional<RenderedObject> whole = Render(source, ObjectEntry{}, contents.problems);
    if (whole) contents.value = std::move(whole->json);
  }
  return contents;
}

// `known`: of the whole checkpoint. People see these elsewhere.
void PrintJson(const Contents& contents, const std::vector<Problem>& known, Streams& streams) {
  JsonWriter json(2);
  json.BeginObject().Key("objects").BeginObject();
  for (const NamedObject& object : contents.objects) {
    json.Key(object.key).Raw(object.json);
    streams.out.Write(json.TakeSoFar());
  }
  json.End();
  if (contents.value) json.Key("value").Raw(*contents.value);
  json.Key("held").BeginObject();
  for (const NamedObject& object : contents.objects) {
    if (object.held.empty()) continue;
    json.Key(object.key).BeginObject();
    AppendHeld(object.held, json);
    json.End();
  }
  json.End();
  std::vector<Problem> problems = known;
  problems.insert(problems.end(), contents.problems.begin(), contents.problems.end());
  RemoveRepeated(problems);
  AppendProblemList(problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

void PrintText(const Contents& contents, Streams& streams) {
  for (const NamedObject& object : contents.objects) {
    streams.out.Write(EscapeControls(object.key) + ": " + object.json + "\n" +
                      DescribeHeld(object.held));
  }
  if (contents.value) streams.out.Write(*contents.value + "\n");
  PrintProblemList(contents.problems, streams);
}

}  // namespace

Result<ExitCode> RunMeta(const ListedCheckpoint& checkpoint, const MetaOptions& options,
                         Streams& streams) {
  const Contents contents = ReadContents(checkpoint);
  options.common.json ? PrintJson(contents, checkpoint.problems, streams)
                      : PrintText(contents, streams);
  const bool is_whole = !HasErrors(contents.problems) && !LacksFiles(checkpoint.problems);
  return is_whole ? ExitCode::kDone : ExitCode::kDifferent;
}

}  // namespace ckpt::inspect
