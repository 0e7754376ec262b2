#include "formats/hdf5/format.h"

#include "formats/hdf5/internal/library_proof.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/parts.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/writer.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::string_view kMagic = "\x89HDF\r\n\x1a\n";

Result<std::optional<Path>> Recognise(const Place& place) {
  if (place.is_directory && place.names.Has(kFileInDirectory)) return std::optional(place.path);
  const bool is_ours = !place.is_directory &&
                       (AsText(place.head).starts_with(kMagic) || place.path.extension() == ".h5");
  return is_ours ? std::optional(place.path) : std::nullopt;
}

}  // namespace

constinit const Format kFormat = {.name = "hdf5",
                                  .is_one_file = true,
                                  .file_in_directory = kFileInDirectory,
                                  .holds_objects = true,
                                  .can_link = true,
                                  .file_signs = "HDF5",
                                  .recognise = &Recognise,
                                  .open = &OpenSource,
                                  .plan_weights = &PlanHdf5,
                                  .prove = &ProveByLibrary,
                                  .read_manifest = &ReadOwnManifest,
                                  .is_part = &IsPart};

}  // namespace ckpt::hdf5
