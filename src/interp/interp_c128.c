/* The loops of class c128. */
#define T hr_c128
#define REAL double
#define CLS c128
#define F(f) hr_f64_##f
#define K(x) ((double)(x))
#define C(f) hr_c128_##f
#define FAMILY_C
#define HAS_LOGICAL 0
#define HAS_SEEDED 0
#include "interp/interp_class.inc"
