/* array.h: arrays with value semantics, on the tensors and functions of functional.h.
 *
 * An array is an hr_tensor: a view of a buffer, with a reference to it. Arrays share memory until one of them is
 * written: hr_array_assign writes in place if nobody else can see the memory, else to a new buffer. So a view keeps the
 * values that it had.
 *
 * Nothing runs before a value is read. Wrong shapes, dtypes and indices fail in the call that has them; failures of the
 * work itself are reported by the call that waits for it, with the name of the operation.
 *
 * Results: `out` is an array of the caller's, which the call releases and replaces, or {0}. It is unchanged after a
 * failure, and may be an input, too.
 *
 * Threads: as stream.h. An array belongs to one thread at a time.
 */
#ifndef HEADRACE_ARRAY_H_
#define HEADRACE_ARRAY_H_

#include "headrace/functional.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- functions of one and two arrays, without attributes ---- */

/* hr_functional_apply with the result in `out`. */
HR_API HR_MUST_USE hr_status hr_array_unary(hr_stream *stream, hr_functional function, const hr_tensor *x,
                                            hr_tensor *out);
HR_API HR_MUST_USE hr_status hr_array_binary(hr_stream *stream, hr_functional function, const hr_tensor *x,
                                             const hr_tensor *y, hr_tensor *out);

/* ---- from and to the host ---- */

/* An array of row-major host elements, which are copied before the call returns. */
HR_API HR_MUST_USE hr_status hr_array_from_host(hr_stream *stream, hr_dtype dtype, int rank, const int64_t *dims,
                                                const void *elements, hr_tensor *out);
/* An array on existing memory of the stream's device, without a copy: hr_buffer_adopt for a view. `address` is that of
 * element (0, 0, ...), strides are in elements (NULL: row-major). The lowest address of an element must be aligned to
 * 16, else FAILED_PRECONDITION. The owner may write to the memory, and pending work sees that. */
HR_API HR_MUST_USE hr_status hr_array_adopt(hr_stream *stream, hr_dtype dtype, int rank, const int64_t *dims,
                                            const int64_t *strides, void *address, void (*release)(void *arg),
                                            void *arg, hr_tensor *out);
/* Waits for the array, and copies its elements to host memory, row-major and without gaps. */
HR_API HR_MUST_USE hr_status hr_array_read(hr_stream *stream, const hr_tensor *x, void *out_elements);
/* Waits for an array of one element, with any number of dims, and gives it as hr_scalar_of does. */
HR_API HR_MUST_USE hr_status hr_array_item(hr_stream *stream, const hr_tensor *x, hr_scalar *out_value);
/* An element in host memory as a number: BOOL, I64 (U64 for u64), F64 or C128. */
HR_API hr_scalar hr_scalar_of(hr_dtype dtype, const void *element);

/* ---- indices ---- */

typedef enum hr_index_kind {
  HR_INDEX_AT = 0, /* the dim is dropped: element `begin` of it, counted from the end if negative */
  HR_INDEX_SLICE,  /* elements begin, begin + step, ... before end, as in Python */
  HR_INDEX_NEW,    /* a new dim of size 1 */
  HR_INDEX_REST,   /* as many whole dims as the other indices leave; at most once, by default at the end */
  HR_INDEX_ARRAY   /* of integers: elements at them, negative ones from the end. Of bool: a mask, for as many dims of
                    * the same sizes as it has, of the elements where it is true */
} hr_index_kind;

typedef struct hr_index {
  hr_index_kind kind;
  bool has_begin, has_end; /* of a slice; without them from one end to the other */
  int64_t begin, end;      /* negative ones count from the end; a slice's are clamped to the dim */
  int64_t step;            /* of a slice, not 0 */
  const hr_tensor *array;  /* of an array; borrowed for the call */
} hr_index;

/* A view of x's elements at these indices, one for each dim from the first on. OUT_OF_RANGE for an element that the dim
 * does not have, and for too many indices; INVALID_ARGUMENT for a step of 0, and for arrays. */
HR_API HR_MUST_USE hr_status hr_array_index(const hr_tensor *x, int count, const hr_index *indices, hr_tensor *out);
/* The same with arrays among the indices: a copy of x's elements. The arrays are broadcast to each other, and their
 * dims take the place of the dims that they index; they come first if another index than an integer stands between two
 * arrays (NumPy's advanced indexing). A mask waits for its number of true elements. */
HR_API HR_MUST_USE hr_status hr_array_select(hr_stream *stream, const hr_tensor *x, int count, const hr_index *indices,
                                             hr_tensor *out);

/* How a value meets the element in its place. */
typedef enum hr_update { HR_UPDATE_SET = 0, HR_UPDATE_ADD, HR_UPDATE_MULTIPLY, HR_UPDATE_MAX, HR_UPDATE_MIN } hr_update;

/* x's elements at these indices are combined with `value`, which is broadcast and converted to x's dtype; it may be a
 * number. An element that arrays name twice is combined with both values; for HR_UPDATE_SET one of them remains. */
HR_API HR_MUST_USE hr_status hr_array_update(hr_stream *stream, hr_tensor *x, int count, const hr_index *indices,
                                             const hr_tensor *value, hr_update update);
/* hr_array_update that sets. */
HR_API HR_MUST_USE hr_status hr_array_assign(hr_stream *stream, hr_tensor *x, int count, const hr_index *indices,
                                             const hr_tensor *value);

#ifdef __cplusplus
}
#endif

#endif
