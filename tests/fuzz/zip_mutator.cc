// Inputs that stay archives: one field of one header changes, or the content of a record together
// with its checksum. Bytes changed anywhere mostly end at the first signature or checksum.

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "formats/zip/internal/format.h"
#include "tests/fuzz/mutation.h"

namespace {

using namespace ckpt::zip;  // NOLINT(google-build-using-namespace): numbers of the format

struct Field {
  std::size_t offset = 0;
  std::size_t width = 0;
};

// Of the headers that carry this signature, in docs/formats/torch_save.md's order.
std::vector<Field> FieldsOf(std::uint32_t signature) {
  switch (signature) {
    case kLocalHeaderSignature:
      return {{4, 2}, {6, 2}, {8, 2}, {14, 4}, {18, 4}, {22, 4}, {26, 2}, {28, 2}};
    case kCentralEntrySignature:
      return {{4, 2},  {6, 2},  {8, 2},  {10, 2}, {16, 4}, {20, 4}, {24, 4},
              {28, 2}, {30, 2}, {32, 2}, {34, 2}, {38, 4}, {42, 4}};
    case kZip64EndSignature:
      return {{4, 8}, {16, 4}, {20, 4}, {24, 8}, {32, 8}, {40, 8}, {48, 8}};
    case kZip64LocatorSignature:
      return {{4, 4}, {8, 8}, {16, 4}};
    case kEndSignature:
      return {{4, 2}, {6, 2}, {8, 2}, {10, 2}, {12, 4}, {16, 4}, {20, 2}};
    default:
      return {};
  }
}

struct Header {
  std::size_t offset = 0;
  std::uint32_t signature = 0;
};

std::vector<Header> FindHeaders(std::span<const std::uint8_t> file) {
  std::vector<Header> headers;
  for (std::size_t at = 0; at + 4 <= file.size(); ++at) {
    const auto signature = static_cast<std::uint32_t>(ckpt::fuzz::ReadNumber(file.subspan(at, 4)));
    const std::vector<Field> fields = FieldsOf(signature);
    if (fields.empty() || file.size() - at < fields.back().offset + fields.back().width) continue;
    headers.push_back({at, signature});
  }
  return headers;
}

void ChangeField(std::span<std::uint8_t> file, const Header& header, std::minstd_rand& rng) {
  const std::vector<Field> fields = FieldsOf(header.signature);
  const Field field = fields[rng() % fields.size()];
  const auto bytes = file.subspan(header.offset + field.offset, field.width);
  ckpt::fuzz::WriteNumber(bytes,
                          ckpt::fuzz::EdgeNumber(ckpt::fuzz::ReadNumber(bytes), file.size(), rng));
}

// Changes bytes of the record that a central entry describes and makes the checksums fit.
void ChangeContent(std::span<std::uint8_t> file, const Header& entry) {
  constexpr std::size_t kMaxContentBytes = 4096;
  const auto number = [&](std::size_t at, std::size_t width) {
    return ckpt::fuzz::ReadNumber(file.subspan(at, width));
  };
  const std::uint64_t local = number(entry.offset + 42, 4);
  const std::uint64_t size = number(entry.offset + 24, 4);
  if (local + kLocalHeaderBytes > file.size()) return;
  const std::uint64_t begin =
      local + kLocalHeaderBytes + number(local + 26, 2) + number(local + 28, 2);
  if (size == 0 || begin > file.size() || size > file.size() - begin) return;
  if (size <= kMaxContentBytes) LLVMFuzzerMutate(file.data() + begin, size, size);
  const std::uint32_t crc = ckpt::Crc32(std::as_bytes(file.subspan(begin, size)));
  ckpt::fuzz::WriteNumber(file.subspan(local + 14, 4), crc);
  ckpt::fuzz::WriteNumber(file.subspan(entry.offset + 16, 4), crc);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  std::minstd_rand rng(seed);
  const std::span<std::uint8_t> file(data, size);
  const std::vector<Header> headers = FindHeaders(file);
  const unsigned way = static_cast<unsigned>(rng() % 4);
  if (headers.empty() || way == 0) return LLVMFuzzerMutate(data, size, max_size);
  const Header header = headers[rng() % headers.size()];
  if (way != 1 && header.signature == kCentralEntrySignature) {
    ChangeContent(file, header);
  } else {
    ChangeField(file, header, rng);
  }
  return size;
}
