// Settings that a run stores as objects of their own, each under a prefix and its name.
#ifndef CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_
#define CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "core/checkpoint/source.h"
#include "core/training/training_run.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::megatron {

// The last part of a key, and the pickle of the object under it.
struct ObjectField {
  std::string name;
  Bytes pickle;
};

// Visits settings (run_settings.h), and makes a field of each.
struct AddFields {
  std::vector<ObjectField>& fields;

  void operator()(std::string_view name, const auto& value) const {
    fields.push_back({std::string(name), PickleValue(value)});
  }
};

[[nodiscard]] std::vector<ObjectField> ScheduleFields(const RunSchedule& schedule);

// What stands behind a prefix in the keys of entries, sorted by key: names without a dot.
template <typename Entry>
std::vector<std::string> NamesBehind(std::string_view prefix, std::span<const Entry> entries) {
  std::vector<std::string> names;
  for (auto entry = std::ranges::lower_bound(entries, prefix, {}, &Entry::key);
       entry != entries.end() && entry->key.starts_with(prefix); ++entry) {
    std::string name = entry->key.substr(prefix.size());
    if (!name.empty() && name.find('.') == name.npos) names.push_back(std::move(name));
  }
  return names;
}

// The fields behind one prefix, to be read.
class ObjectFields : public StoredSettings {
 public:
  // REQUIRES: `source` outlives this.
  ObjectFields(const CheckpointSource& source, std::string_view prefix)
      : source_(source), prefix_(prefix) {}

  [[nodiscard]] bool Has(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string> Names() const override;  // those without a dot
  [[nodiscard]] std::string Where(std::string_view name) const override;

 protected:
  Status Give(std::string_view name, const TakeValue& take) const override;

 private:
  const CheckpointSource& source_;
  const std::string prefix_;
};

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_OBJECT_FIELDS_H_
