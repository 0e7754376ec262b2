#include "tools/ckpt-inspect/payload_check.h"

#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/checkpoint/differing_copies.h"

namespace ckpt::inspect {
namespace {

// Of a thread that compares copies of a tensor: a buffer, and what is decoded.
constexpr std::uint64_t kCompareBytes = 8 * kMiB;

// Adds the problems of `status`, with the key filled in if the reader did not know it.
void AddProblems(const Status& status, const std::string& key, std::vector<Problem>& problems) {
  for (Problem problem : status.problems()) {
    if (problem.tensor.empty()) problem.tensor = key;
    problems.push_back(std::move(problem));
  }
}

void AddDifferences(const Result<DifferingCopies>& compared, const std::string& key,
                    std::vector<Problem>& problems) {
  AddProblems(compared.status(), key, problems);
  if (compared.ok() && !compared->empty()) problems.push_back(WarnOfCopies(*compared));
}

// Counts an item that was read: a chunk or an object.
void CountRead(const CheckpointSource& source, const auto& item, CheckedBytes& result) {
  result.read_bytes += item.size_bytes;
  if (source.HasChecksum(item)) result.checked_bytes += item.size_bytes;
}

CheckedBytes CheckTensor(const CheckpointSource& source, const GlobalTensor& tensor) {
  CheckedBytes result;
  for (const Chunk& chunk : source.index().chunks(tensor)) {
    const Result<StoredArray> located = source.Locate(tensor, chunk);
    AddProblems(located.status(), tensor.key, result.problems);
    if (located.ok()) CountRead(source, chunk, result);
  }
  if (result.problems.empty()) {
    AddDifferences(CompareCopies(source, tensor, kCompareBytes), tensor.key, result.problems);
  }
  return result;
}

// Reads one object, or one copy of it. Returns whether that was possible.
bool CheckItem(const CheckpointSource& source, const ObjectEntry& object, CheckedBytes& result) {
  const Result<RenderedObject> rendered = source.ReadObject(object);
  AddProblems(rendered.status(), object.key, result.problems);
  if (!rendered.ok()) return false;
  CountRead(source, object, result);
  for (Problem warning : rendered->warnings) {
    if (warning.tensor.empty()) warning.tensor = object.key;
    result.problems.push_back(std::move(warning));
  }
  return true;
}

CheckedBytes CheckObject(const CheckpointSource& source, const ObjectEntry& object) {
  CheckedBytes result;
  bool all_read = CheckItem(source, object, result);
  if (!source.index().ranks_saved_alone()) return result;
  for (const ObjectEntry& copy : source.index().copies(object)) {
    all_read = CheckItem(source, copy, result) && all_read;
  }
  if (all_read) AddDifferences(CompareCopies(source, object), object.key, result.problems);
  return result;
}

std::set<std::string_view> KeysWithErrors(const std::vector<Problem>& problems) {
  std::set<std::string_view> keys;
  for (const Problem& problem : problems) {
    if (problem.severity == Severity::kError && !problem.tensor.empty())
      keys.insert(problem.tensor);
  }
  return keys;
}

std::uint64_t StoredBytes(const CheckpointIndex& index) {
  std::uint64_t bytes = 0;
  for (const Chunk& chunk : index.chunks()) bytes += chunk.size_bytes;
  for (const ObjectEntry& object : index.objects()) bytes += object.size_bytes;
  if (index.ranks_saved_alone()) {
    for (const ObjectEntry& copy : index.object_copies()) bytes += copy.size_bytes;
  }
  return bytes;
}

}  // namespace

CheckedBytes CheckPayload(const CheckpointSource& source, const std::vector<Problem>& known,
                          int threads, ProgressSink& progress) {
  const CheckpointIndex& index = source.index();
  const std::set<std::string_view> skipped = KeysWithErrors(known);
  const std::size_t num_tensors = index.tensors().size();
  const std::size_t num_items = num_tensors + index.objects().size();
  progress.OnPhase("verify", StoredBytes(index), num_items);
  std::vector<CheckedBytes> results(num_items);
  const auto check = [&](std::size_t i, std::size_t /*worker*/) {
    const bool is_tensor = i < num_tensors;
    const std::string& key =
        is_tensor ? index.tensors()[i].key : index.objects()[i - num_tensors].key;
    if (!skipped.contains(key)) {
      results[i] = is_tensor ? CheckTensor(source, index.tensors()[i])
                             : CheckObject(source, index.objects()[i - num_tensors]);
    }
    progress.OnDone(key, results[i].read_bytes);
    return OkStatus();
  };
  const Status done = RunTasks(num_items, threads, std::stop_token(), check);
  // Errors of an item are results; a task fails only if memory runs out.
  CheckedBytes all{.problems = done.problems()};
  for (CheckedBytes& result : results) {
    all.read_bytes += result.read_bytes;
    all.checked_bytes += result.checked_bytes;
    for (Problem& problem : result.problems) all.problems.push_back(std::move(problem));
  }
  AddProblems(source.VerifyRest(), "", all.problems);
  if (source.protection() == Protection::kNone) all.checked_bytes = 0;
  return all;
}

}  // namespace ckpt::inspect
