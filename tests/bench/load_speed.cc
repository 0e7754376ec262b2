// How fast a checkpoint is read: every tensor, into memory of its own, with or without the
// comparison with the manifest.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/checkpoint/read.h"
#include "core/exec/task_pool.h"
#include "core/io/posix_storage.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kBudgetBytes = 64 << 20;

struct Settings {
  std::string checkpoint;
  bool verify = true;
  int threads = 2;
};

Status ReadAll(const Settings& settings) {
  CKPT_ASSIGN_OR_RETURN(
      const OpenedCheckpoint opened,
      OpenCheckpoint(PosixStorage(), settings.checkpoint, {.verify = settings.verify}));
  const CheckpointSource& source = *opened.source;
  const auto tensors = source.index().tensors();
  std::vector<Bytes> memory(static_cast<std::size_t>(settings.threads));
  const auto read = [&](std::size_t t, std::size_t worker) -> Status {
    const GlobalTensor& tensor = tensors[t];
    Bytes& out = memory[worker];
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    if (out.size() < bytes) out.resize(bytes);
    return ReadBox(source, tensor, WholeBox(tensor.shape), MutableByteSpan(out).first(bytes),
                   kBudgetBytes);
  };
  return RunTasks(tensors.size(), settings.threads, std::stop_token(), read);
}

int Main(int argc, char** argv) {
  CLI::App app("Reads every tensor of a checkpoint.");
  Settings settings;
  bool no_verify = false;
  app.add_option("checkpoint", settings.checkpoint)->required();
  app.add_flag("--no-verify", no_verify, "compare nothing with the manifest");
  app.add_option("--threads", settings.threads);
  CLI11_PARSE(app, argc, argv);
  settings.verify = !no_verify;
  const Status status = ReadAll(settings);
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) { return ckpt::Main(argc, argv); }
