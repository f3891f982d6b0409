// Stands in for the header of CUDA's asynchronous copies to shared memory.
#pragma once

#include "emulate_engine.h"

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes) {
  fusegen::emulate::copy_later(to, from, bytes);
}
inline void __pipeline_commit() { fusegen::emulate::end_batch(); }
inline void __pipeline_wait_prior(unsigned left) { fusegen::emulate::wait_for_batches(left); }
