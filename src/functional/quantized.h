/* quantized.h: packed numbers of a few bits, with a scale for each group of neighbours in a row.
 *
 * The numbers of a row are one sequence of bits, from the lowest bit of its first u32 word on: the layout of MLX's
 * model files. A matrix [.., N, K] is packed as u32 [.., N, K * bits / 32], with scales [.., N, K / group].
 *
 *   mode    group        bits              number    scale               value
 *   affine  32, 64, 128  2, 3, 4, 5, 6, 8  integer   the input's dtype   scale * number + bias
 *   mxfp4   32           4                 e2m1      u8, e8m0            scale * number
 *   mxfp8   32           8                 e4m3      u8, e8m0            scale * number
 *   nvfp4   16           4                 e2m1      u8, e4m3            scale * number * global scale / 2688
 *
 * mx formats: OCP Microscaling Formats (MX) Specification, version 1.0.
 */
#ifndef HEADRACE_FUNCTIONAL_QUANTIZED_H_
#define HEADRACE_FUNCTIONAL_QUANTIZED_H_

#include "functional/formula.h"

typedef enum hr__quantized_mode {
  HR__MODE_AFFINE = 0,
  HR__MODE_MXFP4,
  HR__MODE_MXFP8,
  HR__MODE_NVFP4,
  HR__MODE_COUNT
} hr__quantized_mode;

typedef struct hr__packing {
  hr__quantized_mode mode;
  int group, bits;
} hr__packing;

/* Packed numbers; biases and global: NULL if there are none. */
typedef struct hr__packed {
  hr__packing packing;
  const hr_tensor *words, *scales, *biases, *global;
} hr__packed;

/* The attributes group_size, bits and mode, of which `first` is the first one. */
hr_status hr__packing_attributes(const hr__function_call *call, int first, hr__packing *out);

/* The same memory in another dtype: the last dim, whose elements are neighbours, has other elements. x is dense. */
const hr_tensor *hr__reinterpreted(hr__formula *f, const hr_tensor *x, hr_dtype dtype);
/* Integers [.., K] below 2^bits as u32 words, and back. */
const hr_tensor *hr__pack(hr__formula *f, const hr_tensor *numbers, int bits);
const hr_tensor *hr__unpack(hr__formula *f, const hr_tensor *words, int bits);
/* [.., K] as [.., K / group, group], and back. */
const hr_tensor *hr__in_groups(hr__formula *f, const hr_tensor *x, int64_t group);
const hr_tensor *hr__without_groups(hr__formula *f, const hr_tensor *x);

/* Numbers with a scale alone. values: in groups, [.., K / group, group]. */
void hr__quantize_floats(hr__formula *f, hr__packing packing, const hr_tensor *values, const hr_tensor *global,
                         const hr_tensor **out_words, const hr_tensor **out_scales);
/* In groups, in this dtype. */
const hr_tensor *hr__dequantize_floats(hr__formula *f, const hr__packed *w, hr_dtype dtype);

#endif
