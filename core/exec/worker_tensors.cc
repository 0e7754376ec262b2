#include "core/exec/worker_tensors.h"

#include <algorithm>
#include <optional>

namespace ckpt {
namespace {

// Whether another worker than that of the tensor before may write it; parallel to the tensors.
std::vector<bool> BeginsShare(const WritePlan& plan) {
  std::vector<bool> begins(plan.tensors.size(), true);
  if (!plan.compression) return begins;
  // A file is shared by the tensors from the first to the last that has items in it.
  std::vector<std::uint32_t> last(plan.files.size(), 0);
  for (const WriteItem& item : plan.items) {
    last[item.file] = std::max(last[item.file], item.tensor);
  }
  std::uint32_t until = 0;  // the last one that shares a file with those so far
  std::uint32_t previous = 0;
  for (const WriteItem& item : plan.items) {
    if (item.tensor != previous) begins[item.tensor] = item.tensor > until;
    until = std::max(until, last[item.file]);
    previous = item.tensor;
  }
  return begins;
}

// Bytes of the tensors of every share, in order. A tensor without elements counts as a byte.
std::vector<std::uint64_t> ShareBytes(const WritePlan& plan, const std::vector<bool>& begins) {
  std::vector<std::uint64_t> of_tensors(plan.tensors.size(), 1);
  for (const WriteItem& item : plan.items) of_tensors[item.tensor] += item.payload_bytes;
  std::vector<std::uint64_t> shares;
  for (std::size_t t = 0; t < of_tensors.size(); ++t) {
    if (begins[t]) shares.push_back(0);
    shares.back() += of_tensors[t];
  }
  return shares;
}

// Hands out the shares in order, to one worker after the other: to each as many as are `most_bytes`
// together, one at least, and leaves one for each of those that follow. Returns the worker of every
// share; nothing if shares are left over.
std::optional<std::vector<std::int64_t>> HandOut(const std::vector<std::uint64_t>& shares,
                                                 std::int64_t count, std::uint64_t most_bytes) {
  std::vector<std::int64_t> owners;
  std::int64_t worker = 0;
  std::uint64_t taken = 0;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const bool fits = shares[s] <= most_bytes && taken <= most_bytes - shares[s];
    const auto left = static_cast<std::int64_t>(shares.size() - s);
    if (s > 0 && (!fits || left < count - worker)) {
      ++worker;
      taken = 0;
    }
    if (worker == count) return std::nullopt;
    owners.push_back(worker);
    taken += shares[s];
  }
  return owners;
}

// The ranges of which the largest is as small as can be.
std::vector<std::int64_t> DivideEvenly(const std::vector<std::uint64_t>& shares,
                                       std::int64_t count) {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (const std::uint64_t share : shares) {
    low = std::max(low, share);
    high += share;
  }
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (HandOut(shares, count, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return HandOut(shares, count, high).value();
}

}  // namespace

std::size_t CountShares(const WritePlan& plan) {
  return static_cast<std::size_t>(std::ranges::count(BeginsShare(plan), true));
}

std::vector<bool> TensorsOf(const WritePlan& plan, const WorkerId& worker) {
  const std::vector<bool> begins = BeginsShare(plan);
  const std::vector<std::int64_t> owners = DivideEvenly(ShareBytes(plan, begins), worker.count);
  std::vector<bool> own(plan.tensors.size());
  std::size_t share = 0;
  for (std::size_t t = 0; t < own.size(); ++t) {
    if (t > 0 && begins[t]) ++share;
    own[t] = owners[share] == worker.number;
  }
  return own;
}

}  // namespace ckpt
