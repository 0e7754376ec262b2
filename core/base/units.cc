#include "core/base/units.h"

#include <array>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/text_number.h"

namespace ckpt {

Result<std::uint64_t> ParseByteSize(std::string_view text) {
  const Status bad = Error(ErrorKind::kUsage, "not a byte size")
                         .Actual(Quote(text))
                         .Expected("a number with an optional unit, as in 64MiB, 5GB or 4096");
  const std::optional<double> number = TakeNumber<double>(text);
  if (!number || !(*number >= 0)) return bad;
  std::string unit;
  for (const char c : text) {
    if (c != ' ') unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  constexpr std::string_view kPrefixes = "kmgtp";
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const std::size_t power = kPrefixes.find(unit[0]);
    if (power == std::string_view::npos) return bad;
    const std::string_view tail = std::string_view(unit).substr(1);
    if (!tail.empty() && tail != "ib" && tail != "b") return bad;
    scale = std::pow(tail == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const double bytes = *number * scale;
  if (!(bytes < 9.2e18)) return bad;
  return static_cast<std::uint64_t>(bytes);
}

std::string FormatByteSize(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ckpt
