#include "formats/hdf5/internal/file_structure.h"

#include <memory>
#include <span>
#include <utility>

#include "core/base/checked_math.h"
#include "formats/hdf5/internal/new_data_sets.h"

namespace ckpt::hdf5 {
namespace {

NewStructure EncodeFile(const FileStructure& structure) {
  return EncodeStructure(structure.groups, structure.data_sets, structure.tail_at);
}

// With the checksums of the items as they were written.
std::vector<WriteLiteral> EncodeLate(const std::vector<FileStructure>& structures,
                                     std::span<const WrittenItem> written) {
  std::vector<WriteLiteral> literals;
  for (FileStructure structure : structures) {
    for (const auto& [item, set] : structure.set_of_item) {
      structure.data_sets[set].crc32 = written[item].payload_crc32;
    }
    AppendStructure(structure.file, structure.tail_at, EncodeFile(structure), literals);
  }
  return literals;
}

}  // namespace

void AddStructures(std::vector<FileStructure> structures, WritePlan& plan) {
  std::vector<FileStructure> late;
  std::vector<std::uint32_t> late_files;
  for (FileStructure& structure : structures) {
    WriteFile& file = plan.files[structure.file];
    structure.tail_at = AlignUp(file.size_bytes, kAlignment);
    // A checksum has its place before it is known.
    for (const auto& [item, set] : structure.set_of_item) structure.data_sets[set].crc32 = 0;
    NewStructure encoded = EncodeFile(structure);
    file.size_bytes = structure.tail_at + encoded.tail.size();
    if (structure.set_of_item.empty()) {
      AppendStructure(structure.file, structure.tail_at, std::move(encoded), plan.literals);
    } else {
      late_files.push_back(structure.file);
      late.push_back(std::move(structure));
    }
  }
  if (late.empty()) return;
  const auto shared = std::make_shared<const std::vector<FileStructure>>(std::move(late));
  const auto encode = [shared](const WritePlan& /*plan*/, std::span<const WrittenItem> written) {
    return EncodeLate(*shared, written);
  };
  plan.late_bytes = {.files = std::move(late_files), .uses_crc32 = true, .encode = encode};
}

void AppendStructure(std::uint32_t file, std::uint64_t tail_at, NewStructure encoded,
                     std::vector<WriteLiteral>& literals) {
  literals.push_back({.file = file, .offset_bytes = 0, .bytes = std::move(encoded.superblock)});
  literals.push_back({.file = file, .offset_bytes = tail_at, .bytes = std::move(encoded.tail)});
}

}  // namespace ckpt::hdf5
