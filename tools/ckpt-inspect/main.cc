#include <exception>
#include <string>
#include <vector>

#include "core/io/posix_storage.h"
#include "tools/ckpt-inspect/inspect.h"
#include "tools/cli/error_report.h"
#include "tools/cli/streams.h"

int main(int argc, char** argv) {
  ckpt::cli::Streams streams = ckpt::cli::ProcessStreams();
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    return static_cast<int>(ckpt::inspect::RunInspect(args, ckpt::PosixStorage(), streams));
  } catch (const std::exception& error) {
    // Our code throws nothing: what arrives here is a bug, or memory that ran out.
    const ckpt::Status status = ckpt::Error(ckpt::ErrorKind::kInternal, error.what());
    return static_cast<int>(ckpt::cli::Conclude(status, false, streams));
  }
}
