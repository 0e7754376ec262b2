// Groups of optimizers that keep what Adam or SGD keeps, and update otherwise.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_FOREIGN_SETTINGS_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_FOREIGN_SETTINGS_H_

#include "core/base/status.h"
#include "formats/megatron/stored_settings.h"

namespace ckpt::megatron {

// Whether a group, which is SGD's or Adam's by what it keeps, has settings of another optimizer
// that change the update. Errors: kUnsupported, which names them; those of reading them.
Status CheckForeignSettings(const StoredSettings& stored, bool is_sgd);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_FOREIGN_SETTINGS_H_
