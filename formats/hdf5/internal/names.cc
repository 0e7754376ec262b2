#include "formats/hdf5/internal/names.h"

namespace ckpt::hdf5 {

std::string LinkNameOf(std::string_view key) {
  std::string name;
  for (const char c : key) {
    if (c == '/') {
      name += "%2F";
    } else if (c == '%') {
      name += "%25";
    } else {
      name += c;
    }
  }
  if (name.empty()) return "%";
  return name == "." ? "%2E" : name;
}

std::string SourceNameIn(std::string_view name) {
  std::string written;
  for (const char c : name) written.append(c == '%' ? 2 : 1, c);
  return written;
}

std::optional<std::string> NameOfSource(std::string_view written) {
  std::string name;
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (written[i] == '%' && !written.substr(++i).starts_with('%')) return std::nullopt;
    name += written[i];
  }
  return name;
}

}  // namespace ckpt::hdf5
