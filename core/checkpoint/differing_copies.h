// Compares what ranks that saved alone stored under the same keys.
#ifndef CKPT_CORE_CHECKPOINT_DIFFERING_COPIES_H_
#define CKPT_CORE_CHECKPOINT_DIFFERING_COPIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/base/result.h"
#include "core/base/status.h"
#include "core/checkpoint/source.h"

namespace ckpt {

// The copies of a tensor or an object that are not equal to the first, which readers take.
struct DifferingCopies {
  std::string key;
  std::string taken = {};             // the file of a first copy
  std::set<std::string> others = {};  // the files of copies that differ from it
  // How many bytes these have, by the number of the copy; the first is 0.
  std::map<std::size_t, std::uint64_t> bytes = {};

  [[nodiscard]] bool empty() const { return bytes.empty(); }
};

// None, and nothing is read, unless the ranks saved alone: else formats prove that copies of a
// tensor are equal, or keep in copies of an object what is each rank's own.
//
// Errors: those of StreamTensor and CheckpointSource::ReadObject. Cost: reads every copy; of a
// tensor within the budget, as StreamTensor does.
Result<DifferingCopies> CompareCopies(const CheckpointSource& source, const GlobalTensor& tensor,
                                      std::uint64_t budget_bytes);
Result<DifferingCopies> CompareCopies(const CheckpointSource& source, const ObjectEntry& object);

// What a reader should know of them. REQUIRES: there are some.
[[nodiscard]] Problem WarnOfCopies(const DifferingCopies& copies);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_DIFFERING_COPIES_H_
