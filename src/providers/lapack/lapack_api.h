/* lapack_api.h: BLAS and LAPACK, opened at run time: OpenBLAS, or any library with Fortran's symbols and 32-bit
 * integers.
 *
 * One table, of one pointer for each function and element type. The library is large: it is opened when the first
 * operation needs it. Any thread may call it at any time; a call uses one thread, except between
 * hr__lapack_threads_begin and _end.
 */
#ifndef HEADRACE_PROVIDERS_LAPACK_LAPACK_API_H_
#define HEADRACE_PROVIDERS_LAPACK_LAPACK_API_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/context.h"
#include "base/vendor.h"
#include "headrace/dtype.h"
#include "headrace/status.h"

/* An element type as an index: 0 f32, 1 f64, 2 c64, 3 c128; -1: LAPACK does not support it. */
static inline int hr__lapack_kind(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32    ? 0
         : dtype == HR_DTYPE_F64  ? 1
         : dtype == HR_DTYPE_C64  ? 2
         : dtype == HR_DTYPE_C128 ? 3
                                  : -1;
}

enum { HR__LAPACK_ALL = 4, HR__LAPACK_REAL = 2, HR__LAPACK_COMPLEX = 2 };

/* hr__lapack()->ALL_getrf[kind], ->REAL_syevd[kind], ->COMPLEX_heevd[kind - 2] */
typedef struct hr__lapack_table {
#define LAPACK_SYMBOL(kinds, name, args) void(*kinds##_##name[HR__LAPACK_##kinds]) args;
#include "providers/lapack/lapack_symbols.def"
#undef LAPACK_SYMBOL
} hr__lapack_table;

/* The library, once per process. */
typedef struct hr__lapack_library {
  hr_vendor vendor;
  hr__lapack_table table;
  hr_mutex threads_mutex;         /* held between hr__lapack_threads_begin and _end */
  void (*set_threads)(int count); /* NULL: the library has no threads of its own, or no such function */
  bool has_openmp;                /* its threads are OpenMP's */
} hr__lapack_library;

extern const hr_context_part hr__lapack_library_kind;

static inline const hr__lapack_table *hr__lapack(void) {
  const hr__lapack_library *library = hr__context_part(&hr__context_first, HR_CONTEXT_LAPACK, &hr__lapack_library_kind);
  return &library->table;
}

/* Opens the library at the first call; UNIMPLEMENTED lists the places searched. */
HR_MUST_USE hr_status hr__lapack_open(void);

/* Enables the library's own threads for the calls between the two; one caller at a time. */
void hr__lapack_threads_begin(int count);
void hr__lapack_threads_end(void);

#endif
