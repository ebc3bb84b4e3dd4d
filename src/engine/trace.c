/* Recording, hashing and cutting. The words of a record:
 *
 *   [0]  operation | int count << 32
 *   [1]  input count | output count << 32
 *   [2]  scalar count; then its kinds, a byte each, eight to a word
 *        ints
 *   then for each operand, inputs first:
 *   [0]  kind | is contiguous << 2 | rank << 8 | dtype << 16
 *        offset (unless contiguous), dims, strides (unless contiguous)
 */
#include "engine/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/hash.h"
#include "base/table.h"
#include "core/ir/dtype.h"
#include "core/ops/op.h"

enum { KIND_NONE = 0, KIND_VALUE = 1, KIND_SCALAR = 2, IS_CONTIGUOUS = 4 };
enum { OPERAND_WORDS_MAX = 2 + 2 * HR_RANK_MAX };

void hr__trace_init(hr_trace *trace, uint32_t stream) {
  *trace = (hr_trace){.stream = stream, .single_max = INT64_MAX};
}

void hr__trace_clear(hr_trace *trace) {
  hr__buffers_release(trace->buffers.count, trace->buffers.data);
  hr_vector_clear(&trace->words);
  hr_vector_clear(&trace->locals);
  hr_vector_clear(&trace->scalars);
  hr_vector_clear(&trace->records);
  hr_vector_clear(&trace->buffers);
  trace->pending_bytes = 0;
  trace->may_have_cats = false;
  hr_vector_clear(&trace->deferred);
  hr_vector_clear(&trace->marks);
  trace->has_marks = false;
  hr_vector_clear(&trace->origins);
}

void hr__trace_fini(hr_trace *trace) {
  hr__trace_clear(trace);
  hr_vector_fini(&trace->words);
  hr_vector_fini(&trace->locals);
  hr_vector_fini(&trace->scalars);
  hr_vector_fini(&trace->records);
  hr_vector_fini(&trace->buffers);
  hr_vector_fini(&trace->temporary_bytes);
  hr_vector_fini(&trace->renumbered);
  hr_vector_fini(&trace->shapes);
  hr_vector_fini(&trace->layouts);
  hr_vector_fini(&trace->cats);
  hr_vector_fini(&trace->deferred);
  hr_vector_fini(&trace->marks);
  hr_vector_fini(&trace->origins);
}

void hr__trace_mark(hr_trace *trace, size_t count, const hr_operation_mark *mark) {
  size_t all = trace->records.count;
  if (!hr_vector_reserve(&trace->marks, all)) {
    return;
  }
  while (trace->marks.count < all) {
    bool is_new = trace->marks.count + count >= all;
    trace->marks.data[trace->marks.count++] = is_new ? *mark : (hr_operation_mark){0};
  }
  trace->has_marks |= mark->correlation != 0 || mark->ns != 0;
}

void hr__trace_mark_each(hr_trace *trace, size_t count, const uint32_t *origins, const hr_operation_mark *mark) {
  size_t all = trace->records.count;
  if (!hr_vector_reserve(&trace->marks, all)) {
    return;
  }
  while (trace->marks.count < all - count) {
    trace->marks.data[trace->marks.count++] = (hr_operation_mark){0};
  }
  for (size_t i = 0; i < count; ++i) {
    trace->marks.data[all - count + i] = (hr_operation_mark){mark->correlation + origins[i], mark->ns};
  }
  trace->marks.count = all;
  trace->has_marks |= mark->correlation != 0 || mark->ns != 0;
}

/* ---- numbers of buffers ---- */

static uint64_t make_tag(const hr_trace *trace, uint32_t local) {
  return (uint64_t)trace->stream << 32 | local;
}

/* A tag of this stream is right if the list confirms it. Another stream's may have replaced ours: then search. */
uint32_t hr__trace_find(const hr_trace *trace, const hr_buffer *buffer) {
  uint64_t tag = atomic_load_explicit(&((hr_buffer *)buffer)->tag, memory_order_relaxed);
  uint32_t local = (uint32_t)tag;
  if (tag >> 32 == trace->stream) {
    return local < trace->buffers.count && trace->buffers.data[local] == buffer ? local : UINT32_MAX;
  }
  if (tag != 0) {
    for (size_t i = 0; i < trace->buffers.count; ++i) {
      if (trace->buffers.data[i] == buffer) {
        return (uint32_t)i;
      }
    }
  }
  return UINT32_MAX;
}

/* The bytes that a buffer adds to the pending ones. None if it alone would end the trace: such a value had better be
 * fused away, and may be larger than the memory. */
static inline int64_t pending_bytes_of(const hr_trace *trace, size_t bytes) {
  return (int64_t)bytes < trace->single_max ? (int64_t)bytes : 0;
}

/* The buffer's number, given now if it has none. There is room in the list. */
static inline uint32_t number_buffer(hr_trace *trace, hr_buffer *buffer) {
  uint32_t local = hr__trace_find(trace, buffer);
  if (local == UINT32_MAX) {
    local = (uint32_t)trace->buffers.count;
    hr__buffer_retain(buffer);
    trace->buffers.data[trace->buffers.count++] = buffer;
    if (hr__buffer_address(buffer) == NULL) {
      trace->pending_bytes += pending_bytes_of(trace, buffer->bytes);
    }
  }
  atomic_store_explicit(&buffer->tag, make_tag(trace, local), memory_order_relaxed);
  return local;
}

/* The next number for a buffer that no stream has used, whose reference the trace takes over. There is room in the
 * list. */
static inline uint32_t adopt_buffer(hr_trace *trace, hr_buffer *buffer) {
  uint32_t local = (uint32_t)trace->buffers.count;
  trace->buffers.data[trace->buffers.count++] = buffer;
  trace->pending_bytes += pending_bytes_of(trace, buffer->bytes);
  atomic_store_explicit(&buffer->tag, make_tag(trace, local), memory_order_relaxed);
  return local;
}

/* ---- recording ---- */

/* Writes the dims as those of a contiguous view; true if it is one. The strides of an empty view may be any. */
static inline bool encode_contiguous(const hr_view *view, uint64_t *words) {
  const int64_t *dims = view->dims, *strides = view->strides;
  int64_t stride = 1, differences = view->offset;
  for (size_t d = (size_t)view->rank; d-- > 0;) {
    words[d] = (uint64_t)dims[d];
    differences |= strides[d] ^ stride;
    stride *= dims[d];
  }
  return differences == 0;
}

static inline uint64_t *encode_view(hr_trace *trace, const hr_view *view, uint32_t local, uint64_t *word) {
  uint64_t kind = KIND_VALUE | (uint64_t)view->rank << 8 | (uint64_t)view->dtype << 16;
  int rank = view->rank;
  trace->locals.data[trace->locals.count++] = local;
  if (encode_contiguous(view, word + 1)) {
    word[0] = kind | IS_CONTIGUOUS;
    return word + 1 + rank;
  }
  word[0] = kind;
  word[1] = (uint64_t)view->offset;
  for (int d = 0; d < rank; ++d) {
    word[2 + d] = (uint64_t)view->dims[d];
    word[2 + rank + d] = (uint64_t)view->strides[d];
  }
  return word + 2 + 2 * rank;
}

static inline uint64_t *encode_operands(hr_trace *trace, int count, const hr_view *views, uint64_t *word) {
  for (int i = 0; i < count; ++i) {
    if (views[i].buffer != NULL) {
      word = encode_view(trace, &views[i], number_buffer(trace, views[i].buffer), word);
    } else if (views[i].scalar != NULL) {
      *word++ = KIND_SCALAR | (uint64_t)views[i].scalar->dtype << 16;
      trace->scalars.data[trace->scalars.count++] = *views[i].scalar;
    } else {
      *word++ = KIND_NONE;
    }
  }
  return word;
}

static uint64_t *encode_attrs(hr_trace *trace, const hr_attrs *attrs, uint64_t *word) {
  *word++ = (uint64_t)attrs->scalar_count;
  for (int i = 0; i < attrs->scalar_count; ++i) {
    if (i % 8 == 0) {
      *word++ = 0;
    }
    word[-1] |= (uint64_t)attrs->scalars[i].dtype << (8 * (i % 8));
    trace->scalars.data[trace->scalars.count++] = attrs->scalars[i];
  }
  if (attrs->int_count > 0) {
    memcpy(word, attrs->ints, (size_t)attrs->int_count * sizeof *word);
  }
  return word + attrs->int_count;
}

/* Makes room for one record, so that nothing can fail while it is written. */
static bool reserve(hr_trace *trace, const hr_attrs *attrs, size_t operand_count) {
  size_t words = 4 + (size_t)attrs->scalar_count / 8 + (size_t)attrs->int_count + operand_count * OPERAND_WORDS_MAX;
  return hr_vector_reserve(&trace->words, trace->words.count + words) &&
         hr_vector_reserve(&trace->locals, trace->locals.count + operand_count) &&
         hr_vector_reserve(&trace->scalars, trace->scalars.count + operand_count + (size_t)attrs->scalar_count) &&
         hr_vector_reserve(&trace->records, trace->records.count + 1) &&
         hr_vector_reserve(&trace->buffers, trace->buffers.count + operand_count);
}

/* The words before the operands. */
static inline uint64_t *encode_head(hr_trace *trace, hr_op op, const hr_attrs *attrs, int input_count, int output_count,
                                    uint64_t *word) {
  trace->may_have_cats |= op == HR_OP_CAT;
  *word++ = (uint64_t)op | (uint64_t)attrs->int_count << 32;
  *word++ = (uint64_t)(uint32_t)input_count | (uint64_t)output_count << 32;
  return encode_attrs(trace, attrs, word);
}

/* `word` is the end of the record. */
static inline void end_record(hr_trace *trace, const uint64_t *word) {
  trace->words.count = (size_t)(word - trace->words.data);
  trace->records.data[trace->records.count++] = (hr_record){
      .word_end = trace->words.count,
      .local_end = trace->locals.count,
      .scalar_end = trace->scalars.count,
  };
}

static hr_status no_memory(const hr_trace *trace) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for record %zu of a stream",
                        trace->records.count);
}

static const hr_attrs no_attrs;

hr_status hr__trace_record(hr_trace *trace, hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                           int output_count, const hr_view *outputs) {
  attrs = attrs != NULL ? attrs : &no_attrs;
  if (!reserve(trace, attrs, (size_t)input_count + (size_t)output_count)) {
    return no_memory(trace);
  }
  uint64_t *word = trace->words.data + trace->words.count;
  word = encode_head(trace, op, attrs, input_count, output_count, word);
  word = encode_operands(trace, input_count, inputs, word);
  word = encode_operands(trace, output_count, outputs, word);
  end_record(trace, word);
  return HR_OK;
}

hr_status hr__trace_record_new(hr_trace *trace, hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                               const hr_view *output) {
  attrs = attrs != NULL ? attrs : &no_attrs;
  if (!reserve(trace, attrs, (size_t)input_count + 1)) {
    return no_memory(trace);
  }
  uint64_t *word = trace->words.data + trace->words.count;
  word = encode_head(trace, op, attrs, input_count, 1, word);
  word = encode_operands(trace, input_count, inputs, word);
  hr__buffer_retain(output->buffer);
  word = encode_view(trace, output, adopt_buffer(trace, output->buffer), word);
  end_record(trace, word);
  return HR_OK;
}

/* encode_view for a row-major view of these dims. */
static inline uint64_t *encode_row_major(hr_trace *trace, const hr_view *view, const hr_view *like, uint32_t local,
                                         uint64_t *word) {
  if (view->offset != 0) {
    return encode_view(trace, view, local, word);
  }
  trace->locals.data[trace->locals.count++] = local;
  *word++ = KIND_VALUE | IS_CONTIGUOUS | (uint64_t)like->rank << 8 | (uint64_t)view->dtype << 16;
  for (int d = 0; d < like->rank; ++d) {
    *word++ = (uint64_t)like->dims[d];
  }
  return word;
}

hr_status hr__trace_record_alike(hr_trace *trace, hr_op op, int input_count, const hr_view *inputs,
                                 const hr_view *output) {
  if (!reserve(trace, &no_attrs, (size_t)input_count + 1)) {
    return no_memory(trace);
  }
  uint64_t *word = trace->words.data + trace->words.count;
  word[0] = (uint64_t)op, word[1] = (uint64_t)(uint32_t)input_count | (uint64_t)1 << 32, word[2] = 0;
  word += 3;
  for (int i = 0; i < input_count; ++i) {
    const hr_view *x = &inputs[i];
    if (x->buffer != NULL) {
      word = encode_row_major(trace, x, output, number_buffer(trace, x->buffer), word);
    } else {
      *word++ = KIND_SCALAR | (uint64_t)x->scalar->dtype << 16;
      trace->scalars.data[trace->scalars.count++] = *x->scalar;
    }
  }
  hr__buffer_retain(output->buffer);
  word = encode_row_major(trace, output, output, adopt_buffer(trace, output->buffer), word);
  end_record(trace, word);
  return HR_OK;
}

/* ---- appending ---- */

static bool reserve_part(hr_trace *trace, const hr_trace *part, size_t buffer_count) {
  return hr_vector_reserve(&trace->words, trace->words.count + part->words.count) &&
         hr_vector_reserve(&trace->locals, trace->locals.count + part->locals.count) &&
         hr_vector_reserve(&trace->scalars, trace->scalars.count + part->scalars.count) &&
         hr_vector_reserve(&trace->records, trace->records.count + part->records.count) &&
         hr_vector_reserve(&trace->buffers, trace->buffers.count + buffer_count) &&
         hr_vector_reserve(&trace->temporary_bytes, trace->buffers.count + buffer_count) &&
         hr_vector_reserve(&trace->renumbered, buffer_count);
}

static uint32_t number_temporary(hr_trace *trace, size_t bytes) {
  uint32_t local = (uint32_t)trace->buffers.count++;
  trace->buffers.data[local] = NULL;
  trace->temporary_bytes.data[local] = bytes;
  trace->pending_bytes += pending_bytes_of(trace, bytes);
  return local;
}

/* The part numbers its buffers by first use, and so does the trace: in that order they get their numbers here. */
hr_status hr__trace_append(hr_trace *trace, const hr_trace *part, size_t buffer_count, hr_buffer *const *buffers,
                           const size_t *bytes) {
  if (part->records.count == 0) {
    return HR_OK;
  }
  if (!reserve_part(trace, part, buffer_count)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu more records of a stream",
                          part->records.count);
  }
  trace->may_have_cats |= part->may_have_cats;
  uint32_t *map = trace->renumbered.data, *locals = trace->locals.data + trace->locals.count;
  for (size_t i = 0; i < buffer_count; ++i) {
    map[i] = buffers[i] != NULL ? number_buffer(trace, buffers[i]) : number_temporary(trace, bytes[i]);
  }
  for (size_t i = 0; i < part->locals.count; ++i) {
    locals[i] = map[part->locals.data[i]];
  }
  for (size_t i = 0; i < part->records.count; ++i) {
    hr_record record = part->records.data[i];
    record.word_end += trace->words.count;
    record.local_end += trace->locals.count;
    record.scalar_end += trace->scalars.count;
    trace->records.data[trace->records.count++] = record;
  }
  memcpy(trace->words.data + trace->words.count, part->words.data, part->words.count * sizeof(uint64_t));
  if (part->scalars.count > 0) {
    memcpy(trace->scalars.data + trace->scalars.count, part->scalars.data, part->scalars.count * sizeof(hr_scalar));
  }
  trace->words.count += part->words.count;
  trace->locals.count += part->locals.count;
  trace->scalars.count += part->scalars.count;
  return HR_OK;
}

hr_status hr__trace_make_buffers(hr_trace *trace, hr_device *device) {
  for (size_t i = 0; i < trace->buffers.count; ++i) {
    hr_buffer *made = NULL;
    if (trace->buffers.data[i] == NULL) {
      HR_RETURN_IF_ERROR(hr_buffer_create(device, trace->temporary_bytes.data[i], &made));
      atomic_store_explicit(&made->tag, make_tag(trace, (uint32_t)i), memory_order_relaxed);
      trace->buffers.data[i] = made;
    }
  }
  return HR_OK;
}

static hr_record begin_of(const hr_trace *trace, size_t i) {
  return i > 0 ? trace->records.data[i - 1] : (hr_record){0};
}

hr_status hr__trace_repeat(hr_trace *trace, const hr_trace *from, size_t i) {
  const hr_record begin = begin_of(from, i), end = from->records.data[i];
  size_t words = end.word_end - begin.word_end, locals = end.local_end - begin.local_end,
         scalars = end.scalar_end - begin.scalar_end;
  if (!hr_vector_reserve(&trace->words, trace->words.count + words) ||
      !hr_vector_reserve(&trace->locals, trace->locals.count + locals) ||
      !hr_vector_reserve(&trace->scalars, trace->scalars.count + scalars) ||
      !hr_vector_reserve(&trace->records, trace->records.count + 1) ||
      !hr_vector_reserve(&trace->buffers, trace->buffers.count + locals)) {
    return no_memory(trace);
  }
  memcpy(trace->words.data + trace->words.count, from->words.data + begin.word_end, words * sizeof(uint64_t));
  trace->words.count += words;
  for (size_t k = 0; k < locals; ++k) {
    hr_buffer *buffer = from->buffers.data[from->locals.data[begin.local_end + k]];
    trace->locals.data[trace->locals.count++] = number_buffer(trace, buffer);
  }
  for (size_t k = 0; k < scalars; ++k) {
    trace->scalars.data[trace->scalars.count++] = from->scalars.data[begin.scalar_end + k];
  }
  trace->records.data[trace->records.count++] =
      (hr_record){.word_end = trace->words.count, .local_end = trace->locals.count, .scalar_end = trace->scalars.count};
  return HR_OK;
}

/* ---- cutting ---- */

static uint64_t rotate(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

static uint64_t hash_record(const hr_trace *trace, size_t i) {
  size_t begin = i > 0 ? trace->records.data[i - 1].word_end : 0;
  return hr_hash_words(HR_HASH_SEED, trace->words.data + begin, trace->records.data[i].word_end - begin);
}

/* The hash of record i, counted from the trace's first; -7 is the oldest that is remembered. */
static uint64_t hash_at(const hr_trace *trace, int64_t i) {
  return i >= 0 ? hash_record(trace, (size_t)i) : trace->history[HR_TRACE_HISTORY - 1 + i];
}

/* The records up to one of them, as many as determine the position of a cut. */
typedef struct window {
  uint64_t recent[HR_TRACE_HISTORY]; /* hashes of record i at i modulo the length */
  uint64_t hash;
} window;

/* Adds record i, which follows the last one, and gives the window's hash. The sum is cyclic: each step rotates it by a
 * byte and adds a record. The oldest record, by then rotated by seven bytes, is removed by xor. */
static uint64_t advance(window *w, const hr_trace *trace, int64_t i) {
  uint64_t *slot = &w->recent[(size_t)i % HR_TRACE_HISTORY];
  w->hash ^= rotate(*slot, 8 * (HR_TRACE_HISTORY - 1));
  *slot = hash_at(trace, i);
  w->hash = rotate(w->hash, 8) ^ *slot;
  return hr_hash_mix(HR_HASH_SEED, w->hash);
}

static uintptr_t times_of(const hr_table *times, uint64_t hash) {
  return (uintptr_t)hr_table_get(times, hash);
}

/* Counts windows by their hashes; gives the largest number, or 0 without memory. */
static uintptr_t count_windows(const hr_trace *trace, int64_t first, hr_table *out_times) {
  window w = {.hash = 0};
  uintptr_t most = 0;
  for (int64_t i = first - (HR_TRACE_HISTORY - 1); i < (int64_t)trace->records.count; ++i) {
    uint64_t hash = advance(&w, trace, i);
    uintptr_t times = i >= first ? times_of(out_times, hash) + 1 : 0;
    if (times > 0 && !hr_table_put(out_times, hash, (void *)times)) {
      return 0;
    }
    most = times > most ? times : most;
  }
  return most;
}

/* The window with the largest hash is the same one in each iteration of a loop. In a loop inside of a loop, those of
 * the inner one would be cut at another place of the outer one each time: windows that are less than half as frequent
 * as others come first. */
size_t hr__trace_cut(const hr_trace *trace) {
  int64_t count = (int64_t)trace->records.count, first = count / 4, best = count - 1;
  hr_table times = {.count = 0};
  uintptr_t most = count_windows(trace, first, &times);
  window w = {.hash = 0};
  uint64_t best_hash = 0;
  bool is_best_rare = false;
  for (int64_t i = first - (HR_TRACE_HISTORY - 1); i < count; ++i) {
    uint64_t hash = advance(&w, trace, i);
    bool is_rare = 2 * times_of(&times, hash) < most;
    bool is_better = is_rare != is_best_rare ? is_rare : hash >= best_hash;
    if (i == first || (i > first && is_better)) {
      best_hash = hash;
      is_best_rare = is_rare;
      best = i;
    }
  }
  hr_table_fini(&times);
  return (size_t)best + 1;
}

/* Makes room for all records after the cut. */
static bool reserve_rest(hr_trace *trace, const hr_record *last, size_t count, hr_trace *rest) {
  size_t locals = trace->locals.count - last->local_end;
  return hr_vector_reserve(&rest->words, trace->words.count - last->word_end) &&
         hr_vector_reserve(&rest->locals, locals) &&
         hr_vector_reserve(&rest->scalars, trace->scalars.count - last->scalar_end) &&
         hr_vector_reserve(&rest->records, trace->records.count - count) &&
         hr_vector_reserve(&rest->buffers, locals < trace->buffers.count ? locals : trace->buffers.count) &&
         hr_vector_reserve(&trace->renumbered, trace->buffers.count);
}

/* The number of buffers that the records up to this one use: numbers go by first use, so they are the beginning of the
 * list. */
static uint32_t buffers_before(const hr_trace *trace, const hr_record *last) {
  uint32_t count = 0;
  for (size_t i = 0; i < last->local_end; ++i) {
    count = trace->locals.data[i] >= count ? trace->locals.data[i] + 1 : count;
  }
  return count;
}

/* Numbers the buffers after the cut in `rest`, and drops those used only there from the trace. */
static void split_buffers(hr_trace *trace, const hr_record *last, hr_trace *rest) {
  uint32_t *map = trace->renumbered.data, kept;
  memset(map, 0xff, trace->buffers.count * sizeof *map);
  for (size_t i = last->local_end; i < trace->locals.count; ++i) {
    uint32_t local = trace->locals.data[i];
    if (map[local] == UINT32_MAX) {
      hr_buffer *buffer = trace->buffers.data[local];
      map[local] = (uint32_t)rest->buffers.count;
      hr__buffer_retain(buffer);
      rest->buffers.data[rest->buffers.count++] = buffer;
      atomic_store_explicit(&buffer->tag, make_tag(rest, map[local]), memory_order_relaxed);
    }
    rest->locals.data[rest->locals.count++] = map[local];
  }
  kept = buffers_before(trace, last);
  for (size_t i = kept; i < trace->buffers.count; ++i) {
    if (hr__buffer_address(trace->buffers.data[i]) == NULL) {
      rest->pending_bytes += pending_bytes_of(rest, trace->buffers.data[i]->bytes);
    }
    hr_buffer_release(trace->buffers.data[i]);
  }
  trace->buffers.count = kept;
}

/* Copies the hashes before the cut to `rest`. */
static void split_history(const hr_trace *trace, size_t count, hr_trace *rest) {
  bool is_cut = count <= trace->records.count;
  for (int i = 0; i < HR_TRACE_HISTORY - 1; ++i) {
    rest->history[i] = is_cut ? hash_at(trace, (int64_t)count - (HR_TRACE_HISTORY - 1) + i) : 0;
  }
}

static void split_marks(hr_trace *trace, size_t count, hr_trace *rest) {
  if (trace->marks.count > count && hr_vector_reserve(&rest->marks, trace->marks.count - count)) {
    rest->marks.count = trace->marks.count - count;
    memcpy(rest->marks.data, trace->marks.data + count, rest->marks.count * sizeof *rest->marks.data);
    rest->has_marks = trace->has_marks;
    trace->marks.count = count;
  }
}

hr_status hr__trace_split(hr_trace *trace, size_t count, hr_trace *rest) {
  if (count >= trace->records.count) {
    split_history(trace, count, rest);
    return HR_OK;
  }
  const hr_record last = trace->records.data[count - 1];
  if (!reserve_rest(trace, &last, count, rest)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to cut a stream of %zu records",
                          trace->records.count);
  }
  split_history(trace, count, rest);
  rest->may_have_cats = trace->may_have_cats;
  for (size_t i = count; i < trace->records.count; ++i) {
    hr_record record = trace->records.data[i];
    record.word_end -= last.word_end;
    record.local_end -= last.local_end;
    record.scalar_end -= last.scalar_end;
    rest->records.data[rest->records.count++] = record;
  }
  rest->words.count = trace->words.count - last.word_end;
  memcpy(rest->words.data, trace->words.data + last.word_end, rest->words.count * sizeof(uint64_t));
  rest->scalars.count = trace->scalars.count - last.scalar_end;
  if (rest->scalars.count > 0) {
    memcpy(rest->scalars.data, trace->scalars.data + last.scalar_end, rest->scalars.count * sizeof(hr_scalar));
  }
  split_buffers(trace, &last, rest);
  split_marks(trace, count, rest);
  trace->words.count = last.word_end;
  trace->locals.count = last.local_end;
  trace->scalars.count = last.scalar_end;
  trace->records.count = count;
  return HR_OK;
}

/* ---- shortening ---- */

void hr__trace_lengthen(hr_trace *trace, const hr_trace_lengths *lengths) {
  trace->words.count = lengths->words;
  trace->locals.count = lengths->locals;
  trace->scalars.count = lengths->scalars;
  trace->records.count = lengths->records;
  trace->buffers.count = lengths->buffers;
}

hr_trace_lengths hr__trace_shorten(hr_trace *trace, size_t count) {
  hr_trace_lengths before = {trace->words.count, trace->locals.count, trace->scalars.count, trace->records.count,
                             trace->buffers.count};
  const hr_record *last = &trace->records.data[count - 1];
  hr_trace_lengths after = {last->word_end, last->local_end, last->scalar_end, count, buffers_before(trace, last)};
  hr__trace_lengthen(trace, &after);
  return before;
}

/* ---- keys ---- */

static uint64_t hash_locals(uint64_t hash, const uint32_t *locals, size_t count) {
  hash = hr_hash_mix(hash, count);
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    uint64_t first = (uint64_t)locals[i] << 32 | locals[i + 1], second = (uint64_t)locals[i + 2] << 32 | locals[i + 3];
    hash = hr__hash_fold(hash ^ first, second ^ HR_HASH_MULTIPLIER);
  }
  for (; i < count; ++i) {
    hash = hr_hash_mix(hash, locals[i]);
  }
  return hash;
}

/* The rows that a buffer of this layout has room for. */
static uint64_t room_of(const hr_buffer *buffer, uint64_t layout) {
  if (!hr_layout_is_rows(layout)) {
    return 0;
  }
  hr_rows_layout rows = hr_rows_unpack(layout);
  size_t capacity = atomic_load_explicit(&((hr_buffer *)buffer)->capacity, memory_order_relaxed);
  return capacity / ((size_t)(rows.outer * rows.inner) * rows.element_bytes);
}

/* Notes what the key has of a buffer: its shape, layout and room. */
static inline void note_buffer(hr_trace *trace, bool frees, size_t i) {
  hr_buffer *buffer = trace->buffers.data[i];
  bool is_dead = hr__buffer_holders(buffer) == 1, is_fresh = hr__buffer_address(buffer) == NULL;
  size_t capacity = trace->is_plain ? atomic_load_explicit(&buffer->capacity, memory_order_relaxed) : 0;
  size_t bytes = capacity > buffer->bytes ? capacity : buffer->bytes;
  bool is_given = frees && is_dead && !is_fresh && atomic_load_explicit(&buffer->is_donated, memory_order_relaxed);
  trace->shapes.data[i] = hr_shape_word(bytes, is_fresh && (is_dead || frees), is_dead, is_fresh) |
                          (is_given ? (uint64_t)HR_GROWTH_DONATED << HR_SHAPE_GROWTH : 0);
  trace->layouts.data[i] = trace->is_plain ? 0 : hr__buffer_layout(buffer);
  trace->layouts.data[trace->buffers.count + i] = room_of(buffer, trace->layouts.data[i]);
}

hr_status hr__trace_key(hr_trace *trace, bool frees, hr_key *out_key) {
  size_t count = trace->buffers.count;
  uint64_t any_layout = 0;
  if (!hr_vector_reserve(&trace->shapes, count + 1) || !hr_vector_reserve(&trace->layouts, 2 * count + 1)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the key of %zu records",
                          trace->records.count);
  }
  for (size_t i = 0; i < count; ++i) {
    if (trace->buffers.data[i] != NULL) {
      note_buffer(trace, frees, i);
      any_layout |= trace->layouts.data[i];
    } else {
      trace->shapes.data[i] = hr_shape_word(trace->temporary_bytes.data[i], true, true, true);
      trace->layouts.data[i] = trace->layouts.data[count + i] = 0;
    }
  }
  for (size_t i = 0; i < trace->deferred.count; ++i) {
    uint64_t *shape = &trace->shapes.data[trace->deferred.data[i]];
    *shape = hr_shape_word(hr_shape_bytes(*shape), true, true, true);
  }
  *out_key = (hr_key){
      .record_count = trace->records.count,
      .word_count = trace->words.count,
      .local_count = trace->locals.count,
      .buffer_count = count,
      .threads = trace->threads,
      .words = trace->words.data,
      .locals = trace->locals.data,
      .shapes = trace->shapes.data,
      .layouts = any_layout != 0 ? trace->layouts.data : NULL,
  };
  return HR_OK;
}

uint64_t hr__key_hash(hr_key *key) {
  if (key->hash == 0) {
    uint64_t hash = hr_hash_words(HR_HASH_SEED, key->words, key->word_count);
    hash = hash_locals(hash, key->locals, key->local_count);
    hash = key->layouts != NULL ? hr_hash_words(hash, key->layouts, 2 * key->buffer_count) : hash;
    hash = hr_hash_words(hash, key->shapes, key->buffer_count);
    hash = key->threads != 0 ? hr_hash_mix(hash, (uint64_t)key->threads) : hash;
    key->hash = hash != 0 ? hash : 1;
  }
  return key->hash;
}

/* Words of an operand behind its kind. */
static uint64_t words_behind(uint64_t kind) {
  uint64_t rank = kind >> 8 & 0xff;
  return (kind & 3) != KIND_VALUE ? 0 : (kind & IS_CONTIGUOUS) != 0 ? rank : 1 + 2 * rank;
}

/* Calls fn for each operand that is elements of a buffer, in order; `word` is behind its kind. */
static void each_value(const hr_key *key, void (*fn)(void *arg, uint64_t kind, const uint64_t *word, bool is_output),
                       void *arg) {
  const uint64_t *word = key->words;
  for (size_t i = 0; i < key->record_count; ++i) {
    uint64_t inputs = (uint32_t)word[1], operands = inputs + (word[1] >> 32);
    word += 3 + (word[2] + 7) / 8 + (word[0] >> 32);
    for (uint64_t j = 0; j < operands; ++j) {
      uint64_t kind = *word++;
      if ((kind & 3) == KIND_VALUE) {
        fn(arg, kind, word, j >= inputs);
      }
      word += words_behind(kind);
    }
  }
}

static uint64_t mix_numbers(uint64_t hash, const uint64_t *numbers, uint64_t count) {
  uint64_t classes = 1;
  for (uint64_t i = 0; i < count; ++i) {
    classes = classes << 2 | (uint64_t)hr__number_class((int64_t)numbers[i]);
    if ((i & 15) == 15) {
      hash = hr_hash_mix(hash, classes);
      classes = 1;
    }
  }
  return hr_hash_mix(hash, classes);
}

static uint64_t smaller(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* The dims of an operand of rank `*out_rank`, whose kind is at `word`. */
static const uint64_t *dims_at(const uint64_t *word, int *out_rank) {
  *out_rank = (int)(*word >> 8 & 0xff);
  return word + 1 + ((*word & IS_CONTIGUOUS) == 0);
}

/* What the windows of a pool leave of the plane, in each dim, and whether there are fewer of them than an element can
 * be in. The plane is input 0 or output 0, the larger one; the record's ints begin at `ints`, its operands behind. */
static uint64_t mix_windows(uint64_t hash, const uint64_t *ints, uint64_t int_count, uint64_t inputs) {
  const uint64_t *first = ints + int_count, *result = first;
  for (uint64_t j = 0; j < inputs; ++j) {
    result += 1 + words_behind(*result);
  }
  int n = (int)(int_count / 4), rank = 0, result_rank = 0;
  const uint64_t *a = dims_at(first, &rank), *b = dims_at(result, &result_rank);
  for (int i = 0; i < n && n <= rank && rank == result_rank; ++i) {
    uint64_t x = a[rank - n + i], y = b[rank - n + i], count = smaller(x, y), kernel = ints[i], stride = ints[n + i];
    hash = hr_hash_mix(hr_hash_mix(hash, x + y - count - stride * count), smaller(count, kernel));
  }
  return hash;
}

static bool has_trait(const uint64_t *record, hr_op_trait trait) {
  return (hr_op_table((hr_op)(uint32_t)record[0])->traits & trait) != 0;
}

bool hr__key_has_windows(const hr_key *key) {
  const uint64_t *word = key->words;
  bool has = false;
  for (size_t i = 0; !has && i < key->record_count; ++i) {
    uint64_t operands = (uint32_t)word[1] + (word[1] >> 32);
    has = has_trait(word, HR_TRAIT_WINDOWS);
    word += 3 + (word[2] + 7) / 8 + (word[0] >> 32);
    for (uint64_t j = 0; j < operands; ++j) {
      word += 1 + words_behind(*word);
    }
  }
  return has;
}

static uint64_t hash_structure_of_records(const hr_key *key, uint64_t hash) {
  const uint64_t *word = key->words;
  for (size_t i = 0; i < key->record_count; ++i) {
    uint64_t ints = word[0] >> 32, operands = (uint32_t)word[1] + (word[1] >> 32), head = 3 + (word[2] + 7) / 8;
    for (uint64_t j = 0; j < head; ++j) {
      hash = hr_hash_mix(hash, word[j]);
    }
    bool is_uneven = has_trait(word, HR_TRAIT_UNEVEN);
    hash = mix_numbers(hash, word + head, ints);
    hash = has_trait(word, HR_TRAIT_WINDOWS) ? mix_windows(hash, word + head, ints, (uint32_t)word[1]) : hash;
    word += head + ints;
    for (uint64_t j = 0; j < operands; ++j) {
      uint64_t kind = *word++, count = words_behind(kind);
      hash = mix_numbers(hr_hash_mix(hash, kind), word, count);
      hash = is_uneven ? hr_hash_words(hash, word, count) : hash;
      word += count;
    }
  }
  return hash;
}

/* ---- copies ---- */

hr_op hr__trace_op(const hr_trace *trace, size_t i) {
  return (hr_op)(uint32_t)trace->words.data[begin_of(trace, i).word_end];
}

static size_t bytes_of(const hr_trace *trace, uint32_t local) {
  const hr_buffer *buffer = trace->buffers.data[local];
  return buffer != NULL ? buffer->bytes : trace->temporary_bytes.data[local];
}

bool hr__trace_is_whole_copy(const hr_trace *trace, size_t i) {
  const hr_record begin = begin_of(trace, i), *end = &trace->records.data[i];
  const uint64_t *word = trace->words.data + begin.word_end;
  if ((hr_op)(uint32_t)word[0] != HR_OP_COPY || end->local_end - begin.local_end != 2 ||
      trace->locals.data[begin.local_end] == trace->locals.data[begin.local_end + 1]) {
    return false;
  }
  word += 3 + (word[2] + 7) / 8 + (word[0] >> 32);
  uint64_t from = word[0], to = word[1 + words_behind(from)], count = 1;
  int rank;
  const uint64_t *dims = dims_at(word + 1 + words_behind(from), &rank);
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return (to & IS_CONTIGUOUS) != 0 && from >> 16 == to >> 16 &&
         count * hr_dtype_size((hr_dtype)(to >> 16)) == bytes_of(trace, trace->locals.data[begin.local_end + 1]);
}

bool hr__trace_is_same_copy(const hr_trace *trace, size_t i) {
  const hr_record begin = begin_of(trace, i);
  const uint64_t *word = trace->words.data + begin.word_end;
  const uint32_t *locals = trace->locals.data + begin.local_end;
  return hr__trace_is_whole_copy(trace, i) && (word[3 + (word[2] + 7) / 8 + (word[0] >> 32)] & IS_CONTIGUOUS) != 0 &&
         bytes_of(trace, locals[0]) == bytes_of(trace, locals[1]);
}

void hr__trace_remove(hr_trace *trace, size_t i) {
  const hr_record begin = begin_of(trace, i), end = trace->records.data[i];
  size_t words = end.word_end - begin.word_end, locals = end.local_end - begin.local_end;
  size_t scalars = end.scalar_end - begin.scalar_end, after = trace->records.count - i - 1;
  memmove(trace->words.data + begin.word_end, trace->words.data + end.word_end,
          (trace->words.count - end.word_end) * sizeof *trace->words.data);
  memmove(trace->locals.data + begin.local_end, trace->locals.data + end.local_end,
          (trace->locals.count - end.local_end) * sizeof *trace->locals.data);
  if (scalars > 0) {
    memmove(trace->scalars.data + begin.scalar_end, trace->scalars.data + end.scalar_end,
            (trace->scalars.count - end.scalar_end) * sizeof *trace->scalars.data);
  }
  hr_record *record = &trace->records.data[i];
  memmove(record, record + 1, after * sizeof *record);
  for (size_t k = 0; k < after; ++k, ++record) {
    record->word_end -= words, record->local_end -= locals, record->scalar_end -= scalars;
  }
  trace->words.count -= words, trace->locals.count -= locals, trace->scalars.count -= scalars;
  --trace->records.count;
}

/* ---- cats ---- */

/* Reads a record of `cat` whose words begin at `word`; false if a view is another. */
static bool read_cat(const uint64_t *word, hr_cat_record *out) {
  uint64_t inputs = (uint32_t)word[1], both = KIND_VALUE | IS_CONTIGUOUS;
  out->dim = (int)word[3];
  word += 4;
  uint64_t from = *word;
  out->from_dims = (const int64_t *)word + 1;
  for (uint64_t i = 0; i < inputs; ++i) {
    word += 1 + words_behind(*word);
  }
  out->to_dims = (const int64_t *)word + 1;
  out->rank = (int)(*word >> 8 & 0xff);
  out->from_dtype = (hr_dtype)(from >> 16), out->to_dtype = (hr_dtype)(*word >> 16);
  return inputs > 1 && (from & both) == both && (*word & both) == both && (int)(from >> 8 & 0xff) == out->rank;
}

void hr__trace_each_cat(const hr_trace *trace, void (*fn)(void *arg, const hr_cat_record *cat), void *arg) {
  size_t word = 0, local = 0;
  for (size_t i = 0; trace->may_have_cats && i < trace->records.count; ++i) {
    const hr_record *record = &trace->records.data[i];
    hr_cat_record cat;
    if ((uint32_t)trace->words.data[word] == HR_OP_CAT && read_cat(trace->words.data + word, &cat)) {
      cat.buffers = (hr_cat){trace->locals.data[local], trace->locals.data[record->local_end - 1]};
      fn(arg, &cat);
    }
    word = record->word_end, local = record->local_end;
  }
}

/* ---- views of one buffer ---- */

/* An operand of the key, with those before it on the same buffer; -1: none. */
typedef struct use {
  uint64_t kind;
  const uint64_t *word; /* behind the kind */
  uint64_t view;        /* a hash of it */
  uint64_t views;       /* of this and all views before */
  int before, output_before;
  int first; /* the first use with this view */
  /* Of such a first use: */
  int first_before; /* the last other one before */
  int compared;     /* the last use that was compared with it, and whether they overlap */
  bool overlaps;
  bool is_output;
} use;

/* A buffer's uses. */
typedef struct used {
  uint64_t views;
  int last, last_output, last_first; /* and 1; 0: none */
} used;

enum { VIEWS_MAX = 32, USES_MAX = 512, STACK_USES = 1024, STACK_BUFFERS = 512 };

/* Equal for equal views; contiguous ones are alike if they have the same number of bytes. */
static uint64_t hash_view(uint64_t kind, const uint64_t *word) {
  uint64_t rank = kind >> 8 & 0xff, size = hr_dtype_size((hr_dtype)(kind >> 16));
  if ((kind & IS_CONTIGUOUS) == 0) {
    return hr_hash_words(size, word, 1 + 2 * rank);
  }
  for (uint64_t d = 0; d < rank; ++d) {
    size *= word[d];
  }
  return size;
}

static hr_operand read_view(const use *u, int64_t strides[HR_RANK_MAX]) {
  int rank = (int)(u->kind >> 8 & 0xff);
  bool is_contiguous = (u->kind & IS_CONTIGUOUS) != 0;
  const int64_t *numbers = (const int64_t *)u->word, *dims = is_contiguous ? numbers : numbers + 1;
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = is_contiguous ? stride : dims[rank + d];
    stride *= dims[d] > 0 ? dims[d] : 1;
  }
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = (hr_dtype)(u->kind >> 16),
                      .rank = rank,
                      .offset = is_contiguous ? 0 : numbers[0],
                      .dims = dims,
                      .strides = strides};
}

/* Adds use number `at`. Views are alike if they are among the last few that differ. */
static void append_use(use *uses, int at, used *b, uint64_t kind, const uint64_t *word, bool is_output) {
  uint64_t view = hash_view(kind, word);
  int first = b->last_first - 1;
  for (int n = 0; n < VIEWS_MAX && first >= 0 && uses[first].view != view; ++n) {
    first = uses[first].first_before;
  }
  bool is_first = first < 0 || uses[first].view != view;
  b->views = hr_hash_mix(b->views, view);
  uses[at] = (use){.kind = kind, .word = word, .view = view, .views = b->views, .is_output = is_output};
  uses[at].before = b->last - 1, uses[at].output_before = b->last_output - 1;
  uses[at].first = is_first ? at : first, uses[at].first_before = b->last_first - 1, uses[at].compared = -1;
  b->last = at + 1;
  b->last_output = is_output ? b->last : b->last_output;
  b->last_first = is_first ? b->last : b->last_first;
}

/* True if the buffer has different views. */
static bool has_views(const use *uses, const used *b) {
  return b->last_first > 0 && uses[b->last_first - 1].first_before >= 0;
}

/* Contiguous views begin at one place. */
static bool do_overlap(const use *a, const use *b) {
  int64_t strides[2][HR_RANK_MAX];
  bool are_contiguous = (a->kind & b->kind & IS_CONTIGUOUS) != 0;
  if (are_contiguous) {
    return true;
  }
  hr_operand x = read_view(a, strides[0]), y = read_view(b, strides[1]);
  return hr_operands_may_overlap(&x, &y);
}

/* Which earlier uses of the buffer the last one overlaps: a read the writes, a write all. Alike views are compared
 * once. Beyond many all views count. */
static uint64_t hash_overlaps_of(use *uses, int last, uint64_t hash) {
  int views = 0, count = 0;
  bool is_output = uses[last].is_output;
  for (int i = last; (i = is_output ? uses[i].before : uses[i].output_before) >= 0;) {
    use *other = &uses[uses[i].first];
    bool is_known = other->compared == last;
    views += !is_known;
    if (views > VIEWS_MAX || ++count > USES_MAX) {
      return hr_hash_mix(hash, uses[last].views);
    }
    other->overlaps = is_known ? other->overlaps : do_overlap(&uses[last], other);
    other->compared = last;
    hash = hr_hash_mix(hash, other->overlaps);
  }
  return hash;
}

/* The uses of a key, so far. */
typedef struct use_list {
  const hr_key *key;
  size_t count;
  use *uses;
  used *buffers;
} use_list;

static void add_use(void *arg, uint64_t kind, const uint64_t *word, bool is_output) {
  use_list *list = arg;
  used *b = &list->buffers[list->key->locals[list->count]];
  append_use(list->uses, (int)list->count++, b, kind, word, is_output);
}

/* Which views of written buffers overlap. The compiler orders their accesses by that. */
static uint64_t hash_overlaps(const hr_key *key, uint64_t hash) {
  use some_uses[STACK_USES], *uses = some_uses; /* of most keys: large blocks make the allocator tidy up */
  used some_buffers[STACK_BUFFERS], *buffers = some_buffers;
  bool fits = key->local_count <= STACK_USES && key->buffer_count <= STACK_BUFFERS;
  if (fits) {
    memset(buffers, 0, key->buffer_count * sizeof *buffers);
  } else {
    uses = hr_malloc((key->local_count + 1) * sizeof *uses);
    buffers = hr_calloc(key->buffer_count + 1, sizeof *buffers);
  }
  if (uses == NULL || buffers == NULL) {
    hash = hr_hash_words(hash, key->words, key->word_count); /* a structure of its own */
  } else {
    each_value(key, add_use, &(use_list){key, 0, uses, buffers});
    for (size_t i = 0; i < key->local_count; ++i) {
      const used *b = &buffers[key->locals[i]];
      hash = b->last_output > 0 && has_views(uses, b) ? hash_overlaps_of(uses, (int)i, hash) : hash;
    }
  }
  if (!fits) {
    hr_free(uses);
    hr_free(buffers);
  }
  return hash;
}

/* ---- overlaps of a key whose other words are known ---- */

typedef struct use_search {
  const hr_key *key;
  size_t varying_count, next; /* of the words that vary */
  const size_t *varying;
  hr_key_uses uses;             /* all */
  bool *is_written, *does_vary; /* of each buffer */
  bool failed;
} use_search;

static void note_use(void *arg, uint64_t kind, const uint64_t *word, bool is_output) {
  use_search *search = arg;
  size_t at = (size_t)(word - search->key->words), end = at + (size_t)words_behind(kind);
  uint32_t local = search->key->locals[search->uses.count];
  while (search->next < search->varying_count && search->varying[search->next] < at) {
    ++search->next;
  }
  search->does_vary[local] |= search->next < search->varying_count && search->varying[search->next] < end;
  search->is_written[local] |= is_output;
  search->failed |= !hr_vector_push(&search->uses, (hr_key_use){at - 1, local, is_output});
}

static int compare_uses(const void *a, const void *b) {
  const hr_key_use *x = a, *y = b;
  return x->local != y->local ? (x->local > y->local) - (x->local < y->local)
                              : (x->word > y->word) - (x->word < y->word);
}

bool hr__key_find_uses(const hr_key *key, size_t varying_count, const size_t *varying, hr_key_uses *out_uses) {
  use_search search = {.key = key, .varying_count = varying_count, .varying = varying};
  search.is_written = hr_calloc(2 * key->buffer_count + 1, sizeof *search.is_written);
  search.failed = search.is_written == NULL || !hr_vector_reserve(&search.uses, key->local_count + 1);
  if (!search.failed) {
    search.does_vary = search.is_written + key->buffer_count;
    each_value(key, note_use, &search);
    size_t kept = 0;
    for (size_t i = 0; i < search.uses.count; ++i) {
      uint32_t local = search.uses.data[i].local;
      search.uses.data[kept] = search.uses.data[i];
      kept += search.is_written[local] && search.does_vary[local];
    }
    search.uses.count = kept;
    qsort(search.uses.data, kept, sizeof *search.uses.data, compare_uses);
  }
  hr_free(search.is_written);
  out_uses->data = search.uses.data, out_uses->count = search.uses.count, out_uses->capacity = search.uses.capacity;
  return !search.failed;
}

/* The uses of one buffer; true if their views differ. */
static bool read_uses(const hr_key *key, const hr_key_use *from, size_t count, use *out) {
  used buffer = {0};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t *word = key->words + from[i].word;
    append_use(out, (int)i, &buffer, word[0], word + 1, from[i].is_output);
  }
  return has_views(out, &buffer);
}

size_t hr__key_use_words(const hr_key *key, const hr_key_use *one) {
  return 1 + (size_t)words_behind(key->words[one->word]);
}

uint64_t hr__key_hash_uses(const hr_key *key, const hr_key_uses *list) {
  use some[STACK_USES], *uses = list->count <= STACK_USES ? some : hr_malloc(list->count * sizeof *uses);
  uint64_t hash = HR_HASH_SEED;
  size_t count;
  for (size_t i = 0; uses != NULL && i < list->count; i += count) {
    const hr_key_use *first = &list->data[i];
    for (count = 1; i + count < list->count && first[count].local == first->local; ++count) {
    }
    hash = hr_hash_mix(hash, first->local);
    for (size_t k = 0, differ = read_uses(key, first, count, uses); differ && k < count; ++k) {
      hash = hash_overlaps_of(uses, (int)k, hash);
    }
  }
  hash = uses != NULL ? hash | 1 : 0;
  if (uses != some) {
    hr_free(uses);
  }
  return hash;
}

uint64_t hr__key_structure(hr_key *key) {
  if (key->structure != 0) {
    return key->structure;
  }
  uint64_t hash = hash_structure_of_records(key, hash_locals(HR_HASH_SEED, key->locals, key->local_count));
  hash = hash_overlaps(key, hash);
  for (size_t i = 0; i < key->buffer_count; ++i) {
    hash = hr_hash_mix(hash, hr__key_buffer_class(key->shapes[i], key->layouts != NULL ? key->layouts[i] : 0));
  }
  hash = key->threads != 0 ? hr_hash_mix(hash, (uint64_t)key->threads) : hash;
  key->structure = hash != 0 ? hash : 1;
  return key->structure;
}

/* ---- decoding ---- */

typedef struct decoder {
  const hr_key *key;
  const uint64_t *word;
  size_t local;
  hr_program *program;
} decoder;

/* A scalar kind in the program; the order is that of the trace's values. */
static uint32_t add_argument(decoder *d, uint64_t dtype) {
  return hr_program_add_argument(d->program, (hr_dtype)dtype);
}

static bool decode_operand(decoder *d, hr_operand *out_operand) {
  uint64_t head = *d->word++;
  *out_operand = (hr_operand){.fill = HR_NO_SCALAR, .dtype = (hr_dtype)(head >> 16)};
  if ((head & 3) == KIND_NONE) {
    return true;
  }
  if ((head & 3) == KIND_SCALAR) {
    out_operand->kind = HR_OPERAND_SCALAR;
    out_operand->index = add_argument(d, head >> 16);
    return out_operand->index != UINT32_MAX;
  }
  int rank = (int)(head >> 8 & 0xff);
  bool contiguous = (head & IS_CONTIGUOUS) != 0;
  out_operand->kind = HR_OPERAND_VALUE;
  out_operand->index = d->key->locals[d->local++];
  out_operand->rank = rank;
  out_operand->offset = contiguous ? 0 : (int64_t)*d->word++;
  out_operand->dims = (const int64_t *)d->word;
  d->word += rank;
  if (!contiguous) {
    out_operand->strides = (const int64_t *)d->word;
    d->word += rank;
    return true;
  }
  int64_t *strides = hr_arena_alloc(&d->program->arena, (size_t)rank * sizeof *strides), stride = 1;
  for (int i = rank - 1; strides != NULL && i >= 0; --i) {
    strides[i] = stride;
    stride *= out_operand->dims[i] > 0 ? out_operand->dims[i] : 1;
  }
  out_operand->strides = strides;
  return strides != NULL;
}

static bool decode_operands(decoder *d, int count, hr_operand **out_operands) {
  hr_operand *operands = hr_arena_alloc(&d->program->arena, (size_t)count * sizeof *operands);
  *out_operands = operands;
  if (operands == NULL) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    if (!decode_operand(d, &operands[i])) {
      return false;
    }
  }
  return true;
}

static bool decode_record(decoder *d, uint32_t origin) {
  hr_node node = {.op = (hr_op)(uint32_t)d->word[0], .int_count = (int)(d->word[0] >> 32), .origin = origin};
  node.input_count = (int)(uint32_t)d->word[1];
  node.output_count = (int)(d->word[1] >> 32);
  node.scalar_count = (int)d->word[2];
  d->word += 3;
  node.scalar_base = (uint32_t)d->program->scalar_count;
  for (int i = 0; i < node.scalar_count; ++i) {
    if (add_argument(d, d->word[i / 8] >> (8 * (i % 8)) & 0xff) == UINT32_MAX) {
      return false;
    }
  }
  d->word += (node.scalar_count + 7) / 8;
  node.ints = (const int64_t *)d->word;
  d->word += node.int_count;
  return decode_operands(d, node.input_count, &node.inputs) && decode_operands(d, node.output_count, &node.outputs) &&
         hr_program_append_own(d->program, &node);
}

static void decode_layout(const hr_key *key, size_t i, hr_program_buffer *buffer) {
  uint64_t word = key->layouts != NULL ? key->layouts[i] : 0;
  if (hr_layout_is_rows(word)) {
    hr_rows_layout rows = hr_rows_unpack(word);
    buffer->rows = word;
    buffer->room = key->layouts[key->buffer_count + i] * (uint64_t)(rows.outer * rows.inner) * rows.element_bytes;
  } else {
    buffer->layout = word;
    buffer->offered_room = key->layouts != NULL ? key->layouts[key->buffer_count + i] : 0;
  }
}

hr_status hr__key_decode(const hr_key *key, hr_program *out_program) {
  decoder d = {.key = key, .word = key->words, .program = out_program};
  hr_program_init(out_program);
  bool ok = hr_program_reserve(out_program, (int)key->record_count, (int)key->buffer_count, (int)key->record_count);
  for (size_t i = 0; ok && i < key->buffer_count; ++i) {
    uint64_t shape = key->shapes[i];
    ok = hr_program_add_buffer(out_program, hr_shape_bytes(shape), hr_shape_is_dead(shape), hr_shape_is_fresh(shape)) !=
         UINT32_MAX;
    if (ok) {
      out_program->buffers[i].is_free = hr_shape_is_free(shape);
      out_program->buffers[i].growth = hr_shape_growth(shape);
      decode_layout(key, i, &out_program->buffers[i]);
    }
  }
  out_program->bound_count = (int)key->buffer_count;
  for (size_t i = 0; ok && i < key->record_count; ++i) {
    ok = decode_record(&d, (uint32_t)i);
  }
  if (!ok) {
    hr_program_fini(out_program);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a program of %zu nodes", key->record_count);
  }
  return HR_OK;
}

typedef struct use_call {
  const hr_key *key;
  size_t local;
  void (*fn)(void *arg, uint32_t local, bool is_output);
  void *arg;
} use_call;

static void call_use(void *arg, uint64_t kind, const uint64_t *word, bool is_output) {
  (void)kind, (void)word;
  use_call *call = arg;
  call->fn(call->arg, call->key->locals[call->local++], is_output);
}

void hr__key_each_use(const hr_key *key, void (*fn)(void *arg, uint32_t local, bool is_output), void *arg) {
  each_value(key, call_use, &(use_call){key, 0, fn, arg});
}
