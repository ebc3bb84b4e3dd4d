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
#define EACH_NARROW(X, name)                \
  X(name, U8, HR__LOAD_U8, HR__STORE_U8)    \
  X(name, I8, HR__LOAD_I8, HR__STORE_I8)    \
  X(name, U16, HR__LOAD_U16, HR__STORE_U16) \
  X(name, I16, HR__LOAD_I16, HR__STORE_I16)
#include "interp/interp_class.inc"
