/* tensor_proto.h: constants of a serialised graph. Any bytes are safe. */
#ifndef HEADRACE_TENSORFLOW_TENSOR_PROTO_H_
#define HEADRACE_TENSORFLOW_TENSOR_PROTO_H_

#include "importers/wire.h"
#include "plugin.h"

enum { HTF_CONSTANT_BYTES_MAX = 1 << 16, HTF_HOST_BYTES_MAX = 1 << 26 };

/* A small tensor in the host's memory, row-major. */
typedef struct htf_host {
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  int64_t count;
  void *bytes; /* on the heap */
} htf_host;

/* A tensor of zeros, of at most `most` bytes: UNIMPLEMENTED if it has more. */
HR_MUST_USE hr_status htf_host_create(hr_dtype dtype, int rank, const int64_t *dims, int64_t most, htf_host *out_host);
void htf_host_fini(htf_host *host);
/* Reads a TensorProto: INVALID_ARGUMENT if it is damaged, UNIMPLEMENTED for other dtypes, and above
 * HTF_CONSTANT_BYTES_MAX bytes. */
HR_MUST_USE hr_status htf_read_tensor(hr__span proto, htf_host *out_host);

#endif
