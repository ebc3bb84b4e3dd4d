/* shared_primitives.h: primitives of the library, each made when a run first needs it, for all pipes.
 *
 * A primitive is described at first. It is made of that descriptor, which then ends: the primitive has a copy. The copy
 * refers to memory of the first one, and a primitive made of it would read freed memory. So a primitive is made once,
 * and its users share it, not its descriptor. For the same reason the library's own cache of primitives is off: it
 * returns such copies.
 *
 * The library sizes the loops of a primitive by the number of threads of the thread that makes it.
 *
 * Threads: safe from any; the first caller that needs a primitive makes it, others wait for it.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_SHARED_PRIMITIVES_H_
#define HEADRACE_PROVIDERS_ONEDNN_SHARED_PRIMITIVES_H_

#include "providers/onednn/dnnl_api.h"

typedef struct hr__dnnl_primitive hr__dnnl_primitive;

/* The primitive of a new descriptor, which is consumed, with a reference of the caller's. NULL: no memory, or no
 * descriptor. */
hr__dnnl_primitive *hr__dnnl_primitive_of(dnnl_primitive_desc desc);
hr__dnnl_primitive *hr__dnnl_primitive_retain(hr__dnnl_primitive *primitive);
void hr__dnnl_primitive_release(hr__dnnl_primitive *primitive); /* NULL: nothing */
/* Bytes of host memory that each of its holders answers for, about. */
size_t hr__dnnl_primitive_footprint(hr__dnnl_primitive *primitive);
/* A copy of one of its layouts (DNNL_QUERY_..) that the caller owns; NULL: no memory. */
dnnl_memory_desc hr__dnnl_primitive_layout(const hr__dnnl_primitive *primitive, int what);
/* The library's name of its implementation; NULL: unknown. */
const char *hr__dnnl_primitive_name(const hr__dnnl_primitive *primitive);
/* The primitive for `threads` threads, which is made now if it is not there. */
int hr__dnnl_primitive_make(hr__dnnl_primitive *primitive, int threads, dnnl_primitive *out_made);

/* Tells if a primitive on packed weights gives the bits of the one on stored weights (packed_weights.c): other bits
 * once, or the same ones twice, of different products. */
typedef enum hr__dnnl_proof { HR__DNNL_UNPROVED = 0, HR__DNNL_SAME_BITS, HR__DNNL_OTHER_BITS } hr__dnnl_proof;
hr__dnnl_proof hr__dnnl_primitive_proof(const hr__dnnl_primitive *primitive);
void hr__dnnl_primitive_prove(hr__dnnl_primitive *primitive, bool has_same_bits);

/* One of the latest reorders, for as many threads, with a reference of the caller's, or NULL. */
hr__dnnl_primitive *hr__dnnl_known_reorder(dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads);
/* Remembers a reorder, unless it is NULL. */
void hr__dnnl_note_reorder(hr__dnnl_primitive *reorder, int threads);
/* Forgets all reorders. */
void hr__dnnl_forget_reorders(void);

#endif
