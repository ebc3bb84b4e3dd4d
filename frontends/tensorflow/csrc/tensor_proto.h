/* tensor_proto.h: constants of a serialised graph. Any bytes are safe. */
#ifndef HEADRACE_TENSORFLOW_TENSOR_PROTO_H_
#define HEADRACE_TENSORFLOW_TENSOR_PROTO_H_

#include "importers/wire.h"
#include "plugin.h"

enum { HTF_CONSTANT_BYTES_MAX = 1 << 16 };

/* A small tensor in the host's memory, row-major. */
typedef struct htf_host {
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  int64_t count;
  void *bytes; /* on the heap */
} htf_host;

/* A tensor without contents, of at most HTF_CONSTANT_BYTES_MAX bytes: UNIMPLEMENTED if it has more. */
HR_MUST_USE hr_status htf_host_create(hr_dtype dtype, int rank, const int64_t *dims, htf_host *out_host);
void htf_host_fini(htf_host *host);
/* Reads a TensorProto: INVALID_ARGUMENT if it is damaged, UNIMPLEMENTED for other dtypes and large ones. */
HR_MUST_USE hr_status htf_read_tensor(hr__span proto, htf_host *out_host);

#endif
