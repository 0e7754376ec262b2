#include "formats/hdf5/format.h"

#include <cmath>
#include <string>
#include <string_view>

#include "formats/hdf5/internal/library_proof.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/parts.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/structure_file.h"
#include "formats/hdf5/internal/writer.h"
#include "formats/pickle/from_json.h"

namespace ckpt::hdf5 {
namespace {

// How the block of a file of MATLAB begins, before the superblock.
constexpr std::string_view kMatlab = "MATLAB 7.3 ";

Result<std::optional<Path>> Recognise(const Place& place) {
  if (place.is_directory && place.names.Has(kFileInDirectory)) return std::optional(place.path);
  if (place.is_directory) return std::optional<Path>();
  const std::string_view head = AsText(place.head);
  const std::string extension = place.path.extension().string();
  const bool is_ours = head.starts_with(kSignature) || head.starts_with(kMatlab) ||
                       extension == ".h5" || extension == ".hdf5";
  return is_ours ? std::optional(place.path) : std::nullopt;
}

// The text, with the numbers that stand beside it, is of a value that can be made of them again.
Status CheckText(const CarriedObject& object) {
  HeldNumbers numbers = object.numbers;
  std::erase_if(numbers, [](const auto& held) { return !std::isfinite(held.second); });
  return pickle::CheckSaysAll(object.json, object.key, numbers);
}

}  // namespace

constinit const Format kFormat = {.name = "hdf5",
                                  .is_one_file = true,
                                  .file_in_directory = kFileInDirectory,
                                  .holds_objects = true,
                                  .keeps_objects_apart = true,
                                  .nested_keys = NestedKeys::kTextsAndNumbers,
                                  .keys_are_bytes = true,
                                  .can_compress = true,
                                  .can_link = true,
                                  .file_signs = "HDF5",
                                  .recognise = &Recognise,
                                  .open = &OpenSource,
                                  .plan_weights = &PlanHdf5,
                                  .check_text = &CheckText,
                                  .prove = &ProveByLibrary,
                                  .read_manifest = &ReadOwnManifest,
                                  .is_part = &IsPart};

}  // namespace ckpt::hdf5
