// How fast a checkpoint is opened and read: every tensor, into memory that was made before, with or
// without the comparison with the manifest. Prints the seconds.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/task_pool.h"
#include "core/checkpoint/read.h"
#include "core/io/posix_storage.h"
#include "core/manifest/block_part.h"
#include "core/manifest/late_checks.h"
#include "core/tensor/blocks.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kBudgetBytes = 64 << 20;
constexpr std::uint64_t kPieceBytes = 8 << 20;

struct Settings {
  std::string checkpoint;
  bool verify = true;
  // One half computes while the other waits for the disk.
  int threads = 2 * DefaultThreads();
};

// A part of a tensor that one thread reads at once, and where it goes.
struct Piece {
  const GlobalTensor* tensor = nullptr;
  Box box;
  MutableByteSpan out;
};

// Memory for every tensor; every page of it is there.
Result<std::map<std::string, Bytes>> MakeMemory(const Settings& settings) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened,
                        OpenCheckpoint(PosixStorage(), settings.checkpoint, {.verify = false}));
  std::map<std::string, Bytes> memory;
  for (const GlobalTensor& tensor : opened.source->index().tensors()) {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, CountBytes(tensor.shape, tensor.dtype));
    memory[tensor.key].resize(bytes);
  }
  return memory;
}

// In the order in which the tensors lie in their files, as a reader that needs all of them takes
// them.
Result<std::vector<Piece>> ListPieces(const CheckpointIndex& index, std::uint64_t piece_bytes,
                                      std::map<std::string, Bytes>& memory) {
  std::vector<const GlobalTensor*> tensors;
  for (const GlobalTensor& tensor : index.tensors()) tensors.push_back(&tensor);
  std::ranges::stable_sort(tensors, {}, [&](const GlobalTensor* tensor) {
    const auto chunks = index.chunks(*tensor);
    return chunks.empty() ? std::pair<FileId, std::uint64_t>()
                          : std::pair(chunks.front().file, chunks.front().offset_bytes);
  });
  std::vector<Piece> pieces;
  for (const GlobalTensor* tensor : tensors) {
    MutableByteSpan rest = memory[tensor->key];
    const auto most = static_cast<std::int64_t>(piece_bytes / ElementBytes(tensor->dtype));
    CKPT_RETURN_IF_ERROR(ForEachBlock(WholeBox(tensor->shape), most, [&](const Box& box) {
      const std::uint64_t bytes = NumBytes(box.sizes, tensor->dtype);
      pieces.push_back({.tensor = tensor, .box = box, .out = rest.first(bytes)});
      rest = rest.subspan(bytes);
      return OkStatus();
    }));
  }
  return pieces;
}

// Compares the blocks of which two pieces have parts.
Status Compare(LateChecks& late) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<BlockPart> damaged, late.FindDamage(late.TakeParts()));
  return damaged ? late.Describe(*damaged) : OkStatus();
}

Status ReadAll(const Settings& settings, std::map<std::string, Bytes>& memory) {
  CKPT_ASSIGN_OR_RETURN(
      const OpenedCheckpoint opened,
      OpenCheckpoint(PosixStorage(), settings.checkpoint, {.verify = settings.verify}));
  // Without a manifest, whoever looks for a tensor compares all of its item with the item's own
  // checksum: that must not be done for each piece.
  const std::uint64_t piece_bytes = opened.manifest ? kPieceBytes : ~std::uint64_t{0} >> 1;
  CKPT_ASSIGN_OR_RETURN(const std::vector<Piece> pieces,
                        ListPieces(opened.source->index(), piece_bytes, memory));
  const std::shared_ptr<LateChecks>& late = opened.late_checks;
  if (late != nullptr) late->Begin();
  const auto read = [&](std::size_t p, std::size_t /*worker*/) -> Status {
    const Piece& piece = pieces[p];
    return ReadBox(*opened.source, *piece.tensor, piece.box, piece.out, kBudgetBytes);
  };
  Status done = RunTasks(pieces.size(), settings.threads, std::stop_token(), read);
  if (late == nullptr) return done;
  Status compared = Compare(*late);
  late->End();
  return compared.ok() ? done : compared;  // damaged bytes explain all other errors
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
  Result<std::map<std::string, Bytes>> memory = MakeMemory(settings);
  const auto started = std::chrono::steady_clock::now();
  const Status status = memory.ok() ? ReadAll(settings, *memory) : memory.status();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  if (status.ok()) std::cout << taken.count() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) { return ckpt::Main(argc, argv); }
