// Small checkpoints of other software, in layouts that nothing of ours writes.
#ifndef CKPT_TESTS_RELIABILITY_SMALL_FOREIGN_H_
#define CKPT_TESTS_RELIABILITY_SMALL_FOREIGN_H_

#include "core/io/storage.h"

namespace ckpt::testing {

// A folder of zarr arrays, as old Megatron-Core saves it: two arrays, one of which has chunks that
// reach over its edges, the common state, and the state of a random generator.
Status WriteSmallZarr(Storage& storage, const Path& directory);

// A run of two tensor ranks of Megatron, each with its model and the buffers of its optimizer.
Status WriteSmallMegatronRun(Storage& storage, const Path& directory);

// `config.json`, two files of torch.save, and `pytorch_model.bin.index.json`, which divides the
// tensors among them.
Status WriteSmallTorchRepository(Storage& storage, const Path& directory);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_SMALL_FOREIGN_H_
