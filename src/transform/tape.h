/* tape.h: the records that a tape keeps.
 *
 * A kept record has the description of its operands, without references to their buffers: a buffer is identified by its
 * serial number. Only values that a rule reads (letters of gradients.def) are retained. So intermediate results that no
 * rule reads stay dead for the compiler, which keeps them in registers.
 *
 * The record of a function with a gradient of its own (custom.c) has the function's inputs and outputs, and op CALL.
 */
#ifndef HEADRACE_TRANSFORM_TAPE_H_
#define HEADRACE_TRANSFORM_TAPE_H_

#include "base/table.h"
#include "base/vector.h"
#include "functional/functions.h"
#include "headrace/hook.h"
#include "headrace/transform.h"

/* A value that a rule will read: a view of the buffer in which it was made, until a record overwrites that; then a
 * copy. Records that read the same value share it. */
typedef struct hr__kept {
  hr_tensor tensor; /* with a reference of its buffer */
  uint64_t serial;  /* the key of its chain; 0: a copy, which is in none */
  int users;
  struct hr__kept *next; /* of the same buffer */
} hr__kept;

/* An operand of a kept record. Absent ones are zeroed. */
typedef struct hr__operand {
  uint64_t serial; /* of its buffer; 0: a number, or absent */
  size_t bytes;    /* of its buffer */
  hr_view view;    /* without a buffer; its scalar is `number` */
  hr_scalar number;
  bool is_active;   /* an input that depends on watched tensors */
  hr__kept *kept;   /* NULL: no rule reads it */
  hr__kept *before; /* of an output, before the record; NULL: no rule reads it */
} hr__operand;

typedef struct hr__custom hr__custom;

typedef struct hr__taped {
  hr_op op;           /* NONE: the only output is watched here */
  hr__custom *custom; /* of CALL, with a reference */
  hr_attrs attrs;
  int input_count, output_count;
  hr__operand *inputs, *outputs;
} hr__taped;

struct hr_tape {
  hr_hook hook; /* first */
  hr_stream *stream;
  bool is_ended;
  bool is_paused;     /* the records are the tape's own */
  int constants;      /* not 0: so many functions with a gradient of their own run, whose records are constant */
  const void *thread; /* which began the tape */
  HR_VECTOR(hr__taped *) records;
  hr_table active; /* by serial number: the buffer depends on watched tensors */
  hr_table kept;   /* by serial number: chains of values that a record may overwrite */
};

/* The calling thread's identity. */
const void *hr__tape_thread(void);
/* Changes `constants` of the thread's tapes, from this hook of a stream on. */
void hr__tapes_add_constants(hr_hook *hook, const void *thread, int change);
/* Keeps the record of a function on a tape, if an input depends on watched tensors. Does nothing for other hooks. */
hr_status hr__tape_keep_custom(hr_hook *hook, hr__custom *custom, const hr_hook_record *record);

/* A function on tapes, with one user. Releases the spec's `arg` if it fails. */
hr_status hr__custom_create(const hr_custom_spec *spec, hr__custom **out_custom);
const hr_custom_spec *hr__custom_spec(const hr__custom *custom);
/* Keeps the record of a function on the tapes from `top` down to the function in which it runs: for tapes below that it
 * is constant. */
hr_status hr__custom_keep(hr_hook *top, const void *thread, hr__custom *custom, const hr_hook_record *record);
void hr__custom_retain(hr__custom *custom);
void hr__custom_release(hr__custom *custom);

/* True for dtypes that have gradients. */
static inline bool hr__is_differentiable(hr_dtype dtype) {
  return hr_dtype_is_complex(dtype) || (hr_dtype_is_real(dtype) && !hr_dtype_is_float8(dtype));
}

#endif
