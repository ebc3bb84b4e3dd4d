/* The loops of class c64. */
#define T hr_c64
#define REAL float
#define CLS c64
#define F(f) hr_f32_##f
#define K(x) ((float)(x))
#define C(f) hr_c64_##f
#define FAMILY_C
#define HAS_LOGICAL 0
#define HAS_SEEDED 0
#define EACH_NARROW(X, name) X(name, C32, HR__LOAD_C32, HR__STORE_C32)
#include "interp/interp_class.inc"
