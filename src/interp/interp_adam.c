/* interp_adam.c: kernels that are a step of Adam: dense parameters, gradients and averages, one number for each row.
 *
 *     mean = lerp(mean, grad, $)   square = addcmul(mul(square, $), grad, grad, $)
 *     param = addcdiv(param, mean, add(div(sqrt(square), $), $), $)
 *
 * AdamW multiplies the parameter by a number first; a decay in Adam adds as much of the parameter to the gradient. A
 * network has a kernel for each parameter, and they run for many steps until they are compiled. Block by block, each
 * step waits for memory and then for divisions and roots; one loop does both at once. Elements are those of the rows.
 */
#include <string.h>

#include "base/integer.h"
#include "core/math/special.h"
#include "interp/interp_plan.h"

/* ---- the form ---- */

enum { NUMBER = -1, NOTHING = -2 }; /* sources that are no values */
enum { PARAM, GRAD, MEAN, SQUARE, LOADS, KEPT = LOADS, SLOPE, NEW_MEAN, SCALED, NEW_SQUARE, ROOT, QUOTIENT, DIVISOR };
enum { NEW_PARAM = DIVISOR + 1, VALUES, NUMBERS_MAX = 7, ROWS = 7, STORES = 3, INSTRS = LOADS + ROWS + STORES };

typedef enum decay_kind { DECAY_NONE = 0, DECAY_OF_PARAM, DECAY_IN_GRADIENT } decay_kind;

typedef struct row {
  hr_op op;
  int result, sources[4];
} row;

static const row decays[] = {
    [DECAY_OF_PARAM] = {HR_OP_MUL, KEPT, {PARAM, NUMBER, NOTHING, NOTHING}},
    [DECAY_IN_GRADIENT] = {HR_OP_ADD_SCALED, SLOPE, {GRAD, PARAM, NUMBER, NOTHING}},
};
static const row rows[ROWS] = {
    {HR_OP_LERP, NEW_MEAN, {MEAN, SLOPE, NUMBER, NOTHING}},
    {HR_OP_MUL, SCALED, {SQUARE, NUMBER, NOTHING, NOTHING}},
    {HR_OP_ADDCMUL, NEW_SQUARE, {SCALED, SLOPE, SLOPE, NUMBER}},
    {HR_OP_SQRT, ROOT, {NEW_SQUARE, NOTHING, NOTHING, NOTHING}},
    {HR_OP_DIV, QUOTIENT, {ROOT, NUMBER, NOTHING, NOTHING}},
    {HR_OP_ADD, DIVISOR, {QUOTIENT, NUMBER, NOTHING, NOTHING}},
    {HR_OP_ADDCDIV, NEW_PARAM, {KEPT, NEW_MEAN, DIVISOR, NUMBER}},
};

/* The operands and numbers of a kernel. */
typedef struct form {
  decay_kind decay;
  int registers[VALUES]; /* -1: not found yet */
  int accesses[LOADS];
  int numbers[NUMBERS_MAX], number_count; /* scalars of the kernel */
} form;

/* The load that defines a register, or NULL. */
static const hr_instr *load_of(const hr_kernel *k, int reg) {
  for (int i = 0; i < k->instr_count; ++i) {
    if (k->instrs[i].kind == HR_INSTR_LOAD && k->instrs[i].dst == reg) {
      return &k->instrs[i];
    }
  }
  return NULL;
}

/* True if the source is the value. A value that no row makes is loaded. */
static bool is_value(const hr_kernel *k, form *f, int value, const hr_source *source) {
  if (value == NUMBER) {
    f->numbers[f->number_count++] = source->index;
    return source->kind == HR_SOURCE_SCALAR;
  }
  if (source->kind == HR_SOURCE_REGISTER && f->registers[value] < 0 && load_of(k, source->index) != NULL) {
    f->registers[value] = source->index;
  }
  return source->kind == HR_SOURCE_REGISTER && f->registers[value] == source->index;
}

static bool is_row(const hr_kernel *k, form *f, const row *wanted, const hr_instr *instr) {
  bool is = instr->kind == HR_INSTR_COMPUTE && instr->op == wanted->op && instr->cls == HR_CLASS_F32;
  int count = 0;
  for (; is && count < 4 && wanted->sources[count] != NOTHING; ++count) {
    is = count < instr->source_count && is_value(k, f, wanted->sources[count], &instr->sources[count]);
  }
  is = is && count == instr->source_count && f->registers[wanted->result] < 0;
  f->registers[wanted->result] = is ? instr->dst : -1;
  return is;
}

static bool is_dense(const hr_kernel *k, const hr_access *access) {
  return access->dtype == HR_DTYPE_F32 && hr_kernel_is_dense(k, access);
}

static bool is_same(const hr_access *a, const hr_access *b) {
  return a->arg == b->arg && a->offset == b->offset;
}

/* The loads of the four operands, which are different ones. */
static bool find_loads(const hr_kernel *k, form *f) {
  for (int i = 0; i < LOADS; ++i) {
    const hr_instr *load = f->registers[i] >= 0 ? load_of(k, f->registers[i]) : NULL;
    if (load == NULL || !is_dense(k, &k->accesses[load->access])) {
      return false;
    }
    f->accesses[i] = load->access;
    for (int j = 0; j < i; ++j) {
      if (k->accesses[f->accesses[j]].arg == k->accesses[load->access].arg) {
        return false;
      }
    }
  }
  return true;
}

/* True if the last instructions store the three results in place. */
static bool has_stores(const hr_kernel *k, const form *f) {
  static const int stored[STORES][2] = {{MEAN, NEW_MEAN}, {SQUARE, NEW_SQUARE}, {PARAM, NEW_PARAM}};
  for (int i = 0; i < STORES; ++i) {
    const hr_instr *store = &k->instrs[k->instr_count - STORES + i];
    if (store->kind != HR_INSTR_STORE || store->mode != HR_STORE_SET || !is_dense(k, &k->accesses[store->access]) ||
        !hr_instr_reads(store, f->registers[stored[i][1]]) ||
        !is_same(&k->accesses[store->access], &k->accesses[f->accesses[stored[i][0]]])) {
      return false;
    }
  }
  return true;
}

/* The next row's instruction behind loads. */
static const hr_instr *next_row(const hr_kernel *k, int *at) {
  while (*at < k->instr_count && k->instrs[*at].kind == HR_INSTR_LOAD) {
    ++*at;
  }
  return *at < k->instr_count ? &k->instrs[(*at)++] : NULL;
}

static bool has_rows(const hr_kernel *k, form *f) {
  int at = 0;
  for (int i = f->decay == DECAY_NONE ? 0 : -1; i < ROWS; ++i) {
    const hr_instr *instr = next_row(k, &at);
    if (instr == NULL || !is_row(k, f, i < 0 ? &decays[f->decay] : &rows[i], instr)) {
      return false;
    }
  }
  return true;
}

/* Operands that no decay changes are used as they were loaded. */
static void begin(form *f, decay_kind kind) {
  *f = (form){.decay = kind};
  for (int v = 0; v < VALUES; ++v) {
    f->registers[v] = -1;
  }
}

static bool find_form(const hr_kernel *k, form *f) {
  if (k->instr_count < INSTRS || k->instr_count > INSTRS + 1 || k->is_repeated || k->phase_count > 1 ||
      k->reduce_mask != 0 || k->ordered_mask != 0) {
    return false;
  }
  for (int kind = DECAY_NONE; kind <= DECAY_IN_GRADIENT; ++kind) {
    begin(f, (decay_kind)kind);
    if (k->instr_count == INSTRS + (kind != DECAY_NONE) && has_rows(k, f)) {
      if (kind == DECAY_IN_GRADIENT && f->registers[PARAM] != f->registers[KEPT]) {
        return false; /* the gradient is joined with another operand */
      }
      f->registers[PARAM] = kind == DECAY_OF_PARAM ? f->registers[PARAM] : f->registers[KEPT];
      f->registers[GRAD] = kind == DECAY_IN_GRADIENT ? f->registers[GRAD] : f->registers[SLOPE];
      return find_loads(k, f) && has_stores(k, f);
    }
  }
  return false;
}

bool hr__adam_fits(const hr_kernel *kernel) {
  form f;
  return find_form(kernel, &f);
}

/* ---- the loop ---- */

#define T float
#define REAL float
#define F(f) hr_f32_##f
#define K(x) ((float)(x))
#define FOR_I(...)
#define FOR_F(...) __VA_ARGS__
#define FOR_C(...)
#define FOR_IF(...) __VA_ARGS__
#define FOR_FC(...) __VA_ARGS__
#define FOR_IFC(...) __VA_ARGS__
#define WITH_SAME(...) __VA_ARGS__
#define WITH_COMPARE(...)
#define WITH_LOGICAL(...)
#define WITH_WHERE(...)
#define WITH_CAST(...)
#define WITH_PART(...)
#define WITH_SEEDED(...)
#define HR_POINTWISE(NAME, name, arity, rule, classes, accuracy, cost, traits, integer, re, cx, doc)              \
  WITH_##rule(FOR_##classes(                                                                                      \
      __attribute__((unused, always_inline)) static inline float row_##name(float a, float b, float c, float d) { \
        (void)a, (void)b, (void)c, (void)d;                                                                       \
        return re;                                                                                                \
      }))
#define HR_REDUCE(...)
#define HR_ARGREDUCE(...)
#define HR_CONTRACTION(...)
#define HR_COMPOSITE(...)
#define HR_LIBRARY(...)
#define HR_SPECIAL(...)
#include "core/ops/ops.def"

enum { UNIT = 4096, UNITS_OF_A_THREAD = 4 };

typedef struct adam { /* its name follows */
  hr_host_kernel base;
  hr_host_pass pass;
  decay_kind decay;
  int args[LOADS], numbers[NUMBERS_MAX], number_count;
  int64_t offsets[LOADS], count;
} adam;

/* `numbers` begin with that of the decay, if there is one. Operands are different buffers, or the same element of one:
 * all loads come before the stores. */
static inline __attribute__((always_inline)) void update(float *const *operands, const float *numbers, int64_t begin,
                                                         int64_t end, decay_kind kind) {
  float *param = operands[PARAM], *mean = operands[MEAN], *square = operands[SQUARE];
  const float *grad = operands[GRAD], *n = numbers + (kind != DECAY_NONE);
  HR_LOOP_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) {
    float kept = param[i], slope = grad[i];
    slope = kind == DECAY_IN_GRADIENT ? row_add_scaled(slope, kept, numbers[0], 0) : slope;
    kept = kind == DECAY_OF_PARAM ? row_mul(kept, numbers[0], 0, 0) : kept;
    const float new_mean = row_lerp(mean[i], slope, n[0], 0);
    const float new_square = row_addcmul(row_mul(square[i], n[1], 0, 0), slope, slope, n[2]);
    const float root = row_sqrt(new_square, 0, 0, 0);
    const float divisor = row_add(row_div(root, n[3], 0, 0), n[4], 0, 0);
    mean[i] = new_mean, square[i] = new_square;
    param[i] = row_addcdiv(kept, new_mean, divisor, n[5]);
  }
}

static void run_units(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)pass;
  const adam *a = (const adam *)kernel;
  float *operands[LOADS], numbers[NUMBERS_MAX];
  for (int i = 0; i < LOADS; ++i) {
    operands[i] = (float *)call->args[a->args[i]] + a->offsets[i];
  }
  for (int i = 0; i < a->number_count; ++i) {
    hr__scalar_to_class(&call->scalars[a->numbers[i]], HR_CLASS_F32, &numbers[i]);
  }
  begin *= UNIT, end = end * UNIT < a->count ? end * UNIT : a->count;
  if (a->decay == DECAY_NONE) {
    update(operands, numbers, begin, end, DECAY_NONE);
  } else if (a->decay == DECAY_OF_PARAM) {
    update(operands, numbers, begin, end, DECAY_OF_PARAM);
  } else {
    update(operands, numbers, begin, end, DECAY_IN_GRADIENT);
  }
}

static void destroy(hr_host_kernel *kernel) {
  hr_free(kernel);
}

/* Fills all but the name, from a kernel that fits. */
static void fill(adam *a, const hr_kernel *kernel) {
  form f;
  (void)find_form(kernel, &f);
  a->decay = f.decay;
  a->number_count = f.number_count;
  memcpy(a->numbers, f.numbers, sizeof a->numbers);
  for (int i = 0; i < LOADS; ++i) {
    a->args[i] = kernel->accesses[f.accesses[i]].arg, a->offsets[i] = kernel->accesses[f.accesses[i]].offset;
  }
  a->count = 1;
  for (int d = 0; d < kernel->rank; ++d) {
    a->count *= kernel->dims[d];
  }
  a->pass = (hr_host_pass){hr_divide_up(a->count, UNIT), UNITS_OF_A_THREAD};
  a->base.bytes = kernel->bytes;
}

hr_status hr__adam_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel) {
  size_t bytes = 0;
  const char *name = NULL;
  adam *a = hr__named_calloc(sizeof *a, kernel->name, &name, &bytes);
  if (a == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a kernel of Adam's step");
  }
  a->base = (hr_host_kernel){
      .name = name, .pass_count = 1, .passes = &a->pass, .footprint = bytes, .run = run_units, .destroy = destroy};
  fill(a, kernel);
  *out_host_kernel = &a->base;
  return HR_OK;
}

bool hr__adam_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  bool can = host_kernel->run == run_units && hr__adam_fits(kernel);
  if (can) {
    fill((adam *)host_kernel, kernel);
  }
  return can;
}
