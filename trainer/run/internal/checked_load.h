// Ranks that divide a checkpoint among them read each byte once, and believe none before all are
// checked.
#ifndef CKPT_TRAINER_RUN_INTERNAL_CHECKED_LOAD_H_
#define CKPT_TRAINER_RUN_INTERNAL_CHECKED_LOAD_H_

#include <functional>
#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/manifest/manifest.h"
#include "formats/registry/registry.h"
#include "trainer/comm/host_group.h"

namespace ckpt::train {

// What distinguishes one manifest from another, and from none. It costs a pass over the whole.
[[nodiscard]] std::string ManifestIdentity(const std::shared_ptr<const Manifest>& manifest);

// Calls `load`, which reads this rank's parts of the tensors. Blocks of which several ranks read
// parts are compared with the manifest when all ranks have read: the ranks exchange the checksums
// of their parts, and each compares some of the blocks. It makes no difference whether the ranks
// share the opened checkpoint, as threads do, or have one each, as processes do. Every rank calls
// it. REQUIRES: the ranks have agreed on ManifestIdentity, because parts of blocks mean something
// to another rank only then.
//
// What was loaded must not be used unless all ranks were OK. Errors: if a block is damaged, the
// same kChecksum on every rank, because it explains all other errors; otherwise those of `load`, of
// reading what no rank has read of a block, and kCancelled (a rank is gone).
Status LoadChecked(const OpenedCheckpoint& checkpoint, const std::function<Status()>& load,
                   trainer::HostGroup& world);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_CHECKED_LOAD_H_
