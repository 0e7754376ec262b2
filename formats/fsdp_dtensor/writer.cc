#include "formats/fsdp_dtensor/writer.h"

#include <string_view>

#include "core/base/bytes.h"
#include "formats/dcp/writer.h"
#include "formats/torch_save/pickle_writer.h"

namespace ckpt::fsdp_dtensor {
namespace {

using pickle::Dialect;
using pickle::PickleWriter;

void WriteValue(const layout::Value& value, PickleWriter& pickle) {
  if (const bool* boolean = value.AsBool()) {
    pickle.Bool(*boolean);
  } else if (const std::int64_t* integer = value.AsInt()) {
    pickle.Int(*integer);
  } else if (const double* number = value.AsFloat()) {
    pickle.Float(*number);
  } else if (const std::string* text = value.AsText()) {
    pickle.Text(*text);
  } else if (const layout::Value::List* list = value.AsList()) {
    pickle.BeginList();
    for (const layout::Value& element : *list) WriteValue(element, pickle);
    pickle.EndList();
  } else {
    pickle.None();
  }
}

Bytes PickleNamespace(const std::vector<std::pair<std::string, layout::Value>>& members) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  pickle.Global("argparse", "Namespace").EmptyTuple().NewObject().BeginDict();
  for (const auto& [name, value] : members) {
    pickle.Text(name);
    WriteValue(value, pickle);
  }
  pickle.EndDict().Build();
  return pickle.Take();
}

Bytes PickleValue(const layout::Value& value) {
  PickleWriter pickle(Dialect::kWeightsOnly);
  WriteValue(value, pickle);
  return pickle.Take();
}

// Megatron's state dict is {'model': {flat name: tensor}, 'args': …}.
std::vector<dcp::PathStep> MegatronPath(const std::string& key) {
  constexpr std::string_view kModel = "model.";
  if (!key.starts_with(kModel)) return {key};
  return {std::string("model"), key.substr(kModel.size())};
}

}  // namespace

Result<WritePlan> PlanRelease(std::vector<TargetTensor> tensors, WriterOptions options) {
  const std::string directory = std::string(kReleaseDirectory) + "/";
  dcp::WriterOptions dcp_options;
  dcp_options.objects = {{"args", PickleNamespace(options.args)},
                         {"iteration", PickleValue(0)},
                         {"checkpoint_version", PickleValue(3.0)}};
  dcp_options.path_of = &MegatronPath;
  dcp_options.files = options.files;
  dcp_options.max_file_bytes = options.max_file_bytes;
  dcp_options.zstd_level = options.zstd_level;
  dcp_options.directory = directory;
  CKPT_ASSIGN_OR_RETURN(WritePlan plan, dcp::PlanDcp(std::move(tensors), dcp_options));
  for (WriteCopy& copy : options.side_files) {
    plan.copies.push_back(
        {.from = std::move(copy.from), .name = directory + kAssetsDirectory + "/" + copy.name});
  }
  Bytes tracker;
  Append(std::string_view(kReleaseDirectory), tracker);
  plan.files.push_back({.name = kTrackerName, .size_bytes = tracker.size()});
  plan.literals.push_back({.file = static_cast<std::uint32_t>(plan.files.size() - 1),
                           .offset_bytes = 0,
                           .bytes = std::move(tracker)});
  return plan;
}

}  // namespace ckpt::fsdp_dtensor
