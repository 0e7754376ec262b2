#include "tests/reliability/allocation_faults.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace ckpt::testing {
namespace {

// Only counted, never used to order anything else.
std::atomic<bool> is_counting = false;
std::atomic<std::int64_t> fail_at = -1;
std::atomic<bool> fails_on = false;
std::atomic<std::int64_t> num_asked = 0;
std::atomic<std::int64_t> num_live = 0;

bool Fails() {
  if (!is_counting) return false;
  const std::int64_t number = num_asked++;
  if (fail_at < 0) return false;
  return fails_on ? number >= fail_at : number == fail_at;
}

// nullptr if it shall fail, or does.
void* Allocate(std::size_t size, std::size_t alignment) {
  if (Fails()) return nullptr;
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size == 0 ? 1 : size)
                     : std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (is_counting && memory != nullptr) ++num_live;
  return memory;
}

void* AllocateOrThrow(std::size_t size, std::size_t alignment) {
  void* memory = Allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Free(void* memory) {
  if (memory == nullptr) return;
  if (is_counting) --num_live;
  std::free(memory);
}

}  // namespace

AllocationFaults::AllocationFaults(const AllocationFault& fault) {
  num_asked = 0;
  num_live = 0;
  fail_at = fault.at;
  fails_on = fault.is_sticky;
  is_counting = true;
}

AllocationFaults::~AllocationFaults() { is_counting = false; }

std::int64_t AllocationFaults::asked() { return num_asked; }
std::int64_t AllocationFaults::live() { return num_live; }

}  // namespace ckpt::testing

using ckpt::testing::Allocate;
using ckpt::testing::AllocateOrThrow;
using ckpt::testing::Free;

constexpr std::size_t kPlain = alignof(std::max_align_t);

void* operator new(std::size_t size) { return AllocateOrThrow(size, kPlain); }
void* operator new[](std::size_t size) { return AllocateOrThrow(size, kPlain); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return AllocateOrThrow(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, kPlain);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size, kPlain);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
