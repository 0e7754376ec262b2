// WorkRecord of a GPU, by CUPTI's Activity API.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_RECORD_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_RECORD_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/device/work_record.h"

namespace ckpt::trainer {

// CUPTI is loaded when this is called, so that a program that records nothing does not need it. It
// records the whole process: one record at a time. Errors: kUnsupported (there is no CUPTI here),
// kSystem (CUPTI refuses).
Result<std::unique_ptr<WorkRecord>> StartCuptiRecord();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_RECORD_H_
