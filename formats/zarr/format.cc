#include "formats/zarr/format.h"

#include <optional>
#include <string>

#include "formats/megatron/dist_checkpoint.h"
#include "formats/zarr/internal/source.h"

namespace ckpt::zarr {
namespace {

Result<std::optional<Path>> Recognise(const Place& place) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> backend, megatron::ShardedBackend(place));
  return backend == kName ? std::optional(place.path) : std::nullopt;
}

}  // namespace

constinit const Format kFormat = {.name = kName, .recognise = &Recognise, .open = &OpenSource};

}  // namespace ckpt::zarr
