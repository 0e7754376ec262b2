// StoredSettings: settings of a run by their names, wherever a checkpoint keeps them.
#ifndef CKPT_FORMATS_MEGATRON_STORED_SETTINGS_H_
#define CKPT_FORMATS_MEGATRON_STORED_SETTINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt {
class JsonCursor;
}  // namespace ckpt

namespace ckpt::megatron {

// A setting as JSON, and the values of tensors that the JSON only names (RenderedObject::numbers),
// if they are known. A view of both.
class SettingValue {
 public:
  // Implicit on purpose: most settings hold no tensor.
  // NOLINTNEXTLINE(google-explicit-constructor)
  SettingValue(const JsonCursor& json) : json_(&json) {}
  SettingValue(const JsonCursor& json, const HeldNumbers& numbers)
      : json_(&json), numbers_(&numbers) {}

  [[nodiscard]] const JsonCursor& json() const { return *json_; }
  [[nodiscard]] const HeldNumbers* numbers() const { return numbers_; }
  // A value inside of it.
  [[nodiscard]] SettingValue Part(const JsonCursor& json) const {
    return numbers_ == nullptr ? SettingValue(json) : SettingValue(json, *numbers_);
  }

 private:
  const JsonCursor* json_;
  const HeldNumbers* numbers_ = nullptr;
};

class StoredSettings {
 public:
  virtual ~StoredSettings() = default;

  // Whether there is such a setting, which may be None.
  [[nodiscard]] virtual bool Has(std::string_view name) const = 0;
  // All of them, sorted.
  [[nodiscard]] virtual std::vector<std::string> Names() const = 0;
  // Where the checkpoint keeps it, for errors.
  [[nodiscard]] virtual std::string Where(std::string_view name) const = 0;

  // Whether a setting is None or False, as is one that is not there. Errors: those of reading it.
  [[nodiscard]] Result<bool> IsOff(std::string_view name) const;

  // A setting that is not there, or that is None, leaves what was there. Numbers may be numpy's, or
  // tensors of one. Errors: those of reading it; kBadMetadata (it has another type), kUnsupported
  // (it is of a class that has no plain value here).
  Status Read(std::string_view name, bool& into) const;
  Status Read(std::string_view name, double& into) const;
  Status Read(std::string_view name, std::int64_t& count) const;  // perhaps stored as a float
  Status Read(std::string_view name, std::string& into) const;
  Status Read(std::string_view name, std::array<double, 2>& into) const;  // a tuple or a list
  Status Read(std::string_view name, std::vector<std::string>& into) const;
  Status Read(std::string_view name, layout::Value& into) const;  // a plain one, or a list of them

 protected:
  using TakeValue = std::function<Status(const SettingValue& value)>;
  // Hands the setting to `take` if it is there, and says in an error where it is.
  virtual Status Give(std::string_view name, const TakeValue& take) const = 0;

 private:
  template <typename T, typename Convert>
  Status ReadAs(std::string_view name, T& into, const Convert& convert) const;
};

// A whole number that was stored as a float. Errors: kBadMetadata (it is no count), at `tensor`.
Result<std::int64_t> CountOf(double number, std::string_view tensor);
// A number that is a count, stored in either way.
Result<std::int64_t> CountOf(const JsonCursor& value, std::string_view tensor);

// Each of these adds the names of what is stored to `into.said`. Errors of all: those of
// StoredSettings::Read.

// A parameter group of torch: the settings of SGD, which has a momentum, or of Adam, and whatever
// else it has. Errors: kUnsupported (the optimizer is another one, as far as its groups say it, or
// does what a run cannot say).
Status ReadTorchGroup(const StoredSettings& stored, ParamGroup& group, StoredRun& into);

// The same with what Megatron adds.
Status ReadGroup(const StoredSettings& stored, ParamGroup& group, StoredRun& into);

// What Megatron adds to a group, alone.
Status ReadAddedSettings(const StoredSettings& stored, ParamGroup& group, SettingNames& said);

// Under the names of any version of Megatron. What else it has is noted in `into.unread`. Errors:
// kMissing (it has some of the settings that Megatron always stores, and not others).
Status ReadSchedule(const StoredSettings& stored, StoredRun& into);

// Where the checkpoint stores no schedule: the rate and the decay stay what the groups say.
void KeepGroupsSettings(TrainingRun& run);

// The groups of a run load with the optimizer, so what they say of the decay counts, and not its
// argument.
void SettleDecoupling(StoredRun& into);

// What else a group of Megatron gets (ParamGroup::others): not how torch computes an update, nor
// what Megatron has a setting of its own for.
[[nodiscard]] std::vector<std::pair<std::string, layout::Value>> OthersOf(const ParamGroup& group);

// Those of a group of SGD that has Adam's, as earlier versions of this program stored it.
[[nodiscard]] SgdSettings SgdOf(const layout::Configuration& args);

// Puts groups in this order, and the positions that `group_of` has of them. REQUIRES: `order` has
// the position of every group once.
void ReorderGroups(std::span<const std::size_t> order, std::vector<ParamGroup>& groups,
                   std::vector<std::pair<std::string, std::size_t>>& group_of);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_STORED_SETTINGS_H_
