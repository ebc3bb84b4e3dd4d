/* vmap.h: buffers that stand for many examples, and the rules by which their records become records of all examples.
 *
 * A record in the mapped function sees one example: a buffer of its bytes, which never gets memory. In place of it
 * stands a buffer with the bytes of all examples:
 *
 *   example k of byte i   byte base + k * pitch + i
 *
 * A view of an example becomes a view of all by one more leading dim with the stride `pitch`; a tensor that is the same
 * in all examples by one with the stride 0. So views, broadcasts, slices and in-place operations need no rules of their
 * own. The rows' rules are listed in vmap.def.
 */
#ifndef HEADRACE_TRANSFORM_VMAP_H_
#define HEADRACE_TRANSFORM_VMAP_H_

#include "base/table.h"
#include "core/ops/op.h"
#include "headrace/hook.h"
#include "headrace/part.h"
#include "headrace/transform.h"
#include "transform/tape.h"

/* A buffer that differs between examples. */
typedef struct hr__mapped {
  hr_buffer *example; /* a reference: what the mapped function has */
  hr_buffer *all;     /* a reference */
  int64_t base, pitch;
  bool is_shared; /* with the caller: never written */
} hr__mapped;

struct hr_vmap {
  hr_hook hook; /* first */
  hr_stream *stream;
  int64_t size;      /* the number of examples */
  hr_table mapped;   /* by the serial number of the example's buffer */
  hr_table written;  /* by serial number: a newer buffer that is the same in all examples and has contents */
  uint64_t first;    /* serial number: newer buffers were made by the mapped function */
  size_t sweep_at;   /* the number of mapped buffers above which those that nobody holds are released */
  hr_status failure; /* of who reads an example */
};

/* An operand of a record: a view of example 0 in the buffer of all examples, and the distance of examples, in elements;
 * 0 if it is the same in all. */
typedef struct hr__operand_of_all {
  hr_view view;
  int64_t stride;
  bool is_mapped;
} hr__operand_of_all;

/* A record of one example: inputs as they are before the record, and outputs, all of which are mapped. */
typedef struct hr__record_of_all {
  hr_vmap *vmap;
  hr_op op;
  const hr_attrs *attrs; /* not NULL */
  int input_count, output_count;
  const hr__operand_of_all *inputs, *outputs; /* absent ones and numbers have no buffer */
} hr__record_of_all;

/* True if the hook is a vmap, and the record uses its examples. */
bool hr__vmap_concerns(const hr_hook *hook, const hr_hook_record *record);

/* The same record for all examples, on the tapes below this vmap: hr__custom_keep. All outputs are mapped then. */
hr_status hr__vmap_keep_custom(hr_hook *hook, const void *thread, hr__custom *custom, const hr_hook_record *record);
/* Makes the outputs of a record examples, with the contents that they have. */
hr_status hr__vmap_map_outputs(hr_vmap *vmap, const hr_hook_record *record);

/* Records it for all examples. */
hr_status hr__vmap_record(const hr__record_of_all *record);

#endif
