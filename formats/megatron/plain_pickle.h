// Plain values as the pickles that Megatron reads.
#ifndef CKPT_FORMATS_MEGATRON_PLAIN_PICKLE_H_
#define CKPT_FORMATS_MEGATRON_PLAIN_PICKLE_H_

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/layout/value.h"
#include "formats/pickle/writer.h"

namespace ckpt::megatron {

using NamedValues = std::vector<std::pair<std::string, layout::Value>>;

// null is None; a list is a list.
void WriteValue(const layout::Value& value, pickle::PickleWriter& pickle);
// A tuple.
void WriteValue(const std::array<double, 2>& pair, pickle::PickleWriter& pickle);
// An `argparse.Namespace`. Where Megatron's argument is a dtype, its name becomes torch's dtype.
void WriteNamespace(const NamedValues& members, pickle::PickleWriter& pickle);

// Writes the settings that it visits (run_settings.h) as entries of a dictionary.
struct WriteEntries {
  pickle::PickleWriter& pickle;

  void operator()(std::string_view name, const auto& value) const {
    pickle.Text(name);
    WriteValue(value, pickle);
  }
};

// The same as whole pickles.
[[nodiscard]] Bytes PickleValue(const layout::Value& value);
[[nodiscard]] Bytes PickleValue(const std::array<double, 2>& pair);
[[nodiscard]] Bytes PickleNamespace(const NamedValues& members);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_PLAIN_PICKLE_H_
