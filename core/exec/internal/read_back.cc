#include "core/exec/internal/read_back.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include <fmt/format.h>

#include "core/base/hash.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/io/checksummed_read.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kLiteralBlockBytes = 64 * kKiB;

// `written` must lie at this offset.
Status ReadBackBytes(const ReadableFile& file, std::uint64_t offset_bytes, ByteSpan written,
                     MutableByteSpan buffer) {
  for (std::uint64_t at = 0; at < written.size();) {
    const ByteSpan expected =
        written.subspan(at, std::min<std::uint64_t>(written.size() - at, buffer.size()));
    const MutableByteSpan block = buffer.first(expected.size());
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset_bytes + at, block));
    const auto [found, differs_from] = std::ranges::mismatch(block, expected);
    if (found != block.end()) {
      const auto position = static_cast<std::uint64_t>(found - block.begin());
      return Error(ErrorKind::kValueMismatch, "the file read back is not what was written")
          .File(file.name())
          .Expected(fmt::format("{:#04x} in byte {}", std::to_integer<unsigned>(*differs_from),
                                offset_bytes + at + position))
          .Actual(fmt::format("{:#04x}", std::to_integer<unsigned>(*found)));
    }
    at += block.size();
  }
  return OkStatus();
}

// Reads the whole item: `hasher` takes its payload, in blocks as large as `buffer`.
Status ReadBackItem(const ReadableFile& file, const ItemFraming& framing,
                    const TargetTensor& tensor, const WriteItem& item, MutableByteSpan buffer,
                    Hasher& hasher) {
  CKPT_RETURN_IF_ERROR(ReadBackBytes(file, item.offset_bytes, framing.Head(tensor, item), buffer));
  const bool needs_crc32 = framing.needs_crc32();
  std::uint32_t crc32 = 0;
  std::uint64_t at = item.payload_offset;
  const std::uint64_t end = at + item.payload_bytes;
  while (at != end) {
    const MutableByteSpan block = buffer.first(std::min<std::uint64_t>(end - at, buffer.size()));
    CKPT_RETURN_IF_ERROR(file.ReadAt(at, block));
    hasher.Update(block);
    if (needs_crc32) crc32 = Crc32(block, crc32);
    at += block.size();
  }
  return ReadBackBytes(file, end, framing.Tail(tensor, item, crc32), buffer);
}

// Head and tail of an item alone. `written`: the item as it was written.
Status ReadBackFraming(const ReadableFile& file, const ItemFraming& framing,
                       const TargetTensor& tensor, const WriteItem& item,
                       const WrittenItem& written, MutableByteSpan buffer) {
  CKPT_RETURN_IF_ERROR(ReadBackBytes(file, item.offset_bytes, framing.Head(tensor, item), buffer));
  return ReadBackBytes(file, item.payload_offset + item.payload_bytes,
                       framing.Tail(tensor, item, written.payload_crc32), buffer);
}

// The file of this number, opened after it was written.
Result<std::shared_ptr<const ReadableFile>> OpenWritten(const WrittenFiles& files,
                                                        std::uint32_t file) {
  return files.storage.Open(files.directory / files.plan.files[file].name);
}

// Calls `read_back(file, tensor, item, i)` for each item from `begin` to `end`, and names the
// tensor in its error.
template <typename ReadBack>
Status ForEachWritten(const WrittenFiles& files, std::size_t begin, std::size_t end,
                      const ReadBack& read_back) {
  for (std::size_t i = begin; i < end; ++i) {
    const WriteItem& item = files.plan.items[i];
    const TargetTensor& target = files.plan.tensors[item.tensor];
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          OpenWritten(files, item.file));
    CKPT_RETURN_IF_ERROR(read_back(*file, target, item, i).Tensor(target.key));
  }
  return OkStatus();
}

}  // namespace

Result<std::string> ReadBackItems(const WrittenFiles& files, std::size_t begin, std::size_t end,
                                  MutableByteSpan buffer) {
  Hasher hasher(HashAlgorithm::kXxh3);
  CKPT_RETURN_IF_ERROR(ForEachWritten(files, begin, end,
                                      [&](const ReadableFile& file, const TargetTensor& target,
                                          const WriteItem& item, std::size_t) {
                                        return ReadBackItem(file, *files.plan.framing, target, item,
                                                            buffer, hasher);
                                      }));
  return hasher.Finish();
}

Status ReadBackAround(const WrittenFiles& files, std::size_t begin, std::size_t end,
                      std::span<const WrittenItem> written, MutableByteSpan buffer) {
  return ForEachWritten(files, begin, end,
                        [&](const ReadableFile& file, const TargetTensor& target,
                            const WriteItem& item, std::size_t i) {
                          return ReadBackFraming(file, *files.plan.framing, target, item,
                                                 written[i], buffer);
                        });
}

Status ReadBackLiterals(const WrittenFiles& files, std::span<const WriteLiteral> literals) {
  Bytes buffer(kLiteralBlockBytes);
  for (const WriteLiteral& literal : literals) {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          OpenWritten(files, literal.file));
    CKPT_RETURN_IF_ERROR(ReadBackBytes(*file, literal.offset_bytes, literal.bytes, buffer));
  }
  return OkStatus();
}

Status ReadBackFile(const ReadableFile& file, const ManifestFile& written) {
  if (file.size_bytes() != written.size_bytes) {
    return Error(ErrorKind::kValueMismatch, "the file read back is not what was written")
        .File(file.name())
        .Expected(fmt::format("{} bytes", written.size_bytes))
        .Actual(fmt::format("{} bytes", file.size_bytes()));
  }
  Bytes block;
  for (std::size_t b = 0; b < written.block_crc32c.size(); ++b) {
    const std::uint64_t at = b * kManifestBlockBytes;
    block.resize(std::min(kManifestBlockBytes, written.size_bytes - at));
    CKPT_ASSIGN_OR_RETURN(const std::uint32_t crc32c, ReadAtWithCrc32c(file, at, block));
    if (crc32c == written.block_crc32c[b]) continue;
    return Error(ErrorKind::kValueMismatch, "the file read back is not what was written")
        .File(DescribeRange(file.name(), at, block.size()))
        .Expected("crc32c " + Hex32(written.block_crc32c[b]))
        .Actual("crc32c " + Hex32(crc32c));
  }
  return OkStatus();
}

Status WriteAndReadBack(const std::vector<Batch>& batches, std::size_t threads,
                        const std::stop_token& stop, const BatchFunction& write,
                        const BatchFunction& read_back) {
  const std::size_t count = batches.size();
  const auto num_threads = static_cast<int>(threads);
  const auto is_written = std::make_unique<std::atomic<bool>[]>(count);
  std::vector<std::uint8_t> is_read(count);  // an element belongs to one task at a time
  const auto run = [&](std::size_t task, std::size_t worker) -> Status {
    const std::size_t batch = task / 2;
    if (task % 2 == 0) {
      CKPT_RETURN_IF_ERROR(write(batches[batch], worker));
      is_written[batch].store(true, std::memory_order_release);
      return OkStatus();
    }
    if (batch < threads) return OkStatus();
    const std::size_t earlier = batch - threads;
    // A large one may still be written.
    if (!is_written[earlier].load(std::memory_order_acquire)) return OkStatus();
    is_read[earlier] = 1;
    return read_back(batches[earlier], worker);
  };
  CKPT_RETURN_IF_ERROR(RunTasks(2 * count, num_threads, stop, run));
  return RunTasks(count, num_threads, stop, [&](std::size_t batch, std::size_t worker) {
    return is_read[batch] != 0 ? OkStatus() : read_back(batches[batch], worker);
  });
}

}  // namespace ckpt
