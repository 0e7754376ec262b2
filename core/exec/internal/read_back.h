// Compares what files hold with what was written into them.
#ifndef CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_
#define CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_

#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/exec/internal/schedule.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Where the files of a plan were written. Each is opened after what is read back was written:
// otherwise it may show what was there before.
struct WrittenFiles {
  const WritePlan& plan;
  Storage& storage;
  const Path& directory;
};

// Errors of all of these: kValueMismatch; those of reading.

// Reads the plan's items [begin, end), which are all of a tensor, in blocks as large as `buffer`.
// Returns the digest of their payload (XXH3-128, hex). Their heads and tails must be those of the
// framing.
Result<std::string> ReadBackItems(const WrittenFiles& files, std::size_t begin, std::size_t end,
                                  MutableByteSpan buffer);

// The same of heads and tails alone. `written`: as they were written; parallel to the plan's items.
Status ReadBackAround(const WrittenFiles& files, std::size_t begin, std::size_t end,
                      std::span<const WrittenItem> written, MutableByteSpan buffer);

Status ReadBackLiterals(const WrittenFiles& files, std::span<const WriteLiteral> literals);

// `written`: the name, the size and the checksums of the whole file.
Status ReadBackFile(const ReadableFile& file, const ManifestFile& written);

// Does something with the tensors of a batch. Threads are numbered from 0.
using BatchFunction = std::function<Status(const Batch& batch, std::size_t thread)>;

// Writes every batch and reads it back. A thread alternates between writing one and reading back
// one that was written some batches before. Errors: those of RunTasks.
Status WriteAndReadBack(const std::vector<Batch>& batches, std::size_t threads,
                        const std::stop_token& stop, const BatchFunction& write,
                        const BatchFunction& read_back);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_
