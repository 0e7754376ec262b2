#include "formats/hdf5/internal/global_heap.h"

#include <memory>

namespace ckpt::hdf5 {

Result<Bytes> ReadHeapObject(StructureFile& file, std::uint64_t heap_at, std::uint32_t index) {
  constexpr std::uint64_t kHeadBytes = 16;
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const Bytes> head,
                        file.ReadShared(heap_at, kHeadBytes));
  FieldReader head_fields(*head, heap_at);
  if (AsText(head_fields.Take(4)) != "GCOL") {
    return file.Bad(heap_at, "no global heap where one is announced");
  }
  head_fields.Skip(4);
  const std::uint64_t size = head_fields.U64();
  if (size < kHeadBytes) return file.Bad(heap_at, "a global heap is too small");
  const std::uint64_t body_at = heap_at + kHeadBytes;
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const Bytes> body,
                        file.ReadShared(body_at, size - kHeadBytes));
  FieldReader fields(*body, body_at);
  while (fields.left() >= kHeadBytes) {
    const std::uint16_t own_index = fields.U16();
    fields.Skip(6);
    const std::uint64_t length = fields.U64();
    if (own_index == 0) break;  // free space, up to the end
    const ByteSpan object = fields.Take(length);
    if (!fields.ok()) return file.Bad(fields.at(), "an object reaches past its global heap");
    if (own_index == index) return Bytes(object.begin(), object.end());
    fields.Skip((8 - length % 8) % 8);
  }
  return file.Bad(heap_at, "a global heap lacks an object that is asked for");
}

}  // namespace ckpt::hdf5
