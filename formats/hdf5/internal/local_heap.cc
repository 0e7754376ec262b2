#include "formats/hdf5/internal/local_heap.h"

#include <algorithm>

namespace ckpt::hdf5 {

Result<LocalHeap> LocalHeap::Open(StructureFile& file, std::uint64_t at) {
  constexpr std::uint64_t kHeaderBytes = 32;
  CKPT_ASSIGN_OR_RETURN(const Bytes header, file.ReadSigned(at, kHeaderBytes, "HEAP"));
  FieldReader fields(header, at);
  fields.Skip(8);
  const std::uint64_t size = fields.U64();
  fields.Skip(8);
  LocalHeap heap;
  heap.at_ = fields.U64();
  CKPT_ASSIGN_OR_RETURN(heap.data_, file.ReadShared(heap.at_, size));
  return heap;
}

Result<std::string> LocalHeap::NameAt(const StructureFile& file, std::uint64_t offset,
                                      std::uint64_t max_bytes) const {
  if (offset >= data_->size()) return file.Bad(at_, "a name lies outside its heap");
  const ByteSpan rest = ByteSpan(*data_).subspan(offset);
  FieldReader fields(rest.first(std::min<std::uint64_t>(rest.size(), max_bytes + 1)), at_ + offset);
  const std::string name(fields.TextToNul());
  if (!fields.ok()) return file.Bad(at_ + offset, "a name has no end");
  return name;
}

}  // namespace ckpt::hdf5
