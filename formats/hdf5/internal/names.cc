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

}  // namespace ckpt::hdf5
