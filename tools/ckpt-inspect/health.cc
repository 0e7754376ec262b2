#include "tools/ckpt-inspect/health.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/checkpoint/validate.h"

namespace ckpt::inspect {

ListedCheckpoint ListProblems(OpenedCheckpoint checkpoint) {
  const CheckpointSource& source = *checkpoint.source;
  const CheckpointIndex& index = source.index();
  std::vector<Problem> problems = index.problems();
  std::vector<bool> is_used(index.files().size(), false);
  for (const Chunk& chunk : index.chunks()) is_used[chunk.file] = true;
  for (const ObjectEntry& object : index.objects()) is_used[object.file] = true;
  for (const ObjectEntry& copy : index.object_copies()) is_used[copy.file] = true;
  for (FileId file = 0; file < index.files().size(); ++file) {
    if (!is_used[file]) continue;
    const Result<std::uint64_t> size = source.FileSize(file);
    if (size.ok() || size.status().kind() != ErrorKind::kMissingFile) continue;
    Problem lost = size.status().first();
    lost.file = index.files()[file];
    problems.push_back(std::move(lost));
  }
  return {std::move(checkpoint), std::move(problems)};
}

bool LacksFiles(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const Problem& problem) {
    return problem.severity == Severity::kError && problem.kind == ErrorKind::kMissingFile;
  });
}

std::vector<Problem> MetadataProblems(const CheckpointSource& source) {
  std::vector<Problem> problems = ValidateIndex(source);
  RemoveRepeated(problems);
  return problems;
}

Status CheckHealthy(const CheckpointSource& source,
                    const std::vector<const GlobalTensor*>& tensors) {
  std::set<std::string_view> keys;
  for (const GlobalTensor* tensor : tensors) keys.insert(tensor->key);
  std::vector<Problem> errors;
  for (Problem& problem : MetadataProblems(source)) {
    const bool is_error = problem.severity == Severity::kError;
    if (is_error && keys.contains(problem.tensor)) errors.push_back(std::move(problem));
  }
  return Status(std::move(errors));
}

void RemoveRepeated(std::vector<Problem>& problems) {
  std::set<std::tuple<ErrorKind, std::string, std::string, std::string>> seen;
  std::erase_if(problems, [&](const Problem& problem) {
    return !seen.emplace(problem.kind, problem.message, problem.file, problem.tensor).second;
  });
}

}  // namespace ckpt::inspect
