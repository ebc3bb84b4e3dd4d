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
#include "interp/interp_class.inc"
