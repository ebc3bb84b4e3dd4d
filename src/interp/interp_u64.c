/* The loops of class u64. */
#define T uint64_t
#define REAL uint64_t
#define CLS u64
#define F(f) hr_u64_##f
#define K(x) ((uint64_t)(x))
#define FAMILY_I
#define HAS_LOGICAL 0
#define HAS_SEEDED 1
#include "interp/interp_class.inc"
