// Writes run_config.yaml: a mapping of mappings, as Megatron-Bridge writes its configuration.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_YAML_WRITER_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_YAML_WRITER_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/layout/value.h"

namespace ckpt::megatron {

// Text is in the order of the calls. Names and targets are ours, and need no quotes.
class YamlWriter {
 public:
  void Top(std::string_view name, const layout::Value& value);
  // Starts a section, which is an object of the Python class `target`.
  void Begin(std::string_view section, std::string_view target);
  void Member(std::string_view name, const layout::Value& value);
  // Those of `names` that `args` has.
  void Members(std::span<const std::string_view> names, const layout::Configuration& args);
  // The same, without those that are None.
  void NonNullMembers(std::span<const std::string_view> names, const layout::Configuration& args);
  // What Python finds under the name `target`, and does not call.
  void Reference(std::string_view name, std::string_view target);
  // A call of `target` with `args`, to which Python adds arguments later.
  void Partial(std::string_view name, std::string_view target, const layout::Configuration& args);
  // An object of the class `target`, made without arguments.
  void Call(std::string_view name, std::string_view target);

  [[nodiscard]] std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_YAML_WRITER_H_
