// Any bytes as a HDF5 file, with the elements and objects of what it accepts.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/hdf5/internal/source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kMaxTensorBytes = 1 << 20;
  const auto storage = ckpt::MakeMemoryStorage();
  CKPT_CHECK(storage->MakeDirectories("/f").ok());
  CKPT_CHECK(ckpt::WriteSmallFile(*storage, "/f/f.h5", std::as_bytes(std::span(data, size))).ok());
  const auto source = ckpt::hdf5::OpenSource(*storage, "/f/f.h5");
  if (!source.ok()) return 0;
  for (const ckpt::Problem& problem : ckpt::ValidateIndex(**source)) {
    if (problem.severity == ckpt::Severity::kError) return 0;
  }
  for (const ckpt::GlobalTensor& tensor : (*source)->index().tensors()) {
    if (ckpt::NumBytes(tensor.shape, tensor.dtype) > kMaxTensorBytes) continue;
    (void)ckpt::StreamTensor(**source, tensor, kMaxTensorBytes, [](ckpt::ByteSpan) {
      return ckpt::OkStatus();
    }).ok();
  }
  for (const ckpt::ObjectEntry& object : (*source)->index().objects()) {
    (void)(*source)->ReadObject(object).ok();
  }
  return 0;
}
