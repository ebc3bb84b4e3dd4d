/* host_kernel.h: a kernel as a function on the host.
 *
 * The interpreter creates these, and compiled code replaces them later; a driver runs both alike. A pass consists of
 * `units` independent units. A driver splits [0, units) over threads in runs of at least `grain`. Passes run one after
 * another.
 */
#ifndef HEADRACE_BASE_HOST_KERNEL_H_
#define HEADRACE_BASE_HOST_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/dtype.h"

enum { HR_HOST_KERNEL_PASS_MAX = 9, HR_HOST_KERNEL_INTERNED_MAX = 2 };

typedef struct hr_host_kernel hr_host_kernel;

typedef struct hr_host_call {
  void *const *args;        /* one address for each kernel argument */
  const hr_scalar *scalars; /* one for each kernel scalar */
  void *workspace;          /* workspace_bytes, shared by all threads and passes; 64-byte aligned */
  void *scratch;            /* scratch_bytes, this thread's own; 64-byte aligned */
} hr_host_call;

/* A kernel and its arguments. */
typedef struct hr_host_launch {
  const hr_host_kernel *kernel;
  hr_host_call call;
} hr_host_launch;

/* A kernel of dense arrays that is to take the elements of a call's result as soon as they are stored. */
enum { HR_HOST_AHEAD_MAX = 4 };
typedef struct hr_host_taker {
  hr_host_launch launch; /* of a kernel with one pass, pieces, and neither workspace nor scratch */
  int ahead_count;
  const float *ahead[HR_HOST_AHEAD_MAX]; /* its other arrays, which are to be in the cache by then */
} hr_host_taker;

typedef struct hr_host_pass {
  int64_t units, grain; /* grain: least units worth another thread (about 10 us of work) */
} hr_host_pass;

struct hr_host_kernel {
  const char *name;
  int pass_count;
  const hr_host_pass *passes; /* its maker's */
  size_t workspace_bytes, scratch_bytes;
  int64_t piece;    /* unit n is elements [n * piece, (n + 1) * piece) of an element-wise domain; 0: another part */
  int64_t bytes;    /* memory traffic estimate */
  size_t footprint; /* bytes of host memory that the kernel takes, about, beside .. */
  const void *interned[HR_HOST_KERNEL_INTERNED_MAX]; /* .. blocks that others share (interned.h); NULL: none */
  void (*run)(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end);
  void (*destroy)(hr_host_kernel *kernel);
};

/* The form of a device's kernels: host functions, or source text for its compiler. */
typedef enum hr_dialect { HR_DIALECT_HOST = 0, HR_DIALECT_CUDA } hr_dialect;

#endif
