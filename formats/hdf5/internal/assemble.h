// From the structure of an HDF5 file to an index of its tensors and objects.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_ASSEMBLE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_ASSEMBLE_H_

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/index.h"
#include "formats/hdf5/internal/attribute.h"
#include "formats/hdf5/internal/pieces.h"

namespace ckpt::hdf5 {

struct StoredObject {
  // Its value is read when it is asked for.
  Attribute attribute;
  // Where the value lies in the first file; none: at `attribute.at`.
  std::vector<Piece> pieces = {};
  // Of a file that this program wrote: Python's name of the type; the value is JSON then.
  std::string json_type;
  std::string numbers = {};                          // the text of held_numbers.h; empty: none
  std::shared_ptr<const StoredCrc32> checksum = {};  // of the value; null: unknown
};

struct Assembled {
  CheckpointIndex index;
  std::vector<PieceForm> forms;  // parallel to index.chunks()
  std::unordered_map<std::string, StoredObject> objects;
  EntryPaths paths;      // of entries that did not stand on top
  bool is_ours = false;  // this program wrote the file
  bool is_part = false;  // and it only holds elements that another one shows
  // Of the text of kOriginName in the first file; of no bytes if there is none.
  Segment origin;
  std::shared_ptr<const StoredCrc32> origin_checksum;  // null: unknown
};

// What concerns single tensors goes to the index's problems. Errors: those of the structure.
Result<Assembled> Assemble(const DataFiles& files, std::shared_ptr<const ReadableFile> file);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_ASSEMBLE_H_
