/* bindings.h: what runs read of a plan's buffers and scalars, in some bytes each.
 *
 *   program                                   bindings
 *   %4 f32[64,16], dead, arena at 4,096       4 bytes: 64, in blocks of 64 bytes
 *   %2 bound                                  4 bytes: BOUND
 *   $3 = 0.5, $9 = 0.5                        4 bytes each: constant 0, which both share
 *
 * Made of a schedule before it is dropped (hr__plan_settle). One block of memory. Threads: immutable.
 */
#ifndef HEADRACE_ENGINE_BINDINGS_H_
#define HEADRACE_ENGINE_BINDINGS_H_

#include "compiler/compile.h"

/* A buffer's place: below SPECIALS the arena's block; else one of the last two; else 2 * the number of a special
 * buffer, and 1 if it is bound. */
#define HR_BINDING_SPECIALS UINT32_C(0xc0000000)
#define HR_BINDING_BOUND UINT32_C(0xfffffffe)
#define HR_BINDING_NONE UINT32_C(0xffffffff)
enum { HR_BINDING_BLOCK = 64 };
/* Of a scalar: the number of an argument, or of a constant. */
#define HR_BINDING_CONSTANT (UINT32_C(1) << 31)

typedef struct hr_bindings {
  int buffer_count, scalar_count, constant_count, special_count;
  size_t bytes;                      /* of the block */
  const hr_scalar *constants;        /* in use, each once, mostly */
  const hr_program_buffer *specials; /* the caller's buffers that have a layout, room, ..; all others are plain */
  const uint32_t *places, *scalars;
} hr_bindings;

extern const hr_program_buffer hr__bindings_plain;

/* NULL: there is no memory, or an offset or a count is too large. */
hr_bindings *hr__bindings_make(const hr_schedule *schedule);

static inline hr_place_kind hr__bindings_kind(const hr_bindings *bindings, size_t buffer) {
  uint32_t place = bindings->places[buffer];
  return place < HR_BINDING_SPECIALS ? HR_PLACE_ARENA
         : place == HR_BINDING_NONE  ? HR_PLACE_NONE
         : place == HR_BINDING_BOUND ? HR_PLACE_BOUND
         : (place & 1) != 0          ? HR_PLACE_BOUND
                                     : HR_PLACE_NONE;
}

/* A buffer of the caller; of plain ones only what is zero is known. */
static inline const hr_program_buffer *hr__bindings_buffer(const hr_bindings *bindings, size_t buffer) {
  uint32_t place = bindings->places[buffer];
  return place >= HR_BINDING_SPECIALS && place < HR_BINDING_BOUND
             ? &bindings->specials[(place - HR_BINDING_SPECIALS) / 2]
             : &hr__bindings_plain;
}

/* The addresses of all buffers and the values of all scalars of a run. */
void hr__bindings_addresses(const hr_bindings *bindings, void *shared, void *const *bound, void **out_addresses);
void hr__bindings_values(const hr_bindings *bindings, const hr_scalar *arguments, hr_scalar *out_values);

#endif
