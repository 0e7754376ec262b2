// How often the entries of a data file name its bytes.
#ifndef CKPT_FORMATS_DCP_ITEM_DEMAND_H_
#define CKPT_FORMATS_DCP_ITEM_DEMAND_H_

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/mutex.h"
#include "core/checkpoint/index.h"

namespace ckpt::dcp {

// Writers give every entry its own bytes. A few entries may share an item, for tied weights. But a
// pickle of some kilobytes whose thousands of entries share an item of many megabytes would keep
// every reader busy for hours.
//
// Thread-safe. Cost: one pass over the entries, 8 bytes a file.
class ItemDemand {
 public:
  // `index` must outlive this.
  explicit ItemDemand(const CheckpointIndex& index);

  // Whether the entries that lie within the `file_bytes` of this file are together more than 64
  // times as large. Entries behind its end do not count: they cannot be read.
  [[nodiscard]] bool IsExcessive(FileId file, std::uint64_t file_bytes) const CKPT_EXCLUDES(mutex_);

 private:
  const CheckpointIndex* index_;
  std::vector<std::uint64_t> asked_bytes_;  // by FileId; all entries
  mutable Mutex mutex_;
  mutable std::map<FileId, bool> known_
      CKPT_GUARDED_BY(mutex_);  // where `asked_bytes_` is too much
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_ITEM_DEMAND_H_
