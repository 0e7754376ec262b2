#include "formats/dcp/run_options.h"

#include <vector>

namespace ckpt::dcp {

WriterOptions OptionsOfRun(const RunRequest& request) {
  WriterOptions options;
  options.files = request.files;
  options.max_file_bytes = request.max_file_bytes;
  options.zstd_level = request.zstd_level;
  for (const std::vector<RowsFromFile>& blocks : request.placed) {
    std::vector<PlacedRows>& placed = options.placed.emplace_back();
    for (const RowsFromFile& rows : blocks) {
      placed.push_back({.box = rows.box, .writer = rows.file});
    }
  }
  return options;
}

}  // namespace ckpt::dcp
