/* The loops of class f64. */
#define T double
#define REAL double
#define CLS f64
#define F(f) hr_f64_##f
#define K(x) ((double)(x))
#define FAMILY_F
#define HAS_LOGICAL 0
#define HAS_SEEDED 1
#include "interp/interp_class.inc"
