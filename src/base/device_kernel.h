/* device_kernel.h: a kernel as device functions, compiled from source text (compiler/emit_device.h).
 *
 * Each pass is one function over a grid. Its parameter is a struct passed by value, of 8-byte words in this order:
 *
 *   void *workspace; void *args[arg_count]; hr_scalar scalars[scalar_count]; int64_t words[word_count];
 */
#ifndef HEADRACE_BASE_DEVICE_KERNEL_H_
#define HEADRACE_BASE_DEVICE_KERNEL_H_

#include "base/host_kernel.h"
#include "base/text.h"

enum { HR_DEVICE_WORDS_MAX = 64 };

typedef struct hr_device_kernel {
  hr_host_kernel base; /* launches point here; run is NULL, its passes give the amount of work: */
  hr_host_pass passes[HR_HOST_KERNEL_PASS_MAX];
  void *functions[HR_HOST_KERNEL_PASS_MAX]; /* the driver's */
  int64_t blocks[HR_HOST_KERNEL_PASS_MAX];  /* of the grid; 0: nothing to do */
  int threads[HR_HOST_KERNEL_PASS_MAX];     /* of a block */
  int shared[HR_HOST_KERNEL_PASS_MAX];      /* bytes of a block's dynamic shared memory */
  int arg_count, scalar_count, word_count;
  int64_t words[HR_DEVICE_WORDS_MAX]; /* of this kernel; its functions may be shared with others */
  bool begins_early;                  /* its functions wait for earlier kernels themselves, with HR_BEGIN */
  bool has_large_clusters;            /* of more than eight blocks, which a device has to allow */
} hr_device_kernel;

/* The source of a kernel that a provider wrote. */
typedef struct hr_device_source {
  hr_text text; /* follows the prelude of the dialect: functions NAME_0, NAME_1, ... */
  const char *name;
  int pass_count;
  int64_t blocks[HR_HOST_KERNEL_PASS_MAX];
  int threads[HR_HOST_KERNEL_PASS_MAX], shared[HR_HOST_KERNEL_PASS_MAX];
  size_t workspace_bytes;
  bool begins_early, has_large_clusters; /* as above */
  int word_count;
  int64_t words[HR_DEVICE_WORDS_MAX];
} hr_device_source;

#endif
