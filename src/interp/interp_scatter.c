/* interp_scatter.c: kernels that store to indexed positions: index_add, index_copy, scatter, put, counts, gradients of
 * embeddings.
 *
 *     r0:f32 = load a0:f32+0{64,1}      r2:i64 = load a2:i64+0{1,0}
 *     r1:f32 = mul.f32 r0, $0           store add a1:f32+0{0,1} [r2*64<1000], r1
 *
 * The stored value is a plain load or a number, after at most a few operations with numbers. The domain is walked in
 * logical order, so that two elements with the same target are stored in order. Dense elements that share an index are
 * a *run*, copied or combined at once. Otherwise the innermost dim is a *line*, whose positions are computed block by
 * block. Elements of a row that is too short for a run, or whose positions are far apart, are *lanes*: each has a line
 * of its own along the ordered dim, with the same positions at a constant distance.
 *
 * Units share no target position, and the choice of units changes no result:
 *   BY_DIM     a kept dim is cut
 *   BY_RUN     long runs are cut
 *   BY_LANE    lanes are cut
 *   BY_PLACE   memory is cut: each unit reads all indices and stores the elements of its part
 *   NOT        else: few elements, or one thread
 */
#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "interp/interp_plan.h"

enum {
  TERMS_MAX = 3,
  CHAIN_MAX = 3,
  BLOCK = 256,
  RUN_BYTES_MIN = 16, /* shorter ones go through lines */
  PIECE_BYTES = 4096, /* of long runs */
  PIECE_LINE = 512,   /* elements of a line */
  PIECE_SHORT = 32,   /* elements of each of many lines */
  LANES = 4,          /* lanes far apart in memory: their cache lines must all stay in the L2 cache */
  FAR = 16,           /* elements */
  UNITS_MAX = 16,
  PLACED_MIN = 8192,     /* elements: fewer are not worth reading the indices twice */
  FAR_BYTES = 512 << 10, /* distance of positions that are not in the caches */
  AHEAD = 8              /* short runs, whose positions are prefetched */
};

typedef enum cut { BY_DIM = 0, BY_RUN, BY_LANE, BY_PLACE, NOT } cut;

typedef struct side { /* an address, in elements: offset, and a step for each dim */
  int arg;
  int64_t offset, strides[HR_RANK_MAX];
} side;

typedef struct term {
  side at;
  bool is_wide; /* i64, else i32 */
  int64_t stride, extent;
} term;

typedef struct operation { /* an operation of the chain: on the value so far, a number, or both */
  hr__loop_fn fn;
  int arity, scalars[2]; /* of the kernel; -1: the value so far */
  bool is_product;       /* of the value so far and a number: skipped if that is 1 */
  hr_class cls;
} operation;

typedef struct scatter { /* its name follows */
  hr_host_kernel base;
  hr_host_pass pass;
  int rank; /* with runs: of the dims outside them */
  int64_t dims[HR_RANK_MAX];
  uint32_t ordered_mask;
  int term_count, link_count;
  term terms[TERMS_MAX];
  operation links[CHAIN_MAX];
  bool has_load, is_raw;      /* is_raw: the loaded bytes are stored unchanged */
  hr_dtype load_dtype, dtype; /* of the load, of the store */
  side from, to;
  hr_store_mode mode;
  const hr__reduce_loops *combine;
  hr__scatter_fn store;              /* of a line's values, in their class */
  int64_t run;                       /* elements; 0: lines */
  int64_t lanes, lane_from, lane_to; /* of lines; their number, and steps on both sides */
  cut cut;
  int dim; /* BY_DIM */
  int64_t piece, low, span;
  bool is_far; /* the distance of positions exceeds the L2 cache */
} scatter;

/* One thread's memory. Blocks come first, aligned to cache lines: a vector that spans two lines can't be read back
 * before all earlier stores have reached the cache, including the scattered ones. */
typedef struct scratch {
  char values[BLOCK * 16], kept[BLOCK * 16];
  int64_t places[BLOCK], kept_places[BLOCK];
  char numbers[CHAIN_MAX * 2 * 16];
  bool is_raw; /* scatter's, or the chain changes nothing */
  bool is_idle[CHAIN_MAX];
} scratch;

/* ---- what fits ---- */

static side side_of(const hr_access *access, int rank) {
  side s = {.arg = access->arg, .offset = access->offset};
  memcpy(s.strides, access->strides, (size_t)rank * sizeof *s.strides);
  return s;
}

static const hr_instr *instr_of(const hr_kernel *k, int reg) {
  for (int i = 0; i < k->instr_count; ++i) {
    if (k->instrs[i].dst == reg) {
      return &k->instrs[i];
    }
  }
  return NULL;
}

static bool is_plain_load(const hr_kernel *k, const hr_instr *instr, int target) {
  return instr != NULL && instr->kind == HR_INSTR_LOAD && k->accesses[instr->access].term_count == 0 &&
         k->accesses[instr->access].bound_count == 0 && k->accesses[instr->access].arg != target;
}

static bool take_terms(const hr_kernel *k, const hr_access *to, scatter *s) {
  if (to->term_count < 1 || to->term_count > TERMS_MAX || to->bound_count != 0) {
    return false;
  }
  for (int t = 0; t < to->term_count; ++t) {
    const hr_instr *load = instr_of(k, to->terms[t].reg);
    if (!is_plain_load(k, load, to->arg)) {
      return false;
    }
    const hr_access *at = &k->accesses[load->access];
    if ((at->dtype != HR_DTYPE_I64 && at->dtype != HR_DTYPE_I32) || to->terms[t].extent <= 0) {
      return false;
    }
    s->terms[t] = (term){side_of(at, k->rank), at->dtype == HR_DTYPE_I64, to->terms[t].stride, to->terms[t].extent};
  }
  s->term_count = to->term_count;
  return true;
}

/* Parses one operation on the value so far; *out_next is that value's register, or -1. */
static bool take_link(const hr_instr *instr, hr_class cls, operation *out_link, int *out_next) {
  operation l = {.arity = instr->source_count, .scalars = {-1, -1}, .cls = cls};
  unsigned mask = 0;
  *out_next = -1;
  bool fits = instr->cls == cls && l.arity <= 2 &&
              (instr->kind == HR_INSTR_COMPUTE ? hr_op_result_class(instr->op, cls) == cls
                                               : instr->kind == HR_INSTR_CONVERT && hr_dtype_class(instr->to) == cls);
  for (int i = 0; fits && i < l.arity; ++i) {
    if (instr->sources[i].kind == HR_SOURCE_SCALAR) {
      l.scalars[i] = instr->sources[i].index;
      mask |= 1u << i;
    } else {
      fits = *out_next < 0 && instr->sources[i].kind == HR_SOURCE_REGISTER;
      *out_next = instr->sources[i].index;
    }
  }
  int variant = !fits ? -1 : *out_next < 0 ? 0 : hr__loop_variant(l.arity, mask);
  if (variant < 0) {
    return false;
  }
  const hr__class_loops *loops = hr__class_loops_of(cls);
  l.fn = instr->kind == HR_INSTR_COMPUTE ? loops->pointwise[instr->op][variant] : loops->convert[instr->to];
  l.is_product = instr->kind == HR_INSTR_COMPUTE && instr->op == HR_OP_MUL && *out_next >= 0 && mask != 0 &&
                 cls != HR_CLASS_C64 && cls != HR_CLASS_C128; /* a product changes zeros and infinities */
  *out_link = l;
  return l.fn != NULL;
}

/* Parses the chain from the store back to a load or a number. */
static bool take_value(const hr_kernel *k, const hr_instr *store, scatter *s) {
  hr_class cls = hr_dtype_class(s->dtype);
  int reg = store->sources[0].kind == HR_SOURCE_REGISTER ? store->sources[0].index : -1;
  if (reg < 0 || k->registers[reg].cls != cls) {
    return false;
  }
  while (reg >= 0) {
    const hr_instr *instr = instr_of(k, reg);
    if (is_plain_load(k, instr, s->to.arg)) {
      const hr_access *from = &k->accesses[instr->access];
      s->has_load = true, s->load_dtype = from->dtype, s->from = side_of(from, k->rank);
      break;
    }
    operation next;
    if (instr == NULL || s->link_count == CHAIN_MAX || !take_link(instr, cls, &next, &reg)) {
      return false;
    }
    memmove(s->links + 1, s->links, (size_t)s->link_count++ * sizeof *s->links);
    s->links[0] = next;
  }
  bool is_narrow = hr_dtype_is_narrow(s->dtype);
  s->is_raw = s->has_load && s->link_count == 0 && s->load_dtype == s->dtype && (s->mode == HR_STORE_SET || !is_narrow);
  return s->dtype != HR_DTYPE_BOOL || s->is_raw;
}

/* Removes dims of 1. */
static void drop_ones(const hr_kernel *k, scatter *s) {
  for (int d = 0; d < k->rank; ++d) {
    if (k->dims[d] == 1) {
      continue;
    }
    int to = s->rank++;
    s->dims[to] = k->dims[d];
    s->ordered_mask |= (k->ordered_mask >> d & 1u) << to;
    s->from.strides[to] = s->from.strides[d], s->to.strides[to] = s->to.strides[d];
    for (int t = 0; t < s->term_count; ++t) {
      s->terms[t].at.strides[to] = s->terms[t].at.strides[d];
    }
  }
}

static bool is_ordered(const scatter *s, int dim) {
  return (s->ordered_mask >> dim & 1u) != 0;
}

/* Removes the last dims from the domain that are dense on both sides and don't affect the indices: the run. */
static void take_run(scatter *s) {
  int64_t run = 1;
  int rank = s->rank;
  for (; rank > 0; --rank) {
    int d = rank - 1;
    bool is_dense = !is_ordered(s, d) && s->to.strides[d] == run && (!s->has_load || s->from.strides[d] == run);
    for (int t = 0; t < s->term_count; ++t) {
      is_dense &= s->terms[t].at.strides[d] == 0;
    }
    if (!is_dense) {
      break;
    }
    run *= s->dims[d];
  }
  if (run * (int64_t)hr_dtype_size(s->dtype) >= RUN_BYTES_MIN) {
    s->rank = rank, s->run = run;
  }
}

/* Makes the innermost dim the lanes and the last ordered one the line, if the indices do not depend on the former. */
static void take_lanes(scatter *s) {
  int lane = s->rank - 1, line = lane - 1;
  s->lanes = 1;
  while (line >= 0 && !is_ordered(s, line)) {
    --line;
  }
  if (line < 0 || is_ordered(s, lane)) {
    return;
  }
  for (int t = 0; t < s->term_count; ++t) {
    if (s->terms[t].at.strides[lane] != 0) {
      return;
    }
  }
  s->lanes = s->dims[lane], s->lane_from = s->from.strides[lane], s->lane_to = s->to.strides[lane];
  s->rank = lane;
  side *sides[TERMS_MAX + 2] = {&s->from, &s->to};
  for (int t = 0; t < s->term_count; ++t) {
    sides[2 + t] = &s->terms[t].at;
  }
  int64_t dim = s->dims[line];
  memmove(s->dims + line, s->dims + line + 1, (size_t)(lane - 1 - line) * sizeof dim);
  s->dims[lane - 1] = dim;
  for (int i = 0; i < s->term_count + 2; ++i) {
    int64_t *strides = sides[i]->strides, step = strides[line];
    memmove(strides + line, strides + line + 1, (size_t)(lane - 1 - line) * sizeof step);
    strides[lane - 1] = step;
  }
  s->ordered_mask = (s->ordered_mask & ((1u << line) - 1)) | 1u << (lane - 1);
}

static int64_t elements(const scatter *s) {
  int64_t count = s->run > 0 ? s->run : s->lanes;
  for (int d = 0; d < s->rank; ++d) {
    count *= s->dims[d];
  }
  return count;
}

/* Sets the range of positions [low, low + span) (of the first lane). */
static void bound_places(scatter *s) {
  int64_t high = s->to.offset;
  s->low = s->to.offset;
  for (int d = 0; d < s->rank; ++d) {
    int64_t step = s->to.strides[d] * (s->dims[d] - 1);
    s->low += hr_min(step, 0), high += hr_max(step, 0);
  }
  for (int t = 0; t < s->term_count; ++t) {
    int64_t step = s->terms[t].stride * (s->terms[t].extent - 1);
    s->low += hr_min(step, 0), high += hr_max(step, 0);
  }
  s->span = high + 1 - s->low;
  s->is_far = s->span > FAR_BYTES / (int64_t)hr_dtype_size(s->dtype);
}

/* Cuts memory between the smallest and the largest position. */
static int64_t cut_places(scatter *s) {
  int64_t units = elements(s) < PLACED_MIN ? 1 : hr_min(hr_thread_count(), UNITS_MAX);
  s->cut = units == 1 ? NOT : BY_PLACE;
  s->span = hr_divide_up(s->span, units);
  return units;
}

/* Chooses the units and returns their number. */
static int64_t cut_units(scatter *s) {
  int lines = s->run > 0 ? s->rank : s->rank - 1; /* dims outside */
  for (int d = 0; d < lines; ++d) {
    if (!is_ordered(s, d)) {
      s->cut = BY_DIM, s->dim = d, s->piece = hr_divide_up(s->dims[d], 4 * UNITS_MAX);
      return hr_divide_up(s->dims[d], s->piece);
    }
  }
  if (s->run > 0) {
    int64_t pieces = s->run * (int64_t)hr_dtype_size(s->dtype) / PIECE_BYTES;
    if (pieces < 2) {
      return cut_places(s);
    }
    s->cut = BY_RUN, s->piece = hr_round_up(hr_divide_up(s->run, hr_min(pieces, UNITS_MAX)), LANES);
    return hr_divide_up(s->run, s->piece);
  }
  if (s->lanes > LANES && (s->lane_to >= FAR || s->lane_to <= -FAR)) {
    s->cut = BY_LANE, s->piece = LANES;
    return hr_divide_up(s->lanes, s->piece);
  }
  int64_t piece_min = lines > 0 ? PIECE_SHORT : PIECE_LINE;
  if (is_ordered(s, lines) || s->dims[lines] < 2 * piece_min) {
    return cut_places(s);
  }
  s->cut = BY_DIM, s->dim = lines;
  s->piece = hr_max(hr_divide_up(s->dims[lines], UNITS_MAX), piece_min);
  return hr_divide_up(s->dims[lines], s->piece);
}

/* True if the kernel has this form; then sets all of *out except allocated members. */
static bool take(const hr_kernel *k, scatter *out) {
  memset(out, 0, sizeof *out);
  const hr_instr *store = NULL;
  if (k->phase_count > 1 || k->reduce_mask != 0) {
    return false;
  }
  for (int i = 0; i < k->instr_count; ++i) {
    if (k->instrs[i].kind == HR_INSTR_STORE) {
      if (store != NULL) {
        return false;
      }
      store = &k->instrs[i];
    }
  }
  if (store == NULL || !take_terms(k, &k->accesses[store->access], out)) {
    return false;
  }
  const hr_access *to = &k->accesses[store->access];
  static const int combines[] = {[HR_STORE_ADD] = HR__REDUCE_SUM,
                                 [HR_STORE_MUL] = HR__REDUCE_PROD,
                                 [HR_STORE_MAX] = HR__REDUCE_AMAX,
                                 [HR_STORE_MIN] = HR__REDUCE_AMIN};
  out->to = side_of(to, k->rank), out->dtype = to->dtype, out->mode = store->mode;
  if (store->mode != HR_STORE_SET) {
    out->combine = &hr__class_loops_of(hr_dtype_class(to->dtype))->reduce[combines[store->mode]];
  }
  if (!take_value(k, store, out) || (out->combine != NULL && to->dtype == HR_DTYPE_BOOL)) {
    return false;
  }
  out->store = out->combine != NULL ? hr__combining_scatter(out->combine, to->dtype) : hr__scatters[to->dtype];
  drop_ones(k, out);
  take_run(out);
  if (out->run == 0) {
    take_lanes(out);
  }
  return out->run > 0 || out->store != NULL;
}

/* False for most kernels: without a store to an indexed position nothing else has to be looked at. */
static bool may_fit(const hr_kernel *kernel) {
  bool may = false;
  for (int i = 0; !may && kernel->phase_count <= 1 && kernel->reduce_mask == 0 && i < kernel->instr_count; ++i) {
    const hr_instr *instr = &kernel->instrs[i];
    may = instr->kind == HR_INSTR_STORE && kernel->accesses[instr->access].term_count > 0;
  }
  return may;
}

bool hr__scatter_fits(const hr_kernel *kernel) {
  scatter s;
  return may_fit(kernel) && take(kernel, &s);
}

/* ---- values ---- */

/* Runs the chain on `count` elements at `values`, which it replaces. */
static void run_chain(const scatter *s, scratch *desk, void *values, int64_t count) {
  for (int l = 0; l < s->link_count; ++l) {
    const operation *link = &s->links[l];
    if (desk->is_idle[l]) {
      continue;
    }
    hr__loop loop = {.outer = 1, .inner = count, .dst = values};
    for (int i = 0; i < link->arity; ++i) {
      loop.src[i] = link->scalars[i] < 0 ? values : desk->numbers + (l * 2 + i) * 16;
    }
    link->fn(&loop);
  }
}

static bool is_one(const hr_scalar *scalar) {
  return (scalar->dtype == HR_DTYPE_F64 && scalar->value.f[0] == 1) ||
         (scalar->dtype == HR_DTYPE_I64 && scalar->value.i == 1);
}

/* Converts the chain's numbers, and without a load fills a block with their result. */
static void begin_values(const scatter *s, const hr_host_call *call, scratch *desk) {
  bool is_idle = s->has_load && s->load_dtype == s->dtype && !hr_dtype_is_narrow(s->dtype);
  for (int l = 0; l < s->link_count; ++l) {
    for (int i = 0; i < s->links[l].arity; ++i) {
      int scalar = s->links[l].scalars[i];
      if (scalar >= 0) {
        hr__scalar_to_class(&call->scalars[scalar], s->links[l].cls, desk->numbers + (l * 2 + i) * 16);
      }
    }
  }
  for (int l = 0; l < s->link_count; ++l) {
    const operation *link = &s->links[l];
    desk->is_idle[l] = link->is_product && s->has_load && is_one(&call->scalars[link->scalars[link->scalars[0] < 0]]);
    is_idle &= desk->is_idle[l];
  }
  desk->is_raw = s->is_raw || is_idle;
  if (!s->has_load) {
    size_t size = hr_class_size(hr_dtype_class(s->dtype));
    run_chain(s, desk, desk->values, 1);
    for (int64_t i = 1; i < BLOCK; ++i) {
      memcpy(desk->values + (size_t)i * size, desk->values, size);
    }
  }
}

/* `count` values, at most a block, from memory element `from` on: in their class, or directly in memory with *out_step.
 */
static const void *values_of(const scatter *s, const hr_host_call *call, scratch *desk, int64_t from, int64_t step,
                             int64_t count, int64_t *out_step) {
  *out_step = 1;
  if (!s->has_load) {
    return desk->values;
  }
  const char *memory = (const char *)call->args[s->from.arg] + from * (int64_t)hr_dtype_size(s->load_dtype);
  if (desk->is_raw) {
    *out_step = step;
    return memory;
  }
  hr__loads[s->load_dtype](&(hr__copy){desk->values, memory, 1, count, 0, 1, 0, step});
  run_chain(s, desk, desk->values, count);
  return desk->values;
}

/* ---- runs ---- */

/* Elements [begin, end) of a run. */
static void store_run(const scatter *s, const hr_host_call *call, scratch *desk, int64_t from, int64_t to,
                      int64_t begin, int64_t end) {
  size_t size = hr_dtype_size(s->dtype);
  char *target = (char *)call->args[s->to.arg] + to * (int64_t)size;
  bool is_narrow = hr_dtype_is_narrow(s->dtype);
  int64_t block = desk->is_raw ? end - begin : BLOCK, step;
  for (int64_t i = begin; i < end; i += block) {
    int64_t count = hr_min(end - i, block);
    const void *values = values_of(s, call, desk, from + i, 1, count, &step);
    char *at = target + i * (int64_t)size;
    if (s->combine != NULL && is_narrow) {
      hr__loads[s->dtype](&(hr__copy){desk->kept, at, 1, count, 0, 1, 0, 1});
      s->combine->columns(desk->kept, values, 1, count, 0);
      hr__stores[s->dtype](&(hr__copy){at, desk->kept, 1, count, 0, 1, 0, 1});
    } else if (s->combine != NULL) {
      s->combine->columns(at, values, 1, count, 0);
    } else if (desk->is_raw) {
      memcpy(at, values, (size_t)count * size);
    } else {
      hr__stores[s->dtype](&(hr__copy){at, values, 1, count, 0, 1, 0, 1});
    }
  }
}

static int64_t index_at(const term *t, const hr_host_call *call, int64_t at) {
  const void *memory = call->args[t->at.arg];
  int64_t index = t->is_wide ? ((const int64_t *)memory)[at] : ((const int32_t *)memory)[at];
  return index < 0 ? index + t->extent : index;
}

/* ---- lines ---- */

/* places[i] += index * stride; INT64_MIN for an index out of range: a check reports it, and it must not touch foreign
 * memory. */
static void add_term(const term *t, const hr_host_call *call, int64_t at, int64_t step, int64_t *places,
                     int64_t count) {
#define ADD_TERM(TYPE)                                                                  \
  do {                                                                                  \
    const TYPE *const memory = (const TYPE *)call->args[t->at.arg] + at;                \
    const int64_t extent = t->extent, stride = t->stride;                               \
    for (int64_t i = 0; i < count; ++i) {                                               \
      int64_t index = memory[i * step];                                                 \
      index = index < 0 ? index + extent : index;                                       \
      const bool exists = (uint64_t)index < (uint64_t)extent && places[i] != INT64_MIN; \
      places[i] = exists ? places[i] + index * stride : INT64_MIN;                      \
    }                                                                                   \
  } while (0)
  if (t->is_wide) {
    ADD_TERM(int64_t);
  } else {
    ADD_TERM(int32_t);
  }
#undef ADD_TERM
}

typedef struct pair {
  uint64_t low, high;
} pair;

/* Drops elements without a position, and returns the number of the rest. */
static int64_t keep(size_t size, const void *values, int64_t step, int64_t count, scratch *desk) {
  int64_t n = 0;
#define KEEP(TYPE)                               \
  do {                                           \
    const TYPE *const from = values;             \
    TYPE *const to = (TYPE *)(void *)desk->kept; \
    for (int64_t i = 0; i < count; ++i) {        \
      to[n] = from[i * step];                    \
      desk->kept_places[n] = desk->places[i];    \
      n += desk->places[i] != INT64_MIN;         \
    }                                            \
  } while (0)
  switch (size) {
    case 1:
      KEEP(uint8_t);
      break;
    case 2:
      KEEP(uint16_t);
      break;
    case 4:
      KEEP(uint32_t);
      break;
    case 8:
      KEEP(uint64_t);
      break;
    default:
      KEEP(pair);
      break;
  }
#undef KEEP
  return n;
}

static void set(size_t size, void *memory, const int64_t *places, const void *values, int64_t step, int64_t count) {
#define SET(TYPE)                         \
  do {                                    \
    const TYPE *const from = values;      \
    TYPE *const to = memory;              \
    for (int64_t i = 0; i < count; ++i) { \
      to[places[i]] = from[i * step];     \
    }                                     \
  } while (0)
  switch (size) {
    case 1:
      SET(uint8_t);
      break;
    case 2:
      SET(uint16_t);
      break;
    case 4:
      SET(uint32_t);
      break;
    case 8:
      SET(uint64_t);
      break;
    default:
      SET(pair);
      break;
  }
#undef SET
}

/* The position of an element of the domain on each side. */
typedef struct position {
  int64_t at[TERMS_MAX], from, to;
} position;

static void move(const scatter *s, int dim, int64_t steps, position *spot) {
  for (int t = 0; t < s->term_count; ++t) {
    spot->at[t] += steps * s->terms[t].at.strides[dim];
  }
  spot->from += steps * s->from.strides[dim], spot->to += steps * s->to.strides[dim];
}

/* Drops the positions outside [low, high). */
static void clip(int64_t *places, int64_t count, int64_t low, int64_t high) {
  for (int64_t i = 0; i < count; ++i) {
    places[i] = places[i] >= low && places[i] < high ? places[i] : INT64_MIN;
  }
}

static bool are_there(const int64_t *places, int64_t count) {
  int64_t least = INT64_MAX;
  for (int64_t i = 0; i < count; ++i) {
    least = places[i] < least ? places[i] : least;
  }
  return least != INT64_MIN;
}

/* Stores `count` values, at most a block, from memory element `from` on, to the scratch's positions plus `shift`. */
static void store_block(const scatter *s, const hr_host_call *call, scratch *desk, int64_t from, int64_t shift,
                        int64_t count, bool is_whole) {
  size_t size = hr_dtype_size(s->dtype), value_size = desk->is_raw ? size : hr_class_size(hr_dtype_class(s->dtype));
  char *memory = (char *)call->args[s->to.arg] + shift * (int64_t)size;
  const int64_t *places = desk->places;
  int64_t step;
  const void *values = values_of(s, call, desk, from, s->from.strides[s->rank - 1], count, &step);
  if (!is_whole) {
    count = keep(value_size, values, step, count, desk);
    values = desk->kept, places = desk->kept_places, step = 1;
  }
  if (s->combine == NULL && desk->is_raw) {
    set(size, memory, places, values, step, count);
  } else {
    s->store(memory, places, values, step, count);
  }
}

/* Stores `count` elements of the lines of `lanes` lanes from a position on, with targets of the first lane in [low,
 * high). The position is not copied: reading just-written numbers as vectors waits until all earlier stores are in the
 * cache. */
static void store_line(const scatter *s, const hr_host_call *call, scratch *desk, const position *at, int64_t count,
                       int64_t lanes, int64_t low, int64_t high) {
  int line = s->rank - 1;
  for (int64_t i = 0; i < count; i += BLOCK) {
    int64_t n = hr_min(count - i, BLOCK);
    for (int64_t k = 0; k < n; ++k) {
      desk->places[k] = at->to + (i + k) * s->to.strides[line];
    }
    for (int t = 0; t < s->term_count; ++t) {
      int64_t step = s->terms[t].at.strides[line];
      add_term(&s->terms[t], call, at->at[t] + i * step, step, desk->places, n);
    }
    if (s->cut == BY_PLACE) {
      clip(desk->places, n, low, high);
    }
    bool is_whole = are_there(desk->places, n);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t from = at->from + i * s->from.strides[line] + lane * s->lane_from;
      store_block(s, call, desk, from, lane * s->lane_to, n, is_whole);
    }
  }
}

/* ---- the walk ---- */

/* The target of the run `steps` elements of the innermost dim after a position; false if its index is out of range.
 */
static bool find_run(const scatter *s, const hr_host_call *call, const position *at, int64_t steps, int64_t *out_to) {
  int line = s->rank > 0 ? s->rank - 1 : 0; /* without dims there are no steps */
  int64_t to = at->to + steps * s->to.strides[line];
  for (const term *t = s->terms; t < s->terms + s->term_count; ++t) {
    int64_t index = index_at(t, call, at->at[t - s->terms] + steps * t->at.strides[line]);
    if (index < 0 || index >= t->extent) {
      return false;
    }
    to += index * t->stride;
  }
  *out_to = to;
  return true;
}

/* Prefetches the first two cache lines of the run `AHEAD` elements later. */
static void send_for_run(const scatter *s, const hr_host_call *call, const position *at) {
  int64_t to;
  if (find_run(s, call, at, AHEAD, &to)) {
    const char *memory = (const char *)call->args[s->to.arg] + to * (int64_t)hr_dtype_size(s->dtype);
    __builtin_prefetch(memory, 1);
    __builtin_prefetch(memory + 64, 1);
  }
}

static void store_run_at(const scatter *s, const hr_host_call *call, scratch *desk, const position *at, int64_t begin,
                         int64_t end, int64_t low, int64_t high) {
  int64_t to;
  if (find_run(s, call, at, 0, &to) && to >= low && to < high) {
    store_run(s, call, desk, at->from, to, begin, end);
  }
}

static void run_unit(const scatter *s, const hr_host_call *call, scratch *desk, int64_t unit) {
  int outer = s->run > 0 ? s->rank : s->rank - 1;
  int64_t begin[HR_RANK_MAX] = {0}, end[HR_RANK_MAX], place[HR_RANK_MAX], low = INT64_MIN + 1, high = INT64_MAX;
  memcpy(end, s->dims, sizeof end);
  int64_t run_begin = 0, run_end = s->run, lane = 0, lanes = s->lanes;
  if (s->cut == BY_DIM && s->rank > 0) {
    begin[s->dim] = unit * s->piece, end[s->dim] = hr_min(s->dims[s->dim], begin[s->dim] + s->piece);
  } else if (s->cut == BY_RUN) {
    run_begin = unit * s->piece, run_end = hr_min(s->run, run_begin + s->piece);
  } else if (s->cut == BY_LANE) {
    lane = unit * s->piece, lanes = hr_min(s->lanes - lane, s->piece);
  } else if (s->cut == BY_PLACE) {
    low = s->low + unit * s->span, high = low + s->span;
  }
  position at = {.from = s->from.offset + lane * s->lane_from, .to = s->to.offset + lane * s->lane_to};
  for (int t = 0; t < s->term_count; ++t) {
    at.at[t] = s->terms[t].at.offset;
  }
  for (int d = 0; d < s->rank; ++d) {
    move(s, d, begin[d], &at);
    place[d] = begin[d];
  }
  for (int d = outer; d >= 0;) {
    if (s->run > 0) {
      if (s->is_far && outer > 0 && place[outer - 1] + AHEAD < end[outer - 1]) {
        send_for_run(s, call, &at);
      }
      store_run_at(s, call, desk, &at, run_begin, run_end, low, high);
    } else {
      store_line(s, call, desk, &at, end[outer] - begin[outer], lanes, low, high);
    }
    for (d = outer - 1; d >= 0; --d) {
      move(s, d, 1, &at);
      if (++place[d] < end[d]) {
        break;
      }
      move(s, d, begin[d] - end[d], &at);
      place[d] = begin[d];
    }
  }
}

static void run_units(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)pass;
  const scatter *s = (const scatter *)kernel;
  scratch *desk = call->scratch;
  begin_values(s, call, desk);
  for (int64_t unit = begin; unit < end; ++unit) {
    run_unit(s, call, desk, unit);
  }
}

static void destroy(hr_host_kernel *kernel) {
  hr_free(kernel);
}

/* Fills all but the name, from a kernel that fits. */
static void fill(const hr_kernel *kernel, const char *name, size_t bytes, scatter *s) {
  (void)take(kernel, s);
  if (s->run == 0 && s->rank == 0) { /* one element is a line, and so are lanes of one index */
    s->dims[s->rank++] = 1;
  }
  bool is_empty = elements(s) == 0;
  int64_t units = 0;
  if (!is_empty) {
    bound_places(s);
    units = cut_units(s);
  }
  s->pass = (hr_host_pass){units, is_empty ? 1 : hr_divide_up(10000 * units, elements(s))};
  s->base = (hr_host_kernel){.name = name,
                             .pass_count = 1,
                             .passes = &s->pass,
                             .scratch_bytes = sizeof(scratch),
                             .bytes = kernel->bytes,
                             .footprint = bytes,
                             .run = run_units,
                             .destroy = destroy};
}

hr_status hr__scatter_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel) {
  size_t bytes = 0;
  const char *name = NULL;
  scatter *s = hr__named_calloc(sizeof *s, kernel->name, &name, &bytes);
  if (s == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a kernel that scatters");
  }
  fill(kernel, name, bytes, s);
  *out_host_kernel = &s->base;
  return HR_OK;
}

bool hr__scatter_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  bool can = host_kernel->run == run_units && hr__scatter_fits(kernel);
  if (can) {
    fill(kernel, host_kernel->name, host_kernel->footprint, (scatter *)host_kernel);
  }
  return can;
}
