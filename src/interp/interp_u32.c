/* The loops of class u32. */
#define T uint32_t
#define REAL uint32_t
#define CLS u32
#define F(f) hr_u32_##f
#define K(x) ((uint32_t)(x))
#define FAMILY_I
#define HAS_LOGICAL 0
#define HAS_SEEDED 1
#include "interp/interp_class.inc"
