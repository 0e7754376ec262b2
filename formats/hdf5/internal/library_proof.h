// What we wrote, as the HDF5 library sees it.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PROOF_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PROOF_H_

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"

namespace ckpt::hdf5 {

// Proves the files of `plan`, the first of which lies at `path`: the strict reader opens them, and
// then the library finds in them what was planned, where the strict reader finds it. No element of
// a tensor is read. Errors: those of OpenSource and of CompareWithLibrary.
Status ProveByLibrary(Storage& storage, const Path& path, const WritePlan& plan);

// Whether the library finds exactly the tensors of the plan, with their keys, dtypes and shapes,
// and exactly the pieces and objects of `strict`: files, offsets, sizes, filters, checksums. A plan
// of links has no tensors: then they are those of `strict`. Every file of the plan is opened.
// REQUIRES: `strict` is what OpenSource finds at `path`.
// Errors: kBadMetadata (the library refuses a file), kValueMismatch, kShapeMismatch,
// kDtypeMismatch, kMissing, kChecksum (of a text), those of reading.
Status CompareWithLibrary(Storage& storage, const Path& path, const WritePlan& plan,
                          const CheckpointSource& strict);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_PROOF_H_
