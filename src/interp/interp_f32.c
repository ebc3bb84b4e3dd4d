/* The loops of class f32. */
#define T float
#define REAL float
#define CLS f32
#define F(f) hr_f32_##f
#define K(x) ((float)(x))
#define FAMILY_F
#define IS_F32
#define HAS_LOGICAL 0
#define HAS_SEEDED 1

/* One f16: an instruction if there is one, since the emulation's selects are unpredictable jumps. */
#if defined(__F16C__)
#include <immintrin.h>
#define WIDEN_HALF(x) _cvtsh_ss(x)
#define NARROW_HALF(x) _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)
#else
#define WIDEN_HALF(x) HR__LOAD_F16(x)
#define NARROW_HALF(x) HR__STORE_F16(x)
#endif
#define EACH_NARROW(X, name) X(name, F16, WIDEN_HALF, NARROW_HALF) X(name, BF16, HR__LOAD_BF16, HR__STORE_BF16)
#include "interp/interp_class.inc"
