/* nvrtc.h: compiles CUDA C++ text to a cubin with NVRTC, found at run time.
 *
 * The library is libnvrtc.so.13, .12 or without a number: in the folders of HEADRACE_CUDA_LIBS, else in the loader's
 * path. A text may use everything of CUDA C++ 17 that needs no header; functions are __device__ by default. a * b + c
 * is never contracted (--fmad=false); division, square root and denormals are IEEE's, which is NVRTC's default.
 */
#ifndef HEADRACE_DRIVERS_CUDA_NVRTC_H_
#define HEADRACE_DRIVERS_CUDA_NVRTC_H_

#include "base/text.h"

/* Appends everything that determines a cubin besides its text: NVRTC's version and its options. */
HR_MUST_USE hr_status hr__nvrtc_name(int architecture, hr_text *out_name);
/* Appends the cubin for compute capability architecture / 10 . architecture % 10. NOT_FOUND if there is no NVRTC; if
 * NVRTC rejects the text, the error has the first lines of its log. Threads: any, several at once. */
HR_MUST_USE hr_status hr__nvrtc_compile(int architecture, const char *text, size_t length, hr_text *out_image);

#endif
