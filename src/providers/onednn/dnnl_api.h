/* dnnl_api.h: the part of oneDNN's C interface that we use, found at run time.
 *
 * The numbers are those of oneDNN 3.x's public headers (dnnl_types.h). Library: HEADRACE_ONEDNN, else the usual
 * sonames.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_DNNL_API_H_
#define HEADRACE_PROVIDERS_ONEDNN_DNNL_API_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/context.h"
#include "base/thread.h"
#include "base/vendor.h"
#include "headrace/dtype.h"
#include "headrace/op.h"
#include "headrace/status.h"

typedef struct dnnl_engine *dnnl_engine;
typedef struct dnnl_stream *dnnl_stream;
typedef struct dnnl_memory_desc *dnnl_memory_desc;
typedef const struct dnnl_memory_desc *dnnl_const_memory_desc;
typedef struct dnnl_memory *dnnl_memory;
typedef struct dnnl_primitive *dnnl_primitive;
typedef const struct dnnl_primitive *dnnl_const_primitive;
typedef struct dnnl_primitive_desc *dnnl_primitive_desc;
typedef const struct dnnl_primitive_desc *dnnl_const_primitive_desc;
typedef struct dnnl_primitive_attr *dnnl_primitive_attr;
typedef const struct dnnl_primitive_attr *dnnl_const_primitive_attr;
typedef struct dnnl_post_ops *dnnl_post_ops;
typedef const struct dnnl_post_ops *dnnl_const_post_ops;

typedef struct dnnl_exec_arg {
  int arg;
  dnnl_memory memory;
} dnnl_exec_arg;

typedef struct dnnl_version {
  int major, minor, patch; /* and more */
} dnnl_version;

enum { DNNL_SUCCESS = 0, DNNL_OUT_OF_MEMORY = 1, DNNL_UNIMPLEMENTED = 3 };
enum { DNNL_CPU = 1, DNNL_STREAM_IN_ORDER = 1 };
enum { DNNL_F16 = 1, DNNL_BF16 = 2, DNNL_F32 = 3 };
enum { DNNL_TAG_ANY = 1, DNNL_FORMAT_BLOCKED = 2 };
enum { DNNL_FORWARD_TRAINING = 64 };
enum { DNNL_CONVOLUTION_DIRECT = 1 };
enum { DNNL_SCRATCHPAD_USER = 1 };
enum { DNNL_BINARY_ADD = 0x1fff0, DNNL_BINARY_MUL = 0x1fff1, DNNL_BINARY_DIV = 0x1fff4, DNNL_BINARY_SUB = 0x1fff5 };
enum {
  DNNL_QUERY_IMPL_INFO_STR = 8, /* const char ** */
  DNNL_QUERY_STRIDES = 14,      /* of a layout: const int64_t **, as are those without a type below */
  DNNL_QUERY_SRC = 129,
  DNNL_QUERY_DIFF_SRC = 130,
  DNNL_QUERY_WEIGHTS = 131,
  DNNL_QUERY_DIFF_WEIGHTS = 132,
  DNNL_QUERY_DST = 133,
  DNNL_QUERY_DIFF_DST = 134,
  DNNL_QUERY_SCRATCHPAD = 136,
  DNNL_QUERY_RANK = 256, /* int */
  DNNL_QUERY_DIMS = 257,
  DNNL_QUERY_DTYPE = 258, /* int */
  DNNL_QUERY_PADDED_DIMS = 260,
  DNNL_QUERY_FORMAT_KIND = 262,       /* int */
  DNNL_QUERY_INNER_BLOCK_COUNT = 263, /* int */
  DNNL_QUERY_INNER_BLOCKS = 264,
  DNNL_QUERY_INNER_DIMS = 265
};
enum {
  DNNL_ARG_SRC = 1,
  DNNL_ARG_SRC_1 = 2,
  DNNL_ARG_DST = 17,
  DNNL_ARG_WEIGHTS = 33,
  DNNL_ARG_BIAS = 41,
  DNNL_ARG_SCRATCHPAD = 80,
  DNNL_ARG_DIFF_SRC = 129,
  DNNL_ARG_DIFF_DST = 145,
  DNNL_ARG_DIFF_WEIGHTS = 161,
  DNNL_ARG_POST_OP = 32768 /* times the post-op's number + 1, or-ed to its operand's DNNL_ARG */
};

typedef struct hr__dnnl_table {
#define DNNL_SYMBOL(type, name, args) type(*name) args;
#include "providers/onednn/dnnl_symbols.def"
#undef DNNL_SYMBOL
} hr__dnnl_table;

enum { HR__DNNL_ANSWERS = 128, HR__DNNL_REORDERS = 32 };

/* The library's latest answers about nodes (descriptors.c). */
typedef struct hr__dnnl_answers {
  hr_mutex mutex;
  uint64_t clock;
  struct hr__dnnl_answer *entries[HR__DNNL_ANSWERS];
} hr__dnnl_answers;

typedef struct hr__dnnl_reorder {
  struct hr__dnnl_primitive *primitive; /* NULL: none yet */
  int threads;
} hr__dnnl_reorder;

/* The latest reorders; guards all primitives (shared_primitives.c). */
typedef struct hr__dnnl_primitives {
  hr_mutex mutex;
  uint64_t noted; /* reorders so far */
  hr__dnnl_reorder reorders[HR__DNNL_REORDERS];
} hr__dnnl_primitives;

/* The library, once per process. */
typedef struct hr__dnnl_library {
  hr_vendor vendor;
  hr__dnnl_table table;
  dnnl_engine engine;
  bool has_dtype[HR_DTYPE_COUNT];    /* it is fast in them */
  atomic_bool has_made[HR_OP_COUNT]; /* primitives of such an operation */
  atomic_bool has_sgemm;             /* its code exists */
  char version[32];
  hr__dnnl_answers answers;
  hr__dnnl_primitives primitives;
} hr__dnnl_library;

extern const hr_context_part hr__dnnl_library_kind;

static inline hr__dnnl_library *hr__dnnl_opened(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_ONEDNN, &hr__dnnl_library_kind);
}

static inline const hr__dnnl_table *hr__dnnl(void) {
  return &hr__dnnl_opened()->table;
}

static inline dnnl_engine hr__dnnl_engine(void) {
  return hr__dnnl_opened()->engine;
}

/* Loads the library and makes the engine. Called once. */
HR_MUST_USE hr_status hr__dnnl_open(void);
/* Once, before a call of sgemm. */
void hr__dnnl_generate_sgemm(void);

/* A dnnl_status_t as a status that names the failed action. */
HR_MUST_USE hr_status hr__dnnl_status(int code, const char *what);

#endif
