/* The loops of class b8: bools; integer rows are computed in int. */
#define T uint8_t
#define REAL uint8_t
#define CLS b8
#define F(f) hr_i32_##f
#define K(x) ((uint8_t)(x))
#define FAMILY_I
#define HAS_LOGICAL 1
#define HAS_SEEDED 0
#include "interp/interp_class.inc"
