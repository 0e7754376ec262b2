// The run that wrote a checkpoint, whichever format it is in.
#ifndef CKPT_FORMATS_REGISTRY_STORED_RUN_H_
#define CKPT_FORMATS_REGISTRY_STORED_RUN_H_

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/status.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/value.h"
#include "core/training/run_format.h"
#include "core/training/training_run.h"
#include "formats/registry/registry.h"
#include "formats/weights_request.h"

namespace ckpt {

// These functions use the checkpoint's own format. A format that stores no runs may still contain
// one (`dcp`, or tensors in memory): then the formats that store runs are tried.

// Megatron's arguments, by their names. Nothing if the checkpoint has none. Errors: those of
// Format::read_args.
Result<layout::Configuration> ReadRunArgs(const OpenedCheckpoint& checkpoint);

// Whether the checkpoint holds anything of an optimizer.
[[nodiscard]] bool HoldsRun(const OpenedCheckpoint& checkpoint);

// Whether any of the tensors and objects is what an optimizer keeps: by the keys that some format
// has for it, or those that torch gives to parameters without names.
[[nodiscard]] bool HoldsOptimizer(const CheckpointIndex& index);

// The checkpoint with a tensor for each parameter and moment of its run (RunFormat::by_parameter):
// itself, if it has them or holds no run. Errors: those of RunFormat::by_parameter.
Result<std::shared_ptr<const OpenedCheckpoint>> SeeParameters(
    std::shared_ptr<const OpenedCheckpoint> checkpoint);

// Which parts of the tensors that SeeParameters gave lie where in the buffers of the checkpoint
// (RunFormat::parts_of_buffers). Nothing if it stores none.
[[nodiscard]] PackedParts PartsOfBuffers(const OpenedCheckpoint& seen);

// The tensors that an optimizer keeps. Where only tensors of a run were kept, their keys may be
// those of several formats: then there is an entry for each. Nothing if there are none. Errors:
// those of RunFormat::find_tensors.
Result<std::vector<OptimizerTensors>> FindOptimizerTensors(const OpenedCheckpoint& checkpoint);

// REQUIRES: SeeParameters gave the checkpoint. Errors: those of RunFormat::read; kMissing (nothing
// in the checkpoint is of a run).
Result<StoredRun> ReadStoredRun(const OpenedCheckpoint& checkpoint,
                                RunDetail detail = RunDetail::kToResume);

// Whether the checkpoint holds a run as `run` stores it.
[[nodiscard]] bool IsStoredAs(const OpenedCheckpoint& checkpoint, const RunFormat& run);

// Whose names and form a run has that is stored in `container`: its own (Format::run). In one that
// holds tensors and objects of any names, those of the format with this usual naming; without a
// naming those of UsualRunFormat, if a run can be saved there. Without Format::run it holds weights
// alone.
[[nodiscard]] const Format& FormOfRun(const Format& container, std::string_view naming = {});

// What people can choose about a run in `container` that has the names and form of `form`: what the
// container has, and what of the form is about entries, which are the same in any files.
[[nodiscard]] std::vector<FormatOption> OptionsOfRun(const Format& container, const Format& form);

// Every file of a checkpoint in `container`, which holds entries of any names, with those that a
// directory of the format `form` has of the run. REQUIRES: the request has the tensors of the run,
// and forms among OptionsOfRun; `of_run` has what is no tensor. Errors: those of RunFormat::entries
// and PlanWeights.
Result<PlannedCheckpoint> PlanEntriesOfRun(const Format& form, RunRequest of_run,
                                           const Format& container, WeightsRequest request);

// An object as a pickle: the object itself, or, of a source that keeps texts, what its text says.
// Errors: those of CheckpointSource::ReadPickled, ReadObject and torch_save::PickleCarried.
Result<PickledObject> ReadAsPickle(const CheckpointSource& source, const ObjectEntry& object);

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_STORED_RUN_H_
