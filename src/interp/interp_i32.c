/* The loops of class i32. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("wrapv") /* integers wrap */
#endif
#define T int32_t
#define REAL int32_t
#define CLS i32
#define F(f) hr_i32_##f
#define K(x) ((int32_t)(x))
#define FAMILY_I
#define HAS_LOGICAL 0
#define HAS_SEEDED 1
#include "interp/interp_class.inc"
