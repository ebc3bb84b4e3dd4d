/* types.h: sets of TensorFlow's dtypes, for the rows of map.def. */
#ifndef HEADRACE_TENSORFLOW_TYPES_H_
#define HEADRACE_TENSORFLOW_TYPES_H_

#define T_F16 (1u << TF_HALF)
#define T_BF16 (1u << TF_BFLOAT16)
#define T_F32 (1u << TF_FLOAT)
#define T_F64 (1u << TF_DOUBLE)
#define T_C64 (1u << TF_COMPLEX64)
#define T_C128 (1u << TF_COMPLEX128)
#define T_I8 (1u << TF_INT8)
#define T_I16 (1u << TF_INT16)
#define T_I32 (1u << TF_INT32)
#define T_I64 (1u << TF_INT64)
#define T_U8 (1u << TF_UINT8)
#define T_U16 (1u << TF_UINT16)
#define T_U32 (1u << TF_UINT32)
#define T_U64 (1u << TF_UINT64)
#define T_BOOL (1u << TF_BOOL)
#define T_F8E5M2 (1u << TF_FLOAT8_E5M2)
#define T_F8E4M3 (1u << TF_FLOAT8_E4M3FN)
#define F8 (T_F8E5M2 | T_F8E4M3)
#define T_VARIANT (1u << TF_VARIANT)

#define FLOATS (T_F16 | T_BF16 | T_F32 | T_F64)
#define COMPLEX (T_C64 | T_C128)
#define SIGNED (T_I8 | T_I16 | T_I64)
#define UNSIGNED (T_U8 | T_U16 | T_U32 | T_U64)
/* Without i32, for which TensorFlow has kernels on the host: dims and other small numbers stay there. */
#define INTEGERS (SIGNED | UNSIGNED)
#define REALS (FLOATS | INTEGERS)
#define NUMBERS (REALS | COMPLEX)
#define ALL_TYPES (NUMBERS | T_I32 | T_BOOL)
/* Of operations that move elements. */
#define MOVED_TYPES (ALL_TYPES | F8)

#endif
