/* Random kernels, interpreted in blocks and evaluated one element at a time: the same bytes.
 *
 * The plain evaluation calls the same loops, one element at a time. So the comparison covers everything around them:
 * cutting, walking, strides, bounds, gathers, phases, lifetimes, in-place stores and the order of reductions.
 */
#include "hr_test.h"

#include "interp/interp.h"
#include "interp/interp_loops.h"
#include "interp/interp_testing.h"

enum { ROUNDS = 1500, ELEMENTS_MAX = 30000, MANY_ELEMENTS_MAX = 150000, VALUE = 16, ARGS_MAX = 24 };

static uint64_t state;

static uint32_t next(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33);
}

static int below(int n) {
  return (int)(next() % (uint32_t)n);
}
static bool chance(int percent) {
  return below(100) < percent;
}

/* ---- plain evaluation ---- */

typedef struct evaluation {
  const hr_kernel *kernel;
  void *const *args;
  const hr_scalar *scalars;
  int64_t row_count; /* elements of a row */
  char *elements;    /* [register][element of the row] */
  char rows[MAKE_MAX][VALUE];
  char *results; /* [register][element]: the inputs of a reduction */
} evaluation;

static char *register_at(evaluation *e, int reg, int64_t at) {
  bool is_row = e->kernel->registers[reg].level == HR_LEVEL_ROW;
  return is_row ? e->rows[reg] : e->elements + (reg * e->row_count + at) * VALUE;
}

static void source_value(evaluation *e, hr_source source, hr_class cls, int64_t at, void *out) {
  if (source.kind == HR_SOURCE_SCALAR) {
    hr__scalar_to_class(&e->scalars[source.index], cls, out);
  } else {
    memcpy(out, register_at(e, source.index, at), VALUE);
  }
}

static int64_t dot(const hr_kernel *kernel, const int64_t *strides, const int64_t *index) {
  int64_t sum = 0;
  for (int d = 0; d < kernel->rank; ++d) {
    sum += strides[d] * index[d];
  }
  return sum;
}

/* Computes the address of an access; true if its bounds hold. */
static bool locate(evaluation *e, const hr_access *access, const int64_t *index, int64_t at, int64_t *out_address) {
  int64_t address = access->offset + dot(e->kernel, access->strides, index);
  for (int t = 0; t < access->term_count; ++t) {
    int64_t i;
    memcpy(&i, register_at(e, access->terms[t].reg, at), sizeof i);
    address += (i < 0 ? i + access->terms[t].extent : i) * access->terms[t].stride;
  }
  *out_address = address;
  for (int b = 0; b < access->bound_count; ++b) {
    int64_t c = access->bounds[b].offset + dot(e->kernel, access->bounds[b].strides, index);
    if (c < 0 || c >= access->bounds[b].extent) {
      return false;
    }
  }
  return true;
}

static void evaluate_store(evaluation *e, const hr_instr *instr, const int64_t *index, int64_t at) {
  const hr_access *access = &e->kernel->accesses[instr->access];
  hr_class cls = hr_dtype_class(access->dtype);
  int64_t address;
  char value[VALUE], old[VALUE];
  if (!locate(e, access, index, at, &address)) {
    return;
  }
  char *memory = (char *)e->args[access->arg] + address * (int64_t)hr_dtype_size(access->dtype);
  source_value(e, instr->sources[0], cls, at, value);
  if (instr->mode != HR_STORE_SET) {
    static const int rows[] = {0, HR__REDUCE_SUM, HR__REDUCE_PROD, HR__REDUCE_AMAX, HR__REDUCE_AMIN};
    hr__loads[access->dtype](&(hr__copy){old, memory, 1, 1, 0, 1, 0, 1});
    hr__class_loops_of(cls)->reduce[rows[instr->mode]].columns(old, value, 1, 1, 0);
    memcpy(value, old, VALUE);
  }
  hr__stores[access->dtype](&(hr__copy){memory, value, 1, 1, 0, 1, 0, 1});
}

static void evaluate_load(evaluation *e, const hr_instr *instr, const int64_t *index, int64_t at, char *dst) {
  const hr_access *access = &e->kernel->accesses[instr->access];
  int64_t address;
  bool is_inside = locate(e, access, index, at, &address);
  memset(dst, 0, VALUE);
  if (instr->kind == HR_INSTR_INDEX) {
    memcpy(dst, &address, sizeof address);
  } else if (is_inside) {
    const char *memory = (const char *)e->args[access->arg] + address * (int64_t)hr_dtype_size(access->dtype);
    hr__loads[access->dtype](&(hr__copy){dst, memory, 1, 1, 0, 1, 0, 1});
  } else if (access->fill >= 0) {
    hr__scalar_to_class(&e->scalars[access->fill], instr->cls, dst);
  }
}

static void evaluate_loop(evaluation *e, const hr_instr *instr, int64_t at, char *dst) {
  char values[4][VALUE];
  hr__loop loop = {.outer = 1, .inner = 1, .dst = dst, .dst_pitch = 1};
  hr_op_rule rule = hr_op_table(instr->op)->rule;
  for (int s = 0; s < instr->source_count; ++s) {
    hr_class cls = instr->cls;
    cls = instr->kind == HR_INSTR_COMPUTE && rule == HR_RULE_WHERE && s == 0 ? HR_CLASS_B8 : cls;
    source_value(e, instr->sources[s], cls, at, values[s]);
    loop.src[s] = values[s];
  }
  memset(dst, 0, VALUE);
  const hr__class_loops *loops = hr__class_loops_of(instr->cls);
  hr__loop_fn fn = instr->kind == HR_INSTR_CONVERT ? loops->convert[instr->to] : loops->pointwise[instr->op][0];
  fn(&loop);
}

/* One row of a reduction, in the order of kernel.h; `values` are VALUE bytes apart and are used up. */
static void reduce_in_order(const hr__reduce_loops *loops, hr_reduce_order order, char *values, int64_t count,
                            char *out) {
  int64_t chunk = hr_kernel_chunk(order), chunks = (count + chunk - 1) / chunk;
  for (int64_t c = 0; c < chunks; ++c) {
    char lanes[HR_REDUCE_LANES][VALUE];
    int width = order == HR_ORDER_LANES ? HR_REDUCE_LANES : 1;
    for (int l = 0; l < width; ++l) {
      loops->init(lanes[l], 1);
    }
    for (int64_t i = 0; i < chunk && c * chunk + i < count; ++i) {
      loops->columns(lanes[i % width], values + (c * chunk + i) * VALUE, 1, 1, 0);
    }
    for (int half = width / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) {
        loops->columns(lanes[l], lanes[l + half], 1, 1, 0);
      }
    }
    memcpy(values + c * VALUE, lanes[0], VALUE);
  }
  if (chunks <= 1) {
    memcpy(out, values, VALUE);
  } else {
    reduce_in_order(loops, order, values, chunks, out);
  }
}

static int reduce_row_of(hr_op op) {
  return op == HR_OP_SUM    ? HR__REDUCE_SUM
         : op == HR_OP_PROD ? HR__REDUCE_PROD
         : op == HR_OP_AMAX ? HR__REDUCE_AMAX
                            : HR__REDUCE_AMIN;
}

static void finish_reduction(evaluation *e, const hr_instr *instr) {
  const hr__class_loops *loops = hr__class_loops_of(instr->cls);
  char *dst = e->rows[instr->dst];
  char *taken = e->results + instr->dst * e->row_count * VALUE;
  memset(dst, 0, VALUE);
  if (instr->kind == HR_INSTR_REDUCE) {
    const hr__reduce_loops *row = &loops->reduce[reduce_row_of(instr->op)];
    if (e->row_count > 0) {
      reduce_in_order(row, e->kernel->order, taken, e->row_count, dst);
    } else if (instr->op != HR_OP_SUM) {
      row->init(dst, 1);
    }
    return;
  }
  int64_t best = INT64_MAX;
  char key[VALUE];
  for (int64_t i = 0; i < e->row_count; ++i) {
    int64_t index;
    char value[VALUE];
    source_value(e, instr->sources[1], HR_CLASS_I64, i, &value);
    memcpy(&index, value, sizeof index);
    loops->argreduce[instr->op - HR_OP_ARGMAX](key, &best, taken + i * VALUE, &index, 1, 1, 0, 0);
  }
  best = e->row_count > 0 ? best : 0;
  memcpy(dst, &best, sizeof best);
}

static void evaluate_instr(evaluation *e, const hr_instr *instr, const int64_t *index, int64_t at) {
  char dst[VALUE];
  switch (instr->kind) {
    case HR_INSTR_LOAD:
    case HR_INSTR_INDEX:
      evaluate_load(e, instr, index, at, dst);
      break;
    case HR_INSTR_COMPUTE:
    case HR_INSTR_CONVERT:
      evaluate_loop(e, instr, at, dst);
      break;
    case HR_INSTR_REDUCE:
    case HR_INSTR_ARGREDUCE:
      source_value(e, instr->sources[0], instr->cls, at, e->results + (instr->dst * e->row_count + at) * VALUE);
      return;
    default:
      evaluate_store(e, instr, index, at);
      return;
  }
  memcpy(register_at(e, instr->dst, at), dst, VALUE);
}

/* Element `at` over the dims of `mask`, row-major, into index. */
static void place(const hr_kernel *kernel, uint32_t mask, int64_t at, int64_t *index) {
  for (int d = kernel->rank - 1; d >= 0; --d) {
    if ((mask >> d & 1) != 0) {
      index[d] = kernel->dims[d] > 0 ? at % kernel->dims[d] : 0;
      at /= kernel->dims[d] > 0 ? kernel->dims[d] : 1;
    }
  }
}

static int64_t count_of(const hr_kernel *kernel, uint32_t mask) {
  int64_t count = 1;
  for (int d = 0; d < kernel->rank; ++d) {
    count *= (mask >> d & 1) != 0 ? kernel->dims[d] : 1;
  }
  return count;
}

static void evaluate(const hr_kernel *kernel, void *const *args, const hr_scalar *scalars) {
  uint32_t walked = kernel->reduce_mask | kernel->ordered_mask, kept = ((1u << kernel->rank) - 1) & ~walked;
  evaluation e = {.kernel = kernel, .args = args, .scalars = scalars, .row_count = count_of(kernel, walked)};
  size_t bytes = (size_t)(kernel->register_count * e.row_count + 1) * VALUE;
  e.elements = calloc(1, bytes);
  e.results = calloc(1, bytes);
  for (int64_t row = 0; row < count_of(kernel, kept); ++row) {
    int64_t index[HR_RANK_MAX] = {0};
    place(kernel, kept, row, index);
    for (int phase = 0; phase < kernel->phase_count; ++phase) {
      for (int level = HR_LEVEL_ROW; level >= HR_LEVEL_ELEMENT; --level) {
        for (int64_t at = 0; at < (level == HR_LEVEL_ROW ? 1 : e.row_count); ++at) {
          place(kernel, walked, at, index);
          for (int k = 0; k < kernel->instr_count; ++k) {
            if (kernel->instrs[k].phase == phase && kernel->instrs[k].level == (hr_level)level) {
              evaluate_instr(&e, &kernel->instrs[k], index, at);
            }
          }
        }
      }
      for (int k = 0; k < kernel->instr_count; ++k) {
        const hr_instr *instr = &kernel->instrs[k];
        if (instr->phase == phase && (instr->kind == HR_INSTR_REDUCE || instr->kind == HR_INSTR_ARGREDUCE)) {
          finish_reduction(&e, instr);
        }
      }
    }
  }
  free(e.elements);
  free(e.results);
}

/* ---- random kernels ---- */

typedef struct buffers { /* of the kernel's arguments */
  int count;
  hr_dtype dtype[ARGS_MAX];
  int64_t elements[ARGS_MAX];
  bool is_index[ARGS_MAX]; /* holds numbers from -extent to extent - 1 */
  int extent[ARGS_MAX];
  int64_t strides[ARGS_MAX][HR_RANK_MAX]; /* of the last access */
  int64_t offset[ARGS_MAX];
} buffers;

static int64_t extent_of(const kernel_maker *m, const int64_t *strides, int64_t *out_offset) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < m->kernel.rank; ++d) {
    int64_t reach = strides[d] * (m->dims[d] - 1);
    low += reach < 0 && m->dims[d] > 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
  }
  *out_offset = -low;
  return high - low + 1;
}

/* Strides of a dense layout over the dims outside `without`, in a random order of dims; 0 along `without`. */
static void layout(const kernel_maker *m, uint32_t without, bool is_shuffled, int64_t *strides) {
  int order[HR_RANK_MAX], rank = m->kernel.rank;
  for (int d = 0; d < rank; ++d) {
    order[d] = d;
  }
  for (int d = rank - 1; d > 0 && is_shuffled; --d) {
    int other = below(d + 1), swap = order[d];
    order[d] = order[other], order[other] = swap;
  }
  int64_t step = 1;
  for (int k = rank - 1; k >= 0; --k) {
    int d = order[k];
    strides[d] = (without >> d & 1) != 0 ? 0 : step;
    step *= (without >> d & 1) != 0 ? 1 : m->dims[d] > 0 ? m->dims[d] : 1;
  }
}

static void random_strides(const kernel_maker *m, uint32_t zero, int64_t *strides) {
  for (int d = 0; d < m->kernel.rank; ++d) {
    zero |= chance(15) ? 1u << d : 0;
  }
  layout(m, zero, chance(30), strides);
  for (int d = 0; d < m->kernel.rank; ++d) {
    strides[d] *= chance(10) ? -1 : chance(10) ? 2 : 1;
  }
}

static int new_arg(kernel_maker *m, buffers *b, hr_dtype dtype, int64_t elements) {
  int arg = make_arg(m);
  b->count = arg + 1;
  b->dtype[arg] = dtype;
  b->elements[arg] = elements;
  b->is_index[arg] = false;
  return arg;
}

static uint32_t all_dims(const kernel_maker *m) {
  return (1u << m->kernel.rank) - 1;
}

static int as_f32(kernel_maker *m, int phase, int reg) {
  return m->registers[reg].cls == HR_CLASS_F32 ? reg : make_convert(m, phase, reg, HR_DTYPE_F32);
}

/* A gather: rows of a table, chosen by an index that varies along some dims. */
static int random_gather(kernel_maker *m, buffers *b, int phase) {
  int64_t strides[HR_RANK_MAX], offset;
  random_strides(m, below((int)all_dims(m) + 1) & (int)all_dims(m), strides);
  int64_t elements = extent_of(m, strides, &offset);
  int index_arg = new_arg(m, b, HR_DTYPE_I64, elements), extent = 1 + below(20);
  b->is_index[index_arg] = true, b->extent[index_arg] = extent;
  int index = make_load(m, phase, index_arg, HR_DTYPE_I64, offset, strides);
  random_strides(m, 0, strides);
  elements = extent_of(m, strides, &offset);
  int arg = new_arg(m, b, HR_DTYPE_F32, elements * extent);
  int reg = make_load(m, phase, arg, HR_DTYPE_F32, offset, strides);
  make_term(m, index, elements, extent);
  return reg;
}

static int random_load(kernel_maker *m, buffers *b, int phase, int fill) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F32,  HR_DTYPE_F32, HR_DTYPE_F32,
                                    HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_I32, HR_DTYPE_U8,
                                    HR_DTYPE_I64, HR_DTYPE_BOOL, HR_DTYPE_F64};
  int64_t strides[HR_RANK_MAX], offset;
  if (chance(10)) {
    for (int d = 0; d < m->kernel.rank; ++d) {
      strides[d] = below(5) - 1;
    }
    return as_f32(m, phase, make_index(m, phase, below(3), strides));
  }
  if (chance(12)) {
    return random_gather(m, b, phase);
  }
  if (chance(25) && m->kernel.access_count > 0) { /* repeats an earlier load, if it is a plain one */
    const hr_access *seen = &m->accesses[below(m->kernel.access_count)];
    if (seen->arg >= 0 && seen->term_count == 0 && seen->bound_count == 0 && m->args[seen->arg].is_read &&
        !b->is_index[seen->arg]) {
      memcpy(strides, seen->strides, sizeof strides);
      return as_f32(m, phase, make_load(m, phase, seen->arg, seen->dtype, seen->offset, strides));
    }
  }
  hr_dtype dtype = dtypes[below(11)];
  random_strides(m, 0, strides);
  int64_t elements = extent_of(m, strides, &offset);
  int reg = make_load(m, phase, new_arg(m, b, dtype, elements), dtype, offset, strides);
  if (chance(20)) { /* bounds that cut off a part */
    for (int n = 1 + below(2); n > 0; --n) {
      int64_t along[HR_RANK_MAX] = {0};
      int d = below(m->kernel.rank);
      along[d] = 1 + below(2);
      if (chance(40)) {
        along[below(m->kernel.rank)] = below(4) - 1;
      }
      make_bound(m, below(3) - 1, along, 1 + below((int)m->dims[d] * 2 + 1));
    }
    m->accesses[m->kernel.access_count - 1].fill = chance(50) ? -1 - fill : -1;
  }
  return as_f32(m, phase, reg);
}

static int random_op(kernel_maker *m, int phase, const int *values, int count, const int *scalars) {
  static const hr_op unary[] = {HR_OP_NEG, HR_OP_ABS, HR_OP_TANH, HR_OP_RELU, HR_OP_EXP, HR_OP_FLOOR};
  static const hr_op binary[] = {HR_OP_ADD, HR_OP_SUB, HR_OP_MUL, HR_OP_MAXIMUM, HR_OP_MINIMUM, HR_OP_SOFTSHRINK};
  int sources[4];
  for (int s = 0; s < 4; ++s) {
    sources[s] = chance(25) ? scalars[below(3)] : values[below(count)];
  }
  int reg;
  switch (below(8)) {
    case 0:
      reg = make_op1(m, phase, unary[below(6)], HR_CLASS_F32, values[below(count)]);
      break;
    case 1:
      reg = make_op(m, phase, HR_OP_ADD_SCALED, HR_CLASS_F32, 3, sources);
      break;
    case 2:
      reg = make_op(m, phase, HR_OP_CLAMP, HR_CLASS_F32, 3, sources);
      break;
    case 3:
      reg = make_op(m, phase, HR_OP_ADDCMUL, HR_CLASS_F32, 4, sources);
      break;
    case 4:
      sources[0] = make_op2(m, phase, HR_OP_LT, HR_CLASS_F32, sources[0], sources[3]);
      reg = make_op(m, phase, HR_OP_WHERE, HR_CLASS_F32, 3, sources);
      break;
    default:
      reg = make_op2(m, phase, binary[below(6)], HR_CLASS_F32, sources[0], sources[1]);
      break;
  }
  return chance(12) ? make_convert(m, phase, reg, chance(50) ? HR_DTYPE_F16 : HR_DTYPE_BF16) : reg;
}

static void random_store(kernel_maker *m, buffers *b, int phase, int reg) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32,  HR_DTYPE_F32, HR_DTYPE_F16,
                                    HR_DTYPE_BF16, HR_DTYPE_I32, HR_DTYPE_F64};
  int64_t strides[HR_RANK_MAX], offset;
  hr_dtype dtype = dtypes[below(6)];
  bool is_row = make_level(m, 1, &reg) == HR_LEVEL_ROW;
  uint32_t without = is_row ? m->kernel.reduce_mask : 0;
  layout(m, without, chance(30), strides);
  for (int d = 0; d < m->kernel.rank; ++d) {
    strides[d] *= chance(8) ? -1 : 1;
  }
  int64_t elements = extent_of(m, strides, &offset);
  if (dtype != HR_DTYPE_F32) {
    reg = make_convert(m, phase, reg, dtype);
  }
  make_store(m, phase, new_arg(m, b, dtype, elements), dtype, offset, strides, reg);
  if (chance(10) && !is_row) {
    int64_t along[HR_RANK_MAX] = {0};
    int d = below(m->kernel.rank);
    along[d] = 1;
    make_bound(m, -below(3), along, 1 + below((int)m->dims[d] + 1));
  }
}

/* A store over one of the inputs, elementwise; all loads of it go through the same map. */
static void random_in_place(kernel_maker *m, const buffers *b, int phase, int reg) {
  for (int k = 0; k < m->kernel.instr_count; ++k) {
    const hr_access *access = &m->accesses[m->instrs[k].access < 0 ? 0 : m->instrs[k].access];
    int64_t dense[HR_RANK_MAX], elements;
    if (m->instrs[k].kind != HR_INSTR_LOAD || access->dtype != HR_DTYPE_F32 || access->term_count != 0 ||
        access->bound_count != 0 || b->is_index[access->arg] || m->args[access->arg].is_written) {
      continue;
    }
    int64_t offset, reach = extent_of(m, access->strides, &offset), count = 1;
    layout(m, 0, false, dense);
    elements = extent_of(m, dense, &offset);
    bool is_one_to_one = reach == elements;
    for (int d = 0; d < m->kernel.rank; ++d) {
      is_one_to_one &= access->strides[d] != 0 || m->dims[d] == 1;
      count *= m->dims[d];
    }
    if (is_one_to_one && count > 0) {
      int64_t strides[HR_RANK_MAX];
      memcpy(strides, access->strides, sizeof strides);
      make_store(m, phase, access->arg, HR_DTYPE_F32, access->offset, strides, reg);
      return;
    }
  }
}

/* Elements that differ only in ordered dims may have the same target. */
static void random_scatter(kernel_maker *m, buffers *b, int reg) {
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_BF16};
  int64_t strides[HR_RANK_MAX], offset;
  hr_dtype dtype = dtypes[below(3)];
  layout(m, m->kernel.ordered_mask, chance(30), strides);
  int64_t elements = extent_of(m, strides, &offset), index_strides[HR_RANK_MAX], index_offset;
  random_strides(m, chance(50) ? all_dims(m) & ~m->kernel.ordered_mask : 0, index_strides);
  int64_t index_elements = extent_of(m, index_strides, &index_offset);
  int index_arg = new_arg(m, b, HR_DTYPE_I64, index_elements), extent = 1 + below(6);
  b->is_index[index_arg] = true, b->extent[index_arg] = extent;
  int index = make_load(m, 0, index_arg, HR_DTYPE_I64, index_offset, index_strides);
  reg = dtype == HR_DTYPE_F32 ? reg : make_convert(m, 0, reg, dtype);
  hr_instr *store = make_store(m, 0, new_arg(m, b, dtype, elements * extent), dtype, offset, strides, reg);
  store->mode = (hr_store_mode)below(5);
  make_term(m, index, elements, extent);
}

static void random_dims(int64_t *dims, int rank) {
  static const int sizes[] = {1, 1, 2, 3, 4, 5, 8, 10, 17, 32, 33, 50, 64, 100, 200, 700, 1100, 5000, 9000};
  int64_t count = 1, most = ELEMENTS_MAX;
  if (chance(3)) { /* enough for chunks as units */
    most = MANY_ELEMENTS_MAX;
    dims[0] = count = 30000 + below(30000);
  }
  for (int d = count > 1; d < rank; ++d) {
    do {
      dims[d] = chance(1) ? 0 : sizes[below(19)];
    } while (count * dims[d] > most);
    count *= dims[d] > 0 ? dims[d] : 1;
  }
}

static void random_kernel(kernel_maker *m, buffers *b) {
  int64_t dims[HR_RANK_MAX];
  int rank = 1 + below(4), kind = below(3);
  random_dims(dims, rank);
  uint32_t mask = (uint32_t)below(1 << rank);
  mask = mask == 0 ? 1u << below(rank) : mask;
  make_begin(m, rank, dims, kind == 1 ? mask : 0, kind == 2 ? mask : 0);
  memset(b, 0, sizeof *b);
  int scalars[] = {make_scalar(m), make_scalar(m), make_scalar(m)};
  int values[64], count = 0, phases = kind == 1 ? 1 + below(3) : 1;
  for (int phase = 0; phase < phases; ++phase) {
    for (int n = 1 + below(3); n > 0; --n) {
      values[count++] = random_load(m, b, phase, scalars[below(3)]);
    }
    for (int n = below(6); n > 0; --n) {
      values[count] = random_op(m, phase, values, count, scalars);
      ++count;
    }
    if (chance(kind == 1 ? 25 : 80) && kind != 2) {
      random_store(m, b, phase, values[count - 1 - below(count < 3 ? count : 3)]);
    }
    if (chance(20) && kind == 0) {
      random_in_place(m, b, phase, values[count - 1]);
    }
    int results[2], result_count = 0;
    for (int n = kind == 1 ? 1 + below(2) : 0; n > 0; --n) {
      static const hr_op reductions[] = {HR_OP_SUM, HR_OP_PROD, HR_OP_AMAX, HR_OP_AMIN};
      int source = values[below(count)];
      for (int tries = 0; tries < 4 && m->registers[source].level == HR_LEVEL_ROW; ++tries) {
        source = values[below(count)];
      }
      int result = make_reduce(m, phase, reductions[below(4)], HR_CLASS_F32, source);
      if (chance(25)) {
        int64_t along[HR_RANK_MAX];
        layout(m, 0, false, along);
        int best = make_argreduce(m, phase, chance(50) ? HR_OP_ARGMAX : HR_OP_ARGMIN, HR_CLASS_F32, source,
                                  make_index(m, phase, 0, along));
        result =
            make_op2(m, phase + 1, HR_OP_ADD, HR_CLASS_F32, result, make_convert(m, phase + 1, best, HR_DTYPE_F32));
      }
      results[result_count++] = result;
      if (chance(70) || phase + 1 == phases) {
        random_store(m, b, phase + 1, result);
      }
    }
    for (int k = 0; k < result_count && phase + 1 < phases; ++k) { /* usable by the next phase */
      values[count++] = results[k];
    }
  }
  if (kind == 2) {
    random_scatter(m, b, values[count - 1]);
  }
  if (kind == 0 && m->kernel.instr_count > 0) {
    random_store(m, b, phases - 1, values[count - 1]);
  }
}

static void fill(const buffers *b, int arg, void *memory) {
  for (int64_t i = 0; i < b->elements[arg]; ++i) {
    double value = (double)(below(2001) - 1000) * 0.001;
    int64_t whole = b->is_index[arg] ? below(2 * b->extent[arg]) - b->extent[arg] : below(7);
    switch (b->dtype[arg]) {
      case HR_DTYPE_F32:
        ((float *)memory)[i] = (float)value;
        break;
      case HR_DTYPE_F64:
        ((double *)memory)[i] = value;
        break;
      case HR_DTYPE_F16:
        ((uint16_t *)memory)[i] = hr_f32_to_f16((float)value);
        break;
      case HR_DTYPE_BF16:
        ((uint16_t *)memory)[i] = hr_f32_to_bf16((float)value);
        break;
      case HR_DTYPE_I32:
        ((int32_t *)memory)[i] = (int32_t)whole - 3;
        break;
      case HR_DTYPE_I64:
        ((int64_t *)memory)[i] = whole;
        break;
      case HR_DTYPE_BOOL:
        ((uint8_t *)memory)[i] = whole & 1;
        break;
      default:
        ((uint8_t *)memory)[i] = (uint8_t)whole;
        break;
    }
  }
}

static void run_units(const hr_host_kernel *kernel, void *const *args, const hr_scalar *scalars, int64_t step) {
  hr_host_call call = {args, scalars, hr_aligned_malloc(kernel->workspace_bytes + 64, 64),
                       hr_aligned_malloc(kernel->scratch_bytes + 64, 64)};
  for (int pass = 0; pass < kernel->pass_count; ++pass) {
    for (int64_t begin = 0; begin < kernel->passes[pass].units; begin += step) {
      memset(call.scratch, 0xcd, kernel->scratch_bytes);
      int64_t end = begin + step < kernel->passes[pass].units ? begin + step : kernel->passes[pass].units;
      kernel->run(kernel, pass, &call, begin, end);
    }
  }
  hr_aligned_free(call.workspace);
  hr_aligned_free(call.scratch);
}

static void describe(const kernel_maker *m, uint64_t seed) {
  hr_text text = {0};
  hr_status_ignore(hr_kernel_print(&m->kernel, &text));
  fprintf(stderr, "seed %llu\n%s", (unsigned long long)seed, hr_text_chars(&text));
  hr_text_fini(&text);
}

static void check_kernel(uint64_t seed) {
  static kernel_maker m;
  static buffers b;
  state = seed * 0x9e3779b97f4a7c15u;
  random_kernel(&m, &b);
  hr_scalar scalars[] = {hr_scalar_f64(0.5), hr_scalar_i64(2), hr_scalar_f64(-1.25)};
  void *expected[ARGS_MAX], *actual[ARGS_MAX];
  HR_ASSERT(b.count <= ARGS_MAX);
  for (int a = 0; a < b.count; ++a) {
    size_t bytes = (size_t)b.elements[a] * hr_dtype_size(b.dtype[a]);
    expected[a] = malloc(bytes), actual[a] = malloc(bytes);
    fill(&b, a, expected[a]);
    memcpy(actual[a], expected[a], bytes);
  }
  int64_t step = chance(50) ? INT64_MAX / 2 : 1 + below(3);
  hr_status status = hr_kernel_verify(make_end(&m));
  hr_host_kernel *kernel = NULL;
  if (status == HR_OK) {
    status = hr_interp_create(make_end(&m), &kernel);
  }
  if (status != HR_OK) {
    describe(&m, seed);
    HR_ASSERT_OK(status);
  }
  if (getenv("HR_FUZZ_SEED") != NULL) {
    describe(&m, seed);
  }
  evaluate(&m.kernel, expected, scalars);
  run_units(kernel, actual, scalars, step);
  kernel->destroy(kernel);
  for (int a = 0; a < b.count; ++a) {
    size_t bytes = (size_t)b.elements[a] * hr_dtype_size(b.dtype[a]);
    if (memcmp(expected[a], actual[a], bytes) != 0) {
      describe(&m, seed);
      HR_FAIL("argument %d differs in seed %llu", a, (unsigned long long)seed);
    }
    free(expected[a]), free(actual[a]);
  }
}

/* Runs both kernels on the same random memory: the same bytes. */
static void compare_kernels(const buffers *b, const kernel_maker *m, const hr_host_kernel *one,
                            const hr_host_kernel *other, uint64_t seed) {
  hr_scalar scalars[] = {hr_scalar_f64(0.5), hr_scalar_i64(2), hr_scalar_f64(-1.25)};
  void *expected[ARGS_MAX], *actual[ARGS_MAX];
  for (int a = 0; a < b->count; ++a) {
    size_t bytes = (size_t)b->elements[a] * hr_dtype_size(b->dtype[a]);
    expected[a] = malloc(bytes), actual[a] = malloc(bytes);
    fill(b, a, expected[a]);
    memcpy(actual[a], expected[a], bytes);
  }
  run_units(one, expected, scalars, INT64_MAX / 2);
  run_units(other, actual, scalars, INT64_MAX / 2);
  for (int a = 0; a < b->count; ++a) {
    if (memcmp(expected[a], actual[a], (size_t)b->elements[a] * hr_dtype_size(b->dtype[a])) != 0) {
      describe(m, seed);
      HR_FAIL("renumbered: argument %d differs in seed %llu", a, (unsigned long long)seed);
    }
    free(expected[a]), free(actual[a]);
  }
}

/* A kernel with a cut outermost dim gets the numbers of the whole one, or the reverse; false if it has to be made
 * anew. */
static bool check_renumbered(uint64_t seed) {
  static kernel_maker m;
  static buffers b;
  state = seed * 0x9e3779b97f4a7c15u;
  random_kernel(&m, &b);
  int64_t dims[2] = {m.dims[0], below(2) == 0 ? m.dims[0] - 1 - below(3) : 1 + below((int)(m.dims[0] | 1))};
  m.dims[0] = dims[1];
  if (m.kernel.rank == 0 || dims[1] < 2 || dims[1] > dims[0] ||
      hr_kernel_order(m.kernel.rank, m.dims, m.kernel.reduce_mask) != m.kernel.order) {
    return false;
  }
  hr_host_kernel *fresh = NULL, *kernel = NULL;
  int first = below(2);
  m.dims[0] = dims[first];
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &kernel));
  m.dims[0] = dims[1 - first];
  HR_ASSERT_OK(hr_interp_create(make_end(&m), &fresh));
  bool is = hr_interp_renumber(kernel, make_end(&m));
  if (!is) { /* for larger blocks: the next one has room for both */
    hr_host_kernel *last = kernel;
    HR_ASSERT_OK(hr_interp_create_like(make_end(&m), last, &kernel));
    last->destroy(last);
    compare_kernels(&b, &m, fresh, kernel, seed);
    m.dims[0] = dims[first];
    is = hr_interp_renumber(kernel, make_end(&m));
    fresh->destroy(fresh);
    HR_ASSERT_OK(hr_interp_create(make_end(&m), &fresh));
  }
  if (is) {
    HR_ASSERT_EQ(kernel->passes[0].units, fresh->passes[0].units);
    HR_ASSERT_EQ(kernel->passes[0].grain, fresh->passes[0].grain);
    compare_kernels(&b, &m, fresh, kernel, seed);
  }
  kernel->destroy(kernel);
  fresh->destroy(fresh);
  return is;
}

HR_TEST(random_kernels_with_other_numbers) {
  uint64_t count = (uint64_t)hr_test_count(ROUNDS), renumbered = 0;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    renumbered += check_renumbered(seed);
  }
  HR_ASSERT(renumbered > count / 8);
}

HR_TEST(random_kernels) {
  const char *one = getenv("HR_FUZZ_SEED"), *rounds = getenv("HR_FUZZ_ROUNDS");
  if (one != NULL) {
    check_kernel(strtoull(one, NULL, 10));
    return;
  }
  uint64_t count = rounds != NULL ? strtoull(rounds, NULL, 10) : (uint64_t)hr_test_count(ROUNDS);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    check_kernel(seed);
  }
}
