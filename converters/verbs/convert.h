// Conversion of a model's weights from one format and naming to another: every verb of ckpt-convert
// is a spelling of it.
#ifndef CKPT_CONVERTERS_VERBS_CONVERT_H_
#define CKPT_CONVERTERS_VERBS_CONVERT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "converters/verbs/model_source.h"
#include "converters/verbs/target.h"
#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/exec/workers.h"
#include "core/io/storage.h"
#include "core/plan/conversion_plan.h"
#include "formats/weights_request.h"

namespace ckpt {

struct ConvertOptions {
  // What is converted.
  Path source;
  Path target;
  OpenModelOptions model;

  // What the result looks like.
  Target to;                   // without a container: that of the source's origin
  bool weights_only = false;   // of a training run, leave out all else
  std::optional<DType> dtype;  // of floating-point tensors; nothing keeps each one's own
  // A regular expression over target keys: `dtype` does not change these if they are float32.
  std::string keep_fp32;
  // Largest size of one file. 0: the source's own shards, else the format's default.
  std::uint64_t max_shard_bytes = 0;
  int files = 0;                  // data files; 0: by size
  std::optional<int> zstd_level;  // compress tensors, 1 to 19; nothing: store them as they are
  // A parity file for every group of this many files, so that one of them can be rebuilt; 0: none.
  std::size_t parity_group = 0;

  // Copy no tensor: the target shows those of the source where they lie.
  bool link = false;

  // How it is done.
  bool overwrite = false;
  bool resume = false;
  // One of several processes that share the conversion: writes its tensors, and publishes nothing.
  std::optional<WorkerId> worker = {};
  // Completes and publishes what all workers wrote.
  bool finalize = false;
  // Compare the source with its manifest, if it has one, and the model's digest in the result, read
  // back, with the source's.
  bool verify = true;
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
  ProgressSink* progress = nullptr;
  std::stop_token stop;
};

// A checked plan, and what it was made from.
struct PreparedConversion {
  ModelSource model;
  Target to;  // what was asked for, or follows from the source
  ConversionPlan plan;
  // What a reader opens, relative to the directory that is written; empty: that directory. If the
  // target is one file, its name.
  std::string checkpoint_directory;
  ManifestOrigin origin;       // the manifest's account of the source
  bool changes_dtype = false;  // some tensor is cast
  bool is_run = false;         // a whole training run
  bool keeps_padding = false;  // a run with the rows that pad its vocabulary
  // Of a run: what its optimizer keeps, where it keeps something for the copies of weights, too.
  std::vector<ModelSource> moments_with_copies;
  // Of a target that links: where each tensor lies, by key. The plan has no tensors then.
  std::map<std::string, std::vector<LinkedBox>> links;
  std::size_t target_tensors = 0;
  std::uint64_t target_bytes = 0;
  // Files of the source that nobody reads, and that are not carried to the target.
  std::vector<LeftOutEntry> left_out_files;
  std::size_t parity_files = 0;    // how many are written besides those of the plan
  std::uint64_t needed_bytes = 0;  // of the disk, with parity; at least, if tensors are compressed
  std::vector<Problem> warnings;   // what the user should know of source and result

  // Everything of the source that the target has no place for, as far as metadata show it.
  [[nodiscard]] std::vector<LeftOutEntry> left_out() const;
};

// What a worker wrote, and all workers together write: small tensors whose elements the plan has
// are left to whoever publishes.
struct WorkerShare {
  std::size_t tensors = 0;
  std::size_t of_tensors = 0;
};

struct ConvertReport {
  std::string source_format;
  std::string target_format;
  std::size_t source_tensors = 0;
  std::uint64_t source_bytes = 0;
  std::size_t target_tensors = 0;
  std::uint64_t target_bytes = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;  // parity included
  std::size_t parity_files = 0;
  std::uint64_t parity_bytes = 0;
  std::uint64_t cast_overflows = 0;
  std::size_t resumed_tensors = 0;
  std::optional<WorkerShare> worker = {};  // of a worker
  // XXH3 of the model as `digest --as hf` gives it, or of the tensors as `digest` does if they keep
  // their keys; empty without verification.
  std::string source_digest;
  std::string target_digest;
  std::vector<LeftOutEntry> dropped;
  std::vector<Problem> warnings;
};

// Reads metadata only. All problems are reported at once. Errors: those of OpenModel; kUnmapped,
// kMissing, kShapeMismatch, kDtypeMismatch (the names and shapes do not fit the family), kUsage (a
// naming that the target cannot have, a choice that the naming does not have, a part of a training
// run), kAlreadyExists (the target), kUnsupported. Of a training run into a format that holds runs,
// those of UnderstandTrainingState. kUsage also of a target that is the source, one of its files,
// or a directory with it; or that is to be one file and has a directory's name, or the other way
// round.
Result<PreparedConversion> PrepareConversion(Storage& storage, const ConvertOptions& options);

// Carries it out: writes beside the target, verifies, publishes by one rename. A worker writes its
// part alone. Errors: those of Execute, WriteParity, EnterAsWorker and MergeWorkers; kAlreadyExists
// (the target; also one that is complete already and shall be completed); kValueMismatch
// (a copy of a weight, or what the optimizer keeps for it, is not that of the weight; the result
// read back is not the source: nothing is published). A conversion that was stopped, or
// that found the disk full, can be resumed: the hint says how.
Result<ConvertReport> RunConversion(Storage& storage, const PreparedConversion& prepared,
                                    const ConvertOptions& options);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_CONVERT_H_
