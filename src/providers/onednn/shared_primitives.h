/* shared_primitives.h: descriptors of the library's primitives, and the primitives that are made of them when a run
 * first needs one, for all pipes.
 *
 * The library's own cache of primitives is off. For a cached primitive it returns this one's descriptor, a copy that
 * refers to memory of the descriptor that the primitive was made of. If a primitive is made of the copy after both are
 * gone, it reads freed memory. Here a primitive is made once, of a descriptor that still exists.
 *
 * The library sizes the loops of a primitive by the number of threads of the thread that makes it.
 *
 * Threads: safe from any; the first caller that needs a primitive makes it, others wait for it.
 */
#ifndef HEADRACE_PROVIDERS_ONEDNN_SHARED_PRIMITIVES_H_
#define HEADRACE_PROVIDERS_ONEDNN_SHARED_PRIMITIVES_H_

#include "providers/onednn/dnnl_api.h"

typedef struct hr__dnnl_primitive hr__dnnl_primitive;

/* The primitive of a descriptor, which is consumed, or of one that it is a clone of, with a reference of the caller's.
 * NULL: no memory. */
hr__dnnl_primitive *hr__dnnl_primitive_of(dnnl_primitive_desc desc);
void hr__dnnl_primitive_release(hr__dnnl_primitive *primitive); /* NULL: nothing */
/* Bytes of host memory that each of its holders answers for, about. */
size_t hr__dnnl_primitive_footprint(hr__dnnl_primitive *primitive);
/* A clone of its descriptor that the caller owns; NULL: no memory. */
dnnl_primitive_desc hr__dnnl_primitive_desc(const hr__dnnl_primitive *primitive);
/* The primitive for `threads` threads, which is made now if it is not there. */
int hr__dnnl_primitive_make(hr__dnnl_primitive *primitive, int threads, dnnl_primitive *out_made);

/* Tells if a primitive on packed weights gives the bits of the one on stored weights (packed_weights.c): other bits
 * once, or the same ones twice, of different products. */
typedef enum hr__dnnl_proof { HR__DNNL_UNPROVED = 0, HR__DNNL_SAME_BITS, HR__DNNL_OTHER_BITS } hr__dnnl_proof;
hr__dnnl_proof hr__dnnl_primitive_proof(const hr__dnnl_primitive *primitive);
void hr__dnnl_primitive_prove(hr__dnnl_primitive *primitive, bool has_same_bits);

/* One of the latest reorders, for as many threads: a descriptor that the caller owns, or NULL. */
dnnl_primitive_desc hr__dnnl_known_reorder(dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads);
/* Remembers a copy of a reorder's descriptor; does nothing without memory. */
void hr__dnnl_note_reorder(dnnl_const_primitive_desc desc, int threads);
/* Forgets all reorders. */
void hr__dnnl_forget_reorders(void);

#endif
