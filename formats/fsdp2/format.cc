#include "formats/fsdp2/format.h"

#include <array>

#include "formats/dcp/format.h"
#include "formats/dcp/source.h"
#include "formats/fsdp2/internal/file_writer.h"
#include "formats/fsdp2/internal/read_run.h"
#include "formats/fsdp2/internal/run_objects.h"
#include "formats/fsdp2/internal/writer.h"
#include "formats/torch_save/format.h"

namespace ckpt::fsdp2 {
namespace {

constexpr std::string_view kName = "fsdp2";

constexpr std::array kOptions = {FormatOption{
    .name = kOptimizerOption,
    .purpose = "How the optimizer's settings are named: in groups, or for every parameter",
    .values = kForms,
    .is_of_run = true}};

constexpr RunFormat kRun = {.weight_key = &WeightKey,
                            .moment_key = &MomentKey,
                            .entries = &EntriesOfRun,
                            .path_of = &RunPath,
                            .plan = &PlanRun,
                            .holds_run = &HoldsRun,
                            .holds_groups = &HoldsGroups,
                            .find_tensors = &FindTensors,
                            .read = &ReadRun,
                            .carries_objects = true,
                            .names_frozen = true};

}  // namespace

constinit const Format kFormatOfFile = {.name = kName,
                                        .usual_naming = kName,
                                        .built_on = &torch_save::kFormat,
                                        .is_naming = true,
                                        .writes_copies = true,
                                        .is_one_file = true,
                                        .holds_objects = true,
                                        .nested_keys = NestedKeys::kTextsAndNumbers,
                                        .recognise = &torch_save::Recognise,
                                        .plan_weights = &PlanFile};

constinit const Format kFormat = {.name = kName,
                                  .usual_naming = kName,
                                  .built_on = &dcp::kFormat,
                                  .is_naming = true,
                                  .elsewhere = &kFormatOfFile,
                                  .writes_copies = true,
                                  .options = kOptions,
                                  .nested_keys = NestedKeys::kTexts,
                                  .can_compress = true,
                                  .has_keys_of = &HasKeysOf,
                                  .open = &dcp::OpenSource,
                                  .plan_weights = &PlanWeights,
                                  .run = &kRun,
                                  .read_args = &ReadArgs};

}  // namespace ckpt::fsdp2
