#include "formats/target_tensors.h"

#include <set>
#include <string_view>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

// Half of what a file offset can be. The rest is for what a format adds.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 62;

}  // namespace

Result<std::uint64_t> CountTargetBytes(std::span<const TargetTensor> tensors) {
  std::set<std::string_view> keys;
  std::uint64_t total = 0;
  Status status;
  for (const TargetTensor& tensor : tensors) {
    if (!keys.insert(tensor.key).second) {
      status.Add(Error(ErrorKind::kAlreadyExists, "the same key twice").Tensor(tensor.key));
    }
    const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
    if (!bytes.ok()) {
      status.Add(bytes.status());
    } else if (!CheckedAdd(total, *bytes, &total) || total > kMaxFileBytes) {
      return Error(ErrorKind::kResource, "the checkpoint is larger than any file can be");
    }
  }
  if (!status.ok()) return status;
  return total;
}

std::vector<TargetTensor> DescribeKnown(std::span<const MemoryTensor> tensors) {
  std::vector<TargetTensor> described;
  for (const MemoryTensor& tensor : tensors) {
    described.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  return described;
}

}  // namespace ckpt
