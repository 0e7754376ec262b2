#include "formats/torch_save/carried_object.h"

#include <utility>

#include "formats/pickle/from_json.h"

namespace ckpt::torch_save {

Result<PickledObject> PickleCarried(const CarriedObject& object) {
  if (object.pickled) return *object.pickled;
  CKPT_ASSIGN_OR_RETURN(Bytes pickle, pickle::PickleFromJson(object.json, object.key));
  return PickledObject{.pickle = std::move(pickle)};
}

Status CheckCarried(const CarriedObject& object) { return PickleCarried(object).status(); }

}  // namespace ckpt::torch_save
