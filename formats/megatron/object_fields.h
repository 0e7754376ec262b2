// Settings that a run stores as objects of their own, each under a prefix and its name.
#ifndef CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_
#define CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

// The last part of a key, which many keys have, and the pickle of the object under it.
struct ObjectField {
  std::string_view name;
  Bytes pickle;
};

// A tuple of two numbers, as a pickle.
[[nodiscard]] Bytes PicklePair(const std::array<double, 2>& pair);

// All members of the schedule but the two that other objects say: how far the run is.
[[nodiscard]] std::vector<ObjectField> ScheduleFields(const RunSchedule& schedule);

// Reads the fields behind one prefix. One that is not there, or that is None, leaves what was there.
//
// Errors: those of CheckpointSource::ReadObject; kBadMetadata (a field has another type).
class ObjectFields {
 public:
  // REQUIRES: `source` outlives this.
  ObjectFields(const CheckpointSource& source, std::string prefix)
      : source_(source), prefix_(std::move(prefix)) {}

  Status Read(std::string_view name, double& into) const;
  Status Read(std::string_view name, std::int64_t& into) const;
  Status Read(std::string_view name, bool& into) const;
  Status Read(std::string_view name, std::string& into) const;
  Status Read(std::string_view name, std::array<double, 2>& into) const;  // a tuple
  Status Read(std::string_view name, std::vector<std::string>& into) const;

  // Whether the checkpoint has such an object.
  [[nodiscard]] bool Has(std::string_view name) const;

 private:
  template <typename T, typename Convert>
  Status ReadAs(std::string_view name, T& into, const Convert& convert) const;

  const CheckpointSource& source_;
  const std::string prefix_;
};

// The way back from ScheduleFields.
Status ReadSchedule(const CheckpointSource& source, std::string_view prefix, RunSchedule& schedule);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_
