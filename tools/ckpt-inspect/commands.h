// The verbs of ckpt-inspect, callable without a process. Each prints its answer to `streams.out`
// and returns what it found. A Status is a failure that the caller prints.
#ifndef CKPT_TOOLS_CKPT_INSPECT_COMMANDS_H_
#define CKPT_TOOLS_CKPT_INSPECT_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/registry/registry.h"
#include "tools/ckpt-inspect/element_diff.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

using cli::CommonOptions;
using cli::ExitCode;
using cli::Streams;

struct SummaryOptions {
  CommonOptions common;
};

struct TensorsOptions {
  CommonOptions common;
  std::string match;  // a glob over keys; empty: all
};

struct ShowOptions {
  CommonOptions common;
  std::string key;
  std::string slice;  // "0:2,3" as in numpy, without steps; empty: everything
};

struct ShardsOptions {
  CommonOptions common;
  std::string match;
};

struct VerifyOptions {
  CommonOptions common;
  bool quick = false;  // metadata only
};

struct RepairOptions {
  CommonOptions common;
  Path path;
  std::optional<std::int64_t> iteration;  // which checkpoint under a root
  Path target;                            // where the repaired copy goes
};

struct DigestOptions {
  CommonOptions common;
  HashAlgorithm algorithm = HashAlgorithm::kXxh3;
  std::string match;
  std::string as = {};  // the word of a KnownNaming; empty: as stored
  Path assets = {};     // of `as`: as in OpenModelOptions
};

struct DiffOptions {
  CommonOptions common;
  Path a;
  Path b;
  Tolerance tolerance;
  std::string match;  // a glob over keys, in A's terms
  Path mapping;       // a layout table in place of the built-in ones: compares models
  Path assets;        // as in CompareOptions
};

struct PlanOptions {
  CommonOptions common;
  std::string mesh;  // as ParseMesh reads it
  Path assets;       // as in OpenModelOptions
};

struct HtmlOptions {
  CommonOptions common;
  Path path = {};  // of the checkpoint, as the user named it
  Path output;
  bool overwrite = false;
};

struct MetaOptions {
  CommonOptions common;
};

// Read metadata only.
Result<ExitCode> RunSummary(const ListedCheckpoint& checkpoint, const SummaryOptions& options,
                            Streams& streams);
Result<ExitCode> RunTensors(const ListedCheckpoint& checkpoint, const TensorsOptions& options,
                            Streams& streams);
Result<ExitCode> RunShards(const ListedCheckpoint& checkpoint, const ShardsOptions& options,
                           Streams& streams);

// Errors: kNotFound (no such key), kUsage (the slice), and those of reading the tensor or object.
Result<ExitCode> RunShow(const ListedCheckpoint& checkpoint, const ShowOptions& options,
                         Streams& streams);

// kDifferent if anything is damaged; else kFailed if anything is of a kind that this build does not
// know, so that nobody checked it. `storage` is the one the checkpoint was opened from.
Result<ExitCode> RunVerify(Storage& storage, const OpenedCheckpoint& checkpoint,
                           const VerifyOptions& options, Streams& streams);

// The same for a checkpoint that could not be opened by its path, for the reason `why`, and whose
// manifest lies in `directory`. Never kDone.
Result<ExitCode> RunVerifyUnopened(Storage& storage, const Path& directory, const Status& why,
                                   const VerifyOptions& options, Streams& streams);

// Writes a repaired copy of the checkpoint: complete and verified, or not at all. The checkpoint
// itself is only read. The copy of a Megatron root is a root that holds this one checkpoint.
// Returns kDifferent if some damage cannot be repaired.
//
// Errors: those of FindCoveredDirectory; kChecksum and others of the manifest itself;
// kAlreadyExists (the target), kUsage (the target lies inside the checkpoint), kNoSpace, kIo.
Result<ExitCode> RunRepair(Storage& storage, const RepairOptions& options, Streams& streams);

// Errors: all errors of the selected tensors, since a digest of only some of them would mislead.
Result<ExitCode> RunDigest(const ListedCheckpoint& checkpoint, const DigestOptions& options,
                           Streams& streams);

// Compares the tensors of two checkpoints of any formats and namings. Returns kDifferent unless all
// are equal; objects are shown and decide nothing. Bytes that do not match their checksums are
// reported, and compared all the same.
//
// Errors: those of OpenCheckpoint and CompareCheckpoints; kUsage (`match` matches nothing), kIo.
Result<ExitCode> RunDiff(Storage& storage, const DiffOptions& options, Streams& streams);

// What each rank of a mesh reads when it loads the checkpoint, and the memory it takes. Reads
// metadata only. `storage` is the one the checkpoint was opened from.
//
// Errors: those of ParseMesh, ValidateMesh, UnderstandModel, StoredModelShape, ModelSettings,
// ReadStoredModel and PlanLoad.
Result<ExitCode> RunPlan(Storage& storage, const ListedCheckpoint& checkpoint,
                         const PlanOptions& options, Streams& streams);

// Writes one page about the checkpoint (MakePage): whole, or not at all. Reads metadata only.
// Errors: kAlreadyExists, kUsage (the page would lie in the checkpoint, or be written over it),
// kNoSpace, kIo.
Result<ExitCode> RunHtml(Storage& storage, const ListedCheckpoint& checkpoint,
                         const HtmlOptions& options, Streams& streams);

// Returns kDifferent if a file is missing or an object cannot be read; the others are printed.
Result<ExitCode> RunMeta(const ListedCheckpoint& checkpoint, const MetaOptions& options,
                         Streams& streams);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_COMMANDS_H_
