#include "formats/hdf5/internal/global_heap.h"

#include <utility>

namespace ckpt::hdf5 {

Result<GlobalHeap> GlobalHeap::Read(StructureFile& file, std::uint64_t at) {
  constexpr std::uint64_t kHeadBytes = 16;
  CKPT_ASSIGN_OR_RETURN(const Bytes head, file.Read(at, kHeadBytes));
  FieldReader head_fields(head, at);
  if (AsText(head_fields.Take(4)) != "GCOL") {
    return file.Bad(at, "no global heap where one is announced");
  }
  head_fields.Skip(4);
  const std::uint64_t size = head_fields.U64();
  if (size < kHeadBytes) return file.Bad(at, "a global heap is too small");
  const std::uint64_t body_at = at + kHeadBytes;
  GlobalHeap heap;
  CKPT_ASSIGN_OR_RETURN(heap.body_, file.ReadShared(body_at, size - kHeadBytes));
  FieldReader fields(*heap.body_, body_at);
  while (fields.left() >= kHeadBytes) {
    const std::uint16_t index = fields.U16();
    fields.Skip(6);
    const std::uint64_t length = fields.U64();
    if (index == 0) break;  // free space, up to the end
    const ByteSpan object = fields.Take(length);
    if (!fields.ok()) return file.Bad(fields.at(), "an object reaches past its global heap");
    heap.objects_.emplace(index, object);
    fields.Skip((8 - length % 8) % 8);
  }
  return heap;
}

const ByteSpan* GlobalHeap::Find(std::uint32_t index) const {
  const auto found = objects_.find(index);
  return found == objects_.end() ? nullptr : &found->second;
}

Result<ByteSpan> ReadHeapObject(StructureFile& file, std::uint64_t heap_at, std::uint32_t index) {
  std::shared_ptr<const GlobalHeap>& heap = file.heaps()[heap_at];
  if (heap == nullptr) {
    CKPT_ASSIGN_OR_RETURN(GlobalHeap parsed, GlobalHeap::Read(file, heap_at));
    heap = std::make_shared<const GlobalHeap>(std::move(parsed));
  }
  if (const ByteSpan* const object = heap->Find(index)) return *object;
  return file.Bad(heap_at, "a global heap lacks an object that is asked for");
}

}  // namespace ckpt::hdf5
