#include "formats/megatron/internal/train_state.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/endian.h"
#include "core/checkpoint/read.h"
#include "core/json/json_writer.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/torch_item.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::megatron {
namespace {

using torch_save::TorchSaveSource;

// There are eight.
constexpr std::size_t kMaxNumbers = 1000;

Status WriteNumber(const GlobalTensor& tensor, double number, JsonWriter& json) {
  constexpr double kPastIntegers = 0x1p63;
  if (tensor.dtype == DType::kBool) {
    json.Bool(number != 0);
  } else if (std::abs(number) >= kPastIntegers && IsInteger(tensor.dtype)) {
    return Error(ErrorKind::kBadMetadata, "a number of the train state is too large")
        .Tensor(tensor.key);
  } else if (tensor.dtype == DType::kInt32 || tensor.dtype == DType::kInt64) {
    json.Int(static_cast<std::int64_t>(number));
  } else if (std::isfinite(number)) {
    json.Double(number);
  } else {
    return Error(ErrorKind::kBadMetadata, "a number of the train state is not finite")
        .Tensor(tensor.key);
  }
  return OkStatus();
}

}  // namespace

Result<std::string> ReadTrainState(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.size_bytes > kMaxTrainStateBytes) {
    return Error(ErrorKind::kResource, "larger than any train state").File(path.string());
  }
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<TorchSaveSource> source,
                        TorchSaveSource::Open(storage, path));
  if (source->index().tensors().size() > kMaxNumbers) {
    return Error(ErrorKind::kResource, "more numbers than a train state has").File(path.string());
  }
  for (const Problem& problem : source->index().problems()) {
    if (problem.severity == Severity::kError) return Status(problem);
  }
  JsonWriter json;
  json.BeginObject();
  for (const GlobalTensor& tensor : source->index().tensors()) {
    const Result<double> number = ReadStoredNumber(*source, tensor);
    if (!number.ok()) return Status(number.status()).File(path.string());
    json.Key(tensor.key);
    if (Status status = WriteNumber(tensor, *number, json); !status.ok()) {
      return std::move(status).File(path.string());
    }
  }
  json.End();
  return json.Take();
}

Bytes WriteTrainState(const TrainingRun& run) {
  std::vector<Bytes> storages;
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginDict();
  const auto add = [&](std::string_view name, DType dtype, const auto& value) {
    pickle.Text(name);
    torch_save::WriteTensor(static_cast<std::int64_t>(storages.size()), dtype, {}, pickle);
    AppendLe(value, storages.emplace_back());
  };
  add(kStep, DType::kInt64, run.iteration);
  add("consumed_train_samples", DType::kInt64, run.consumed_samples);
  add("skipped_train_samples", DType::kInt64, std::int64_t{0});
  add("consumed_valid_samples", DType::kInt64, std::int64_t{0});
  add(kTrainStateOperations, DType::kFloat64, run.num_floating_point_operations);
  for (const std::string_view phase : {"do_train", "do_valid", "do_test"}) {
    add(phase, DType::kBool,
        std::uint8_t{0});  // what a program does next, it decides when it starts
  }
  pickle.EndDict();
  return torch_save::ObjectItem(pickle.Take(), storages);
}

}  // namespace ckpt::megatron
