// A folder of zarr arrays, as old Megatron-Core saves a checkpoint: nothing of ours writes one.
#ifndef CKPT_TESTS_RELIABILITY_SMALL_ZARR_H_
#define CKPT_TESTS_RELIABILITY_SMALL_ZARR_H_

#include "core/io/storage.h"

namespace ckpt::testing {

// Two arrays, one of which has chunks that reach over its edges, the common state, and the state of
// a random generator.
Status WriteSmallZarr(Storage& storage, const Path& directory);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_SMALL_ZARR_H_
