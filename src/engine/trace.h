/* trace.h: the pending operations of a stream: one trace from one commit to the next.
 *
 * A record is a run of 64-bit words that describes an operation except for its buffers and the values of its scalars:
 * the row, counts, ints and kinds of scalars. Each operand adds its dtype, rank and dims, and unless it is contiguous
 * from its buffer's start also offset and strides. Buffers go to an array of their own, as numbers by first use in the
 * trace; scalar values go to a third. So a record's words (its *content*) are the same at any position, and the numbers
 * of a loop's buffers are the same in each of its iterations.
 *
 *   words     | add 2>1 | f32 [4,8] | f32 [8] +0 {1} | f32 [4,8] | relu ...
 *   locals                  0          1                 2
 *   scalars                                                           (values of attributes first, then of operands)
 *
 * The *key* of the first n records consists of their words, the numbers of their buffers, and for each buffer
 *   - its size,
 *   - flags for dead and fresh,
 *   - a flag that allows the compiler to choose its layout,
 *   - its present layout, and the rows that it has room for if they are more than it has,
 *   - permission to grow (growth.h),
 * and the number of threads, for which libraries prepare their objects.
 * Nothing is freed before the trace ends, and its arrays are kept: a loop records without malloc.
 *
 * The trace holds one reference of each of its buffers. Temporaries of parts are no buffers: nothing else refers to
 * them, and programs have memory of their own for what dies in them. Threads: the stream's lock.
 */
#ifndef HEADRACE_ENGINE_TRACE_H_
#define HEADRACE_ENGINE_TRACE_H_

#include "base/vector.h"
#include "core/ir/program.h"
#include "runtime/buffer.h"

enum { HR_TRACE_HISTORY = 8 }; /* records that determine the position of a cut */

typedef struct hr_record {
  size_t word_end, local_end, scalar_end; /* in the arrays of the trace */
} hr_record;

/* The result `to` of a cat whose first piece is the whole buffer `from` (growth.h). */
typedef struct hr_cat {
  uint32_t from, to;
} hr_cat;

/* Beside a record, never in the key: what profiles know of it. */
typedef struct hr_operation_mark {
  uint64_t correlation; /* the frontend's number, or 0 */
  int64_t ns;           /* when it was recorded; 0: not noted */
} hr_operation_mark;

typedef struct hr_trace {
  uint32_t stream; /* number of the stream, not 0: half of a buffer's tag */
  bool is_plain;   /* its records see memory in its physical layout */
  int threads;     /* that its programs use at most; 0: all of the process */
  HR_VECTOR(uint64_t) words;
  HR_VECTOR(uint32_t) locals;
  HR_VECTOR(hr_scalar) scalars;
  HR_VECTOR(hr_record) records;
  HR_VECTOR(hr_buffer *) buffers;      /* NULL: a temporary of a part, which is dead and fresh, .. */
  HR_VECTOR(size_t) temporary_bytes;   /* .. of so many bytes; has room for a number of each buffer */
  HR_VECTOR(uint32_t) renumbered;      /* scratch: a word for each buffer */
  HR_VECTOR(uint64_t) shapes, layouts; /* scratch of hr__trace_key: a word for each buffer; two layouts */
  HR_VECTOR(hr_cat) cats;              /* growth.h's, from the last key to its hand-over */
  bool may_have_cats;                  /* false: no record is a cat */
  HR_VECTOR(uint32_t) deferred;        /* buffers that count as dead: their last copies are deferred */
  HR_VECTOR(hr_operation_mark) marks;  /* of the first records; none unless a profile is started */
  bool has_marks;                      /* some mark is not 0 */
  HR_VECTOR(uint32_t) origins;         /* of a capture's first records (hr_capture_origin), or none */
  int64_t pending_bytes;               /* of its buffers that had no memory when they were first used, ... */
  int64_t single_max;                  /* ... and were smaller than this each */
  /* Hashes of the records before the first one, oldest first, if the stream was cut there; 0 after a full commit. */
  uint64_t history[HR_TRACE_HISTORY - 1];
} hr_trace;

/* The key that a compiled program must match: borrowed from a trace. */
typedef struct hr_key {
  uint64_t hash, structure; /* 0: not computed yet (hr__key_hash, hr__key_structure) */
  size_t record_count, word_count, local_count, buffer_count;
  int threads; /* at most; 0: all of the process */
  const uint64_t *words;
  const uint32_t *locals;
  const uint64_t *shapes; /* hr_shape_word of each buffer */
  /* Of each buffer the word (hr_layout_pack, hr_rows_pack), and after all of these how many rows each has room for if
   * it has the latter, else the bytes of room that a cat may give it (growth.h). NULL: all have the default layout, and
   * no room is given. */
  const uint64_t *layouts;
} hr_key;

enum { HR_SHAPE_GROWTH = 3, HR_SHAPE_BITS = 5 }; /* where hr_growth begins; bits of all flags */

static inline uint64_t hr_shape_word(size_t bytes, bool is_free, bool is_dead, bool is_fresh) {
  return (uint64_t)bytes << HR_SHAPE_BITS | (uint64_t)is_free << 2 | (uint64_t)is_dead << 1 | (uint64_t)is_fresh;
}
static inline size_t hr_shape_bytes(uint64_t word) {
  return (size_t)(word >> HR_SHAPE_BITS);
}
static inline hr_growth hr_shape_growth(uint64_t word) {
  return (hr_growth)(word >> HR_SHAPE_GROWTH & 3);
}
static inline bool hr_shape_is_free(uint64_t word) {
  return (word & 4) != 0;
}
static inline bool hr_shape_is_dead(uint64_t word) {
  return (word & 2) != 0;
}
static inline bool hr_shape_is_fresh(uint64_t word) {
  return (word & 1) != 0;
}

void hr__trace_init(hr_trace *trace, uint32_t stream);
void hr__trace_fini(hr_trace *trace);
/* Drops all records and references; keeps the arrays. */
void hr__trace_clear(hr_trace *trace);

/* Appends a checked operation. On failure (memory) nothing has changed. */
HR_MUST_USE hr_status hr__trace_record(hr_trace *trace, hr_op op, const hr_attrs *attrs, int input_count,
                                       const hr_view *inputs, int output_count, const hr_view *outputs);
/* The same with one output, in a buffer that nothing has used yet, and that only the caller refers to. */
HR_MUST_USE hr_status hr__trace_record_new(hr_trace *trace, hr_op op, const hr_attrs *attrs, int input_count,
                                           const hr_view *inputs, const hr_view *output);
/* The same for row-major tensors with the dims of the first one, and numbers, without attributes. */
HR_MUST_USE hr_status hr__trace_record_alike(hr_trace *trace, hr_op op, int input_count, const hr_view *inputs,
                                             const hr_view *output);
/* Appends all records of `part`, with `buffers[i]` in the place of its buffer i; NULL: a temporary of bytes[i] bytes.
 * On failure nothing has changed. */
HR_MUST_USE hr_status hr__trace_append(hr_trace *trace, const hr_trace *part, size_t buffer_count,
                                       hr_buffer *const *buffers, const size_t *bytes);
/* Makes buffers of the temporaries, to which others may then refer. After a failure some are still none. */
HR_MUST_USE hr_status hr__trace_make_buffers(hr_trace *trace, hr_device *device);
/* Appends record i of `from`, a trace of the same stream. On failure nothing has changed. */
HR_MUST_USE hr_status hr__trace_repeat(hr_trace *trace, const hr_trace *from, size_t i);
/* Marks the last `count` records; those before that have no mark get zeros. Without memory they stay unmarked. */
void hr__trace_mark(hr_trace *trace, size_t count, const hr_operation_mark *mark);
/* Marks the last `count` records, each with its origin added to the mark's correlation. */
void hr__trace_mark_each(hr_trace *trace, size_t count, const uint32_t *origins, const hr_operation_mark *mark);
/* The buffer's number, or UINT32_MAX when no pending record uses it. */
uint32_t hr__trace_find(const hr_trace *trace, const hr_buffer *buffer);

/* The number of records to commit when the trace is at its limit. The cut is after the record, among the last three
 * quarters, whose hash over the last eight is the highest, the last one on ties. So it is at the same operation in each
 * iteration of a loop, independent of earlier records. At least 1. */
size_t hr__trace_cut(const hr_trace *trace);
/* Moves the records from number `count` on to `rest` (empty, of the same stream), numbered from its start. If there are
 * such records, no temporary may be without a buffer (hr__trace_make_buffers). On failure nothing has changed. */
HR_MUST_USE hr_status hr__trace_split(hr_trace *trace, size_t count, hr_trace *rest);

/* Hides the records from number `count` > 0 on, and the buffers that they alone use, until they are shown again;
 * returns the former lengths of the arrays. */
typedef struct hr_trace_lengths {
  size_t words, locals, scalars, records, buffers;
} hr_trace_lengths;
hr_trace_lengths hr__trace_shorten(hr_trace *trace, size_t count);
void hr__trace_lengthen(hr_trace *trace, const hr_trace_lengths *lengths);

/* Determines which buffers are dead and fresh now, and returns the key of all records; valid until the trace changes.
 * `frees`: the compiler may also choose the layout of fresh buffers that live on. */
HR_MUST_USE hr_status hr__trace_key(hr_trace *trace, bool frees, hr_key *out_key);
/* A record of `cat`. The first piece and the result are contiguous views from the begin of their buffers. */
typedef struct hr_cat_record {
  hr_cat buffers;
  hr_dtype from_dtype, to_dtype;
  int rank, dim;
  const int64_t *from_dims, *to_dims; /* `rank` each */
} hr_cat_record;
/* Calls fn for each such record of the trace, in order. */
void hr__trace_each_cat(const hr_trace *trace, void (*fn)(void *arg, const hr_cat_record *cat), void *arg);

/* The operation of record i. */
hr_op hr__trace_op(const hr_trace *trace, size_t i);
/* Drops record i. Its buffers stay, and keep their numbers. */
void hr__trace_remove(hr_trace *trace, size_t i);
/* True if record i is a copy from a buffer to all of another one, without a change of dtype. Its locals are the two. */
bool hr__trace_is_whole_copy(const hr_trace *trace, size_t i);
/* True if it also copies all of the first one, in its order: both have the same bytes afterwards. */
bool hr__trace_is_same_copy(const hr_trace *trace, size_t i);

/* The hash of the whole key, not 0; kept in the key. */
uint64_t hr__key_hash(hr_key *key);
/* The class of a number of a structure: 0, 1, 2 (negative) or 3 (more than 1). */
static inline int hr__number_class(int64_t number) {
  return number < 0 ? 2 : number > 1 ? 3 : (int)number;
}
/* The hash of the key's structure: of all but its numbers (ints, dims, strides, offsets, sizes), of which only the
 * class counts: negative, 0, 1, or more. Part of it is which views of a written buffer overlap, and all sizes of rows
 * with the trait UNEVEN, and what windows leave of a plane. Not 0; kept in the key. */
uint64_t hr__key_structure(hr_key *key);
/* True if a record's trait is WINDOWS. */
bool hr__key_has_windows(const hr_key *key);
/* What counts of a buffer's shape and layout. */
static inline uint64_t hr__key_buffer_class(uint64_t shape, uint64_t layout) {
  uint64_t flags = shape & ((1u << HR_SHAPE_BITS) - 1);
  return flags << 2 | (layout == 0 ? 0 : hr_layout_is_rows(layout) ? 2 : 1);
}

/* An operand on a written buffer. */
typedef struct hr_key_use {
  size_t word; /* of the key, at its kind */
  uint32_t local;
  bool is_output;
} hr_key_use;

/* The uses of written buffers whose views vary among keys of one structure, buffer after buffer: all that has to be
 * compared of overlaps if the other words are equal. */
typedef HR_VECTOR(hr_key_use) hr_key_uses;

/* Lists them, for the words that vary, in ascending order; false when memory is out. The caller frees the list. */
HR_MUST_USE bool hr__key_find_uses(const hr_key *key, size_t varying_count, const size_t *varying,
                                   hr_key_uses *out_uses);
/* The number of a use's words, from `one->word` on. */
size_t hr__key_use_words(const hr_key *key, const hr_key_use *one);
/* A hash of which of the uses overlap; 0 when memory is out. */
uint64_t hr__key_hash_uses(const hr_key *key, const hr_key_uses *uses);

/* The records as a program in stream form; `out_program` is initialised here. Its dims, strides and ints are the key's:
 * the key's memory outlives it. */
HR_MUST_USE hr_status hr__key_decode(const hr_key *key, hr_program *out_program);

/* Calls fn for the number of each buffer that a record of the key reads or writes, in order; numbers repeat. */
void hr__key_each_use(const hr_key *key, void (*fn)(void *arg, uint32_t local, bool is_output), void *arg);

#endif
