// How the threads of HostOps call oneDNN.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_THREAD_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_THREAD_H_

#include <omp.h>

namespace ckpt::trainer {

// Our threads divide the rows of a product among them, and several ranks compute products at the
// same time. The library's own threads would compete with both. Call it before the library.
inline void UseThisThreadAlone() {
  thread_local const bool is_set = [] {
    omp_set_num_threads(1);
    return true;
  }();
  (void)is_set;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_DNNL_THREAD_H_
