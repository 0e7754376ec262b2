#include "formats/hdf5/format.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::string_view kMagic = "\x89HDF\r\n\x1a\n";

Result<std::optional<Path>> Recognise(const Place& place) {
  const bool is_ours = !place.is_directory &&
                       (AsText(place.head).starts_with(kMagic) || place.path.extension() == ".h5");
  return is_ours ? std::optional(place.path) : std::nullopt;
}

}  // namespace

constinit const Format kFormat = {.name = "hdf5", .file_signs = "HDF5", .recognise = &Recognise};

}  // namespace ckpt::hdf5
