/* The loops of class i64. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("wrapv") /* integers wrap */
#endif
#define T int64_t
#define REAL int64_t
#define CLS i64
#define F(f) hr_i64_##f
#define K(x) ((int64_t)(x))
#define FAMILY_I
#define HAS_LOGICAL 0
#define HAS_SEEDED 1
#include "interp/interp_class.inc"
