// The structure that ends each file of a plan.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_FILE_STRUCTURE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_FILE_STRUCTURE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/checkpoint/write_plan.h"
#include "formats/hdf5/internal/structure_writer.h"

namespace ckpt::hdf5 {

// What describes the data sets of a file.
struct FileStructure {
  std::uint32_t file = 0;
  std::vector<std::string> groups;
  std::vector<NewDataSet> data_sets;
  // Positions of data sets by those of the items that are all elements of one. Their checksums are
  // known when the items are written.
  std::map<std::size_t, std::size_t> set_of_item = {};
  std::uint64_t tail_at = 0;  // filled in by AddStructures
};

// Ends each file with its structure: by literals, and by late bytes where checksums are awaited.
void AddStructures(std::vector<FileStructure> structures, WritePlan& plan);

// The same of a structure that is encoded at `tail_at` of a file.
void AppendStructure(std::uint32_t file, std::uint64_t tail_at, NewStructure encoded,
                     std::vector<WriteLiteral>& literals);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_FILE_STRUCTURE_H_
