// The data sets of a new file: what of them is known before their elements have a place.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_NEW_DATA_SETS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_NEW_DATA_SETS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/write_plan.h"
#include "formats/hdf5/internal/structure_writer.h"
#include "formats/weights_request.h"

namespace ckpt::hdf5 {

// Where elements, and the structure behind them, begin.
inline constexpr std::uint64_t kAlignment = 64;

// Whether the entry stands on top of the nested object: then no attribute says where it stood.
[[nodiscard]] bool IsOnTop(const std::string& key, const EntryPath& path);

// That of a tensor.
[[nodiscard]] NewDataSet DataSetOf(const TargetTensor& tensor, const EntryPaths& paths);

// Those that hold text: objects, and where the checkpoint came from.
[[nodiscard]] std::vector<NewDataSet> TextsOf(const WeightsRequest& request);

// Lays tensors whose elements are known behind the `end` of a file, which then is theirs.
void AddKnown(std::span<const MemoryTensor> tensors, const EntryPaths& paths, std::uint32_t file,
              std::uint64_t& end, std::vector<NewDataSet>& sets,
              std::vector<WriteLiteral>& literals);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_NEW_DATA_SETS_H_
