// SharedReads: what one process reads of files, so that others need not read it again.
#ifndef CKPT_CORE_IO_SHARED_READS_H_
#define CKPT_CORE_IO_SHARED_READS_H_

#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/io/forwarding_storage.h"

namespace ckpt {

// A process that reads through it records what it read; others that make the same reads get them
// answered from this record. What is not in the record they read themselves, so a record need not
// hold all, and the order of reads does not matter. A file is answered for only if it has the size
// and the time that it had for the process that recorded it: folders of one name may lie on disks
// of their own. Views are neither recorded nor answered.
//
// Only files that were opened since Record or Answer take part, and only until TakeRecord or
// Forget. They may outlive this. Thread-safe if the storage behind is.
class SharedReads final : public ForwardingStorage {
 public:
  explicit SharedReads(Storage& behind);

  // Records what is read from now on, up to 64 MiB.
  void Record();
  // What was recorded. Ends the recording.
  [[nodiscard]] std::string TakeRecord();

  // Answers from `record`, which a SharedReads of another process took. Errors: kInternal (it is no
  // record).
  Status Answer(std::string record);
  // Ends the answers, and gives back their memory.
  void Forget();

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override;

 private:
  class Log;
  class File;

  const std::shared_ptr<Log> log_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_SHARED_READS_H_
