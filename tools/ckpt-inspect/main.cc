#include "core/io/posix_storage.h"
#include "tools/ckpt-inspect/inspect.h"
#include "tools/cli/run_tool.h"
#include "tools/cli/streams.h"

int main(int argc, char** argv) {
  const auto inspect = [](const auto& args, ckpt::cli::Streams& streams) {
    return ckpt::inspect::RunInspect(args, ckpt::PosixStorage(), streams);
  };
  ckpt::cli::Streams streams = ckpt::cli::ProcessStreams();
  return static_cast<int>(ckpt::cli::RunTool(inspect, {argv + 1, argv + argc}, streams));
}
