// How a request to store a run asks for its files.
#ifndef CKPT_FORMATS_DCP_RUN_OPTIONS_H_
#define CKPT_FORMATS_DCP_RUN_OPTIONS_H_

#include "core/training/run_format.h"
#include "formats/dcp/writer.h"

namespace ckpt::dcp {

// Number and size of the files, compression, and which writer stores which rows of a tensor.
[[nodiscard]] WriterOptions OptionsOfRun(const RunRequest& request);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_RUN_OPTIONS_H_
