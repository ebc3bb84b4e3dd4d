/* program_generator.c: choices, tensors and views of random programs; operations are in program_rows.c and
 * program_composites.c. See program_generator.h. */
#include "program_generator.h"

#include "base/allocator.h"
#include "program_maker.h"

enum { BUFFERS_PER_NODE = 24, ARGUMENTS_PER_NODE = 16 };

/* ---- choices ---- */

uint64_t hr__next(hr__maker *m) {
  m->state ^= m->state << 13;
  m->state ^= m->state >> 7;
  m->state ^= m->state << 17;
  return m->state >> 3;
}

double hr__uniform(hr__maker *m) {
  return (double)(hr__next(m) >> 8) * 0x1p-53;
}

hr_dtype hr__any_dtype(hr__maker *m) {
  static const hr_dtype pool[] = {HR_DTYPE_F32, HR_DTYPE_F32,  HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F64,
                                  HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_I64, HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_U32,
                                  HR_DTYPE_U64, HR_DTYPE_I16,  HR_DTYPE_U16, HR_DTYPE_I8,  HR_DTYPE_U8,  HR_DTYPE_BOOL};
  return HR__PICK_FROM(m, pool);
}

hr_dtype hr__real_dtype(hr__maker *m) {
  static const hr_dtype pool[] = {HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32,
                                  HR_DTYPE_F32, HR_DTYPE_F64, HR_DTYPE_F16, HR_DTYPE_BF16};
  return HR__PICK_FROM(m, pool);
}

/* ---- operands ---- */

int64_t hr__count(const hr_operand *x) {
  int64_t count = 1;
  for (int d = 0; d < x->rank; ++d) {
    count *= x->dims[d];
  }
  return count;
}

bool hr__has_dims(const hr_operand *x, int rank, const int64_t *dims) {
  return x->kind == HR_OPERAND_VALUE && x->rank == rank &&
         (rank == 0 || memcmp(x->dims, dims, (size_t)rank * sizeof *dims) == 0);
}

bool hr__is_contiguous(const hr_operand *x) {
  int64_t step = 1;
  for (int d = x->rank - 1; d >= 0; --d) {
    if (x->dims[d] != 1 && x->strides[d] != step) {
      return false;
    }
    step *= x->dims[d];
  }
  return true;
}

static hr_operand number(hr__maker *m, hr_scalar value) {
  hr_operand operand = {.kind = HR_OPERAND_SCALAR, .dtype = value.dtype, .fill = HR_NO_SCALAR};
  operand.index = hr_program_add_argument(&m->g->program, value.dtype);
  m->g->arguments[m->argument_count++] = value;
  return operand;
}

hr_operand hr__number(hr__maker *m, double value) {
  return number(m, hr_scalar_f64(value));
}

hr_operand hr__integer(hr__maker *m, int64_t value) {
  return number(m, hr_scalar_i64(value));
}

hr_operand hr__some_number(hr__maker *m) {
  double value = floor(hr__uniform(m) * 16 - 8) / 4;
  return hr__chance(m, 3) ? hr__integer(m, (int64_t)value) : hr__number(m, value);
}

/* An operand with dims and strides of its own. */
static hr_operand view(hr__maker *m, uint32_t buffer, hr_dtype dtype, int rank, const int64_t *dims,
                       const int64_t *strides, int64_t offset) {
  hr_arena *arena = &m->g->program.arena;
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = dtype,
                      .index = buffer,
                      .rank = rank,
                      .offset = offset,
                      .dims = hr_arena_dup(arena, rank > 0 ? dims : NULL, (size_t)rank * sizeof *dims),
                      .strides = hr_arena_dup(arena, rank > 0 ? strides : NULL, (size_t)rank * sizeof *strides),
                      .fill = HR_NO_SCALAR};
}

void hr__add_view(hr__maker *m, const hr_operand *x, bool is_writable) {
  if (m->tensor_count == HR__TENSORS_MAX) {
    m->tensor_count = HR__TENSORS_MAX / 2; /* forget the younger half */
  }
  hr__tensor *t = &m->tensors[m->tensor_count++];
  t->operand = *x;
  t->is_writable = is_writable;
  if (x->rank > 0) {
    memcpy(t->dims, x->dims, (size_t)x->rank * sizeof *x->dims);
    memcpy(t->strides, x->strides, (size_t)x->rank * sizeof *x->strides);
  }
  t->operand.dims = t->dims, t->operand.strides = t->strides;
}

/* ---- buffers ---- */

static void store_element(hr_dtype dtype, void *to, double value) {
  switch (dtype) {
    case HR_DTYPE_BOOL:
      *(uint8_t *)to = value > 0;
      break;
    case HR_DTYPE_U8:
    case HR_DTYPE_I8:
      *(uint8_t *)to = (uint8_t)(int)(value * 20 + 16);
      break;
    case HR_DTYPE_U16:
    case HR_DTYPE_I16:
      *(uint16_t *)to = (uint16_t)(int)(value * 200);
      break;
    case HR_DTYPE_U32:
    case HR_DTYPE_I32:
      *(int32_t *)to = (int32_t)(value * 20);
      break;
    case HR_DTYPE_U64:
    case HR_DTYPE_I64:
      *(int64_t *)to = (int64_t)(value * 20);
      break;
    case HR_DTYPE_F16:
      *(uint16_t *)to = hr_f32_to_f16((float)value);
      break;
    case HR_DTYPE_BF16:
      *(uint16_t *)to = hr_f32_to_bf16((float)value);
      break;
    case HR_DTYPE_F8E4M3FN:
    case HR_DTYPE_F8E5M2:
    case HR_DTYPE_F8E4M3FNUZ:
    case HR_DTYPE_F8E5M2FNUZ:
    case HR_DTYPE_F8E8M0FNU:
    case HR_DTYPE_F8E4M3:
    case HR_DTYPE_F8E3M4:
    case HR_DTYPE_F8E4M3B11FNUZ:
    case HR_DTYPE_F4E2M1FN:
      *(uint8_t *)to = hr_f32_to_f8(dtype, (float)value);
      break;
    case HR_DTYPE_F32:
      *(float *)to = (float)value;
      break;
    case HR_DTYPE_C64:
      ((float *)to)[0] = (float)value, ((float *)to)[1] = (float)(1 - value * value);
      break;
    case HR_DTYPE_C128:
      ((double *)to)[0] = value, ((double *)to)[1] = 1 - value * value;
      break;
    default:
      *(double *)to = value;
      break;
  }
}

static double special(hr__maker *m) {
  static const double table[] = {INFINITY, -INFINITY, NAN, -0.0, 0.0, 1e30, -1e-30, 100.0};
  return hr__chance(m, 8) ? HR__PICK_FROM(m, table) : hr__uniform(m) * 6 - 3;
}

/* A new buffer of `count` elements; integers stay small. */
static uint32_t add_buffer(hr__maker *m, hr_dtype dtype, int64_t count, bool is_dead, bool is_fresh) {
  generated *g = m->g;
  size_t size = hr_dtype_size(dtype), bytes = (size_t)count * size;
  uint32_t b = hr_program_add_buffer(&g->program, bytes, is_dead, is_fresh);
  g->bytes[b] = bytes;
  g->dtypes[b] = dtype;
  g->memory[b] = calloc(1, bytes + 64);
  bool has_specials = hr__chance(m, 5) && hr_dtype_is_real(dtype);
  uint64_t state = m->state;
  for (int64_t i = 0; i < count; ++i) {
    store_element(dtype, (char *)g->memory[b] + (size_t)i * size, has_specials ? special(m) : hr__uniform(m) * 6 - 3);
  }
  m->state = m->is_sized ? state : m->state;
  g->buffer_count = (int)b + 1;
  return b;
}

hr_operand hr__apart(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims, bool is_dead, bool is_fresh) {
  int64_t strides[HR_RANK_MAX], count = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = count;
    count *= dims[d];
  }
  return view(m, add_buffer(m, dtype, count, is_dead, is_fresh), dtype, rank, dims, strides, 0);
}

hr_operand hr__new_tensor(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_operand x = hr__apart(m, dtype, rank, dims, false, false);
  hr__add_view(m, &x, true);
  return x;
}

hr_operand hr__new_output(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_operand x = hr__apart(m, dtype, rank, dims, hr__chance(m, 2), true);
  hr__add_view(m, &x, true);
  return x;
}

hr_operand hr__new_index(hr__maker *m, int rank, const int64_t *dims, int64_t extent) {
  hr_dtype dtype = hr__chance(m, 4) ? HR_DTYPE_I32 : HR_DTYPE_I64;
  hr_operand x = hr__apart(m, dtype, rank, dims, false, false);
  int64_t count = hr__count(&x), wrong = hr__chance(m, 40) && count > 0 ? hr__pick(m, (int)count) : -1;
  uint64_t state = m->state;
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = extent > 0 ? hr__pick(m, (int)extent) : 0;
    value = i == wrong ? extent + hr__pick(m, 3) : value;
    char *at = (char *)m->g->memory[x.index] + (size_t)i * hr_dtype_size(dtype);
    if (dtype == HR_DTYPE_I32) {
      *(int32_t *)(void *)at = (int32_t)value;
    } else {
      *(int64_t *)(void *)at = value;
    }
  }
  m->state = m->is_sized ? state : m->state;
  return x;
}

hr_operand hr__strange_tensor(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  int64_t strides[HR_RANK_MAX], count = 1, offset = 0;
  int order[HR_RANK_MAX] = {0};
  for (int d = 0; d < rank; ++d) {
    int other = hr__pick(m, d + 1);
    order[d] = order[other];
    order[other] = d;
  }
  for (int k = rank - 1; k >= 0; --k) {
    int d = order[k], step = 1 + hr__chance(m, 4);
    strides[d] = count * step;
    count *= dims[d] * step + hr__chance(m, 3);
    if (hr__chance(m, 5) && dims[d] > 0) {
      offset += strides[d] * (dims[d] - 1);
      strides[d] = -strides[d];
    }
  }
  uint32_t buffer = add_buffer(m, dtype, count + 8, false, false);
  hr_operand x = view(m, buffer, dtype, rank, dims, strides, offset + hr__pick(m, 8));
  hr__add_view(m, &x, true);
  return x;
}

/* ---- views ---- */

static hr_operand own_view(hr__maker *m, hr_operand x) {
  return view(m, x.index, x.dtype, x.rank, x.dims, x.strides, x.offset);
}

hr_operand hr__slice(hr__maker *m, hr_operand x, int dim, int64_t start, int64_t count, int64_t step) {
  x = own_view(m, x);
  x.offset += start * x.strides[dim];
  ((int64_t *)x.dims)[dim] = count;
  ((int64_t *)x.strides)[dim] *= step;
  return x;
}

hr_operand hr__permute(hr__maker *m, hr_operand x, const int *order) {
  hr_operand out = own_view(m, x);
  for (int d = 0; d < x.rank; ++d) {
    ((int64_t *)out.dims)[d] = x.dims[order[d]];
    ((int64_t *)out.strides)[d] = x.strides[order[d]];
  }
  return out;
}

hr_operand hr__reverse(hr__maker *m, hr_operand x, int dim) {
  x = own_view(m, x);
  x.offset += x.dims[dim] > 0 ? (x.dims[dim] - 1) * x.strides[dim] : 0;
  ((int64_t *)x.strides)[dim] *= -1;
  return x;
}

hr_operand hr__reshape(hr__maker *m, hr_operand x, int rank, const int64_t *dims) {
  int64_t strides[HR_RANK_MAX], step = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = step;
    step *= dims[d];
  }
  return view(m, x.index, x.dtype, rank, dims, strides, x.offset);
}

/* A dim of x as two. */
static hr_operand split(hr__maker *m, hr_operand x, int dim, int64_t inner) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  for (int d = 0; d <= x.rank; ++d) {
    int from = d <= dim ? d : d - 1;
    dims[d] = d == dim ? x.dims[dim] / inner : d == dim + 1 ? inner : x.dims[from];
    strides[d] = x.strides[from] * (d == dim ? inner : 1);
  }
  return view(m, x.index, x.dtype, x.rank + 1, dims, strides, x.offset);
}

/* One more view of a tensor: a slice, every other element, a permutation, a reversal, one of more or fewer dims. */
static void add_random_view(hr__maker *m) {
  const hr__tensor *t = &m->tensors[hr__pick(m, m->tensor_count)];
  bool is_writable = t->is_writable;
  hr_operand x = own_view(m, t->operand);
  if (x.rank == 0) {
    return;
  }
  int dim = hr__pick(m, x.rank), order[HR_RANK_MAX];
  int64_t size = x.dims[dim];
  switch (hr__pick(m, 6)) {
    case 0:
      if (size >= 2) {
        int64_t start = hr__pick(m, 2), step = size >= 4 ? 1 + hr__pick(m, 2) : 1;
        x = hr__slice(m, x, dim, start, (size - start - hr__pick(m, 2) + step - 1) / step, step);
      }
      break;
    case 1:
      for (int d = 0; d < x.rank; ++d) {
        order[d] = x.rank - 1 - d;
      }
      x = hr__permute(m, x, order);
      break;
    case 2:
      x = hr__reverse(m, x, dim);
      break;
    case 3:
      if (hr__is_contiguous(&x)) {
        int64_t flat = hr__count(&x);
        x = hr__reshape(m, x, 1, &flat);
      }
      break;
    case 4:
      for (int64_t inner = 2; inner <= 5 && x.rank < 5 && size > inner; ++inner) {
        if (size % inner == 0) {
          x = split(m, x, dim, inner);
          break;
        }
      }
      break;
    default: /* one row for all: only to be read */
      x = hr__slice(m, x, dim, 0, size, 0);
      is_writable = is_writable && size <= 1;
      break;
  }
  hr__add_view(m, &x, is_writable);
}

/* ---- choosing tensors ---- */

hr_operand hr__any_tensor(hr__maker *m, bool is_real, int rank_min) {
  for (int tries = 0; tries < 40; ++tries) {
    const hr__tensor *t = &m->tensors[hr__pick(m, m->tensor_count)];
    if (t->operand.rank >= rank_min && (!is_real || hr_dtype_is_real(t->operand.dtype))) {
      return own_view(m, t->operand);
    }
  }
  int64_t dims[HR_RANK_MAX] = {1, 1, 1, 1, 1};
  int rank = rank_min > 3 ? rank_min : 3;
  memcpy(dims + rank - 3, m->base, sizeof m->base);
  return hr__new_tensor(m, is_real ? HR_DTYPE_F32 : hr__any_dtype(m), rank, dims);
}

static hr_operand find_input(hr__maker *m, bool is_real, hr_dtype dtype, int rank, const int64_t *dims) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  for (int tries = 0; tries < 24; ++tries) {
    const hr_operand *x = &m->tensors[hr__pick(m, m->tensor_count)].operand;
    if ((dtype != HR_DTYPE_NONE && x->dtype != dtype) || (is_real && !hr_dtype_is_real(x->dtype))) {
      continue;
    }
    if (hr__has_dims(x, rank, dims)) {
      return own_view(m, *x);
    }
    if (hr__is_contiguous(x) && hr__count(x) == count && count > 0) {
      return hr__reshape(m, *x, rank, dims);
    }
  }
  hr_dtype mine = dtype != HR_DTYPE_NONE ? dtype : is_real ? hr__real_dtype(m) : hr__any_dtype(m);
  return hr__chance(m, 3) ? hr__strange_tensor(m, mine, rank, dims) : hr__new_tensor(m, mine, rank, dims);
}

hr_operand hr__input(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  return find_input(m, false, dtype, rank, dims);
}

hr_operand hr__real_input(hr__maker *m, int rank, const int64_t *dims) {
  return find_input(m, true, HR_DTYPE_NONE, rank, dims);
}

static bool is_spreadable(const hr_operand *x, int rank, const int64_t *dims) {
  for (int d = 0; d < x->rank && x->rank <= rank; ++d) {
    if (x->dims[d] != 1 && x->dims[d] != dims[rank - x->rank + d]) {
      return false;
    }
  }
  return x->rank <= rank;
}

hr_operand hr__spreadable(hr__maker *m, int rank, const int64_t *dims) {
  if (hr__chance(m, 6)) {
    return hr__some_number(m);
  }
  for (int tries = 0; tries < 16; ++tries) {
    const hr_operand *x = &m->tensors[hr__pick(m, m->tensor_count)].operand;
    if (is_spreadable(x, rank, dims)) {
      return own_view(m, *x);
    }
  }
  int64_t part[HR_RANK_MAX];
  for (int d = 0; d < rank; ++d) {
    part[d] = hr__chance(m, 4) ? 1 : dims[d];
  }
  int skipped = hr__chance(m, 4) && rank > 0 ? 1 : 0;
  return hr__new_tensor(m, hr__any_dtype(m), rank - skipped, part + skipped);
}

hr_operand hr__target(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  for (int tries = 0; tries < 24; ++tries) {
    const hr__tensor *t = &m->tensors[hr__pick(m, m->tensor_count)];
    if (t->is_writable && t->operand.dtype == dtype && hr__has_dims(&t->operand, rank, dims)) {
      return own_view(m, t->operand);
    }
  }
  return hr__chance(m, 3) ? hr__strange_tensor(m, dtype, rank, dims) : hr__new_tensor(m, dtype, rank, dims);
}

hr_operand hr__output(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  return hr__chance(m, 3) ? hr__target(m, dtype, rank, dims) : hr__new_output(m, dtype, rank, dims);
}

/* ---- nodes ---- */

/* The buffer that replaces every buffer while an operation is checked. */
static hr_device *device;
static hr_buffer *stand_in;

__attribute__((destructor)) static void close_stand_in(void) {
  hr_buffer_release(stand_in);
  hr_device_release(device);
}

static hr_status open_stand_in(void) {
  if (stand_in == NULL) {
    HR_RETURN_IF_ERROR(hr_device_open("null", &device));
    HR_RETURN_IF_ERROR(hr_buffer_create(device, (size_t)1 << 28, &stand_in));
  }
  return HR_OK;
}

static void make_views(const hr__maker *m, int count, const hr_operand *operands, hr_view *out_views, bool *has_none) {
  for (int i = 0; i < count; ++i) {
    const hr_operand *x = &operands[i];
    out_views[i] = (hr_view){.dtype = x->dtype};
    if (x->kind == HR_OPERAND_SCALAR) {
      out_views[i].scalar = &m->g->arguments[m->g->program.scalars[x->index].argument];
    } else if (x->kind == HR_OPERAND_VALUE) {
      out_views[i] = (hr_view){stand_in, NULL, x->dtype, x->rank, x->offset, x->dims, x->strides};
      *has_none |= hr__count(x) == 0;
    }
  }
}

static hr_tensor_type type_of(const hr_view *view) {
  hr_tensor_type type = {.dtype = view->dtype, .rank = view->rank, .is_number = view->scalar != NULL};
  type.dtype = view->buffer == NULL && view->scalar == NULL ? HR_DTYPE_NONE : type.dtype;
  for (int d = 0; d < view->rank; ++d) {
    type.dims[d] = view->dims[d], type.strides[d] = view->strides[d];
  }
  return type;
}

static bool has_dims(const hr_tensor_type *type, const hr_view *view, bool is_pointwise) {
  int added = view->rank - type->rank;
  bool is_one = type->rank == 0;
  for (int d = 0; d < view->rank; ++d) {
    is_one &= view->dims[d] == 1;
  }
  if (is_one || added < 0 || (added > 0 && !is_pointwise)) {
    return is_one || (is_pointwise && type->rank == 0);
  }
  bool is_equal = true; /* an element-wise output may be larger than its inputs */
  for (int d = 0; d < type->rank; ++d) {
    is_equal &= type->dims[d] == view->dims[added + d] || (is_pointwise && type->dims[d] == 1);
  }
  return is_equal;
}

/* Checks that recording and inference give the same outputs. */
static hr_status expect_inferred(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                 int output_count, const hr_view *outputs) {
  hr_tensor_type in[HR__OPERANDS_MAX], out[HR__OPERANDS_MAX];
  for (int i = 0; i < input_count; ++i) {
    in[i] = type_of(&inputs[i]);
  }
  for (int i = 0; i < output_count; ++i) {
    out[i] = type_of(&outputs[i]);
  }
  HR_RETURN_IF_ERROR(hr_op_infer(op, attrs, input_count, in, output_count, out));
  bool is_pointwise = hr_op_table(op)->family == HR_FAMILY_POINTWISE;
  for (int i = 0; i < output_count; ++i) {
    if (outputs[i].buffer != NULL &&
        (!has_dims(&out[i], &outputs[i], is_pointwise) || out[i].dtype != outputs[i].dtype)) {
      return hr_status_make(HR_STATUS_INTERNAL, "%s: output %d of %d dims is inferred with %d", hr_op_table(op)->name,
                            i, outputs[i].rank, out[i].rank);
    }
  }
  return HR_OK;
}

void hr__end(hr__maker *m, hr__draft *draft) {
  hr_view inputs[HR__OPERANDS_MAX], outputs[HR__OPERANDS_MAX];
  bool has_none = false; /* a list without elements: rows may reject it */
  if (m->status == HR_OK) {
    m->status = open_stand_in();
  }
  if (m->status != HR_OK) {
    return;
  }
  make_views(m, draft->input_count, draft->inputs, inputs, &has_none);
  make_views(m, draft->output_count, draft->outputs, outputs, &has_none);
  hr_attrs attrs = {draft->int_count, draft->scalar_count, draft->ints, draft->scalars};
  hr_status status = hr_op_check(draft->op, &attrs, draft->input_count, inputs, draft->output_count, outputs);
  if (status != HR_OK) {
    if (has_none) {
      hr_status_ignore(status);
      for (int i = 0; i < draft->output_count; ++i) { /* buffers without a writer have contents all the same */
        hr_program_buffer *buffer = &m->g->program.buffers[draft->outputs[i].index];
        bool is_value = draft->outputs[i].kind == HR_OPERAND_VALUE;
        buffer->is_fresh &= !is_value, buffer->is_dead &= !is_value;
      }
    } else {
      m->status = hr_status_annotate(status, "generated");
    }
    return;
  }
  m->status = expect_inferred(draft->op, &attrs, draft->input_count, inputs, draft->output_count, outputs);
  if (m->status != HR_OK) {
    return;
  }
  hr_node node = {.op = draft->op,
                  .input_count = draft->input_count,
                  .inputs = draft->inputs,
                  .output_count = draft->output_count,
                  .outputs = draft->outputs,
                  .int_count = draft->int_count,
                  .ints = draft->ints,
                  .scalar_base = (uint32_t)m->g->program.scalar_count,
                  .scalar_count = draft->scalar_count};
  for (int i = 0; i < draft->scalar_count; ++i) {
    number(m, draft->scalars[i]);
  }
  if (!hr_program_append(&m->g->program, &node)) {
    m->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node");
  }
}

/* ---- programs ---- */

/* Small ones of all kinds, long rows, many short rows, and now and then no elements at all. */
static void choose_base(hr__maker *m) {
  static const int64_t pool[] = {1, 1, 2, 3, 4, 5, 8, 12, 17, 33, 64, 100};
  do {
    for (int d = 0; d < 3; ++d) {
      m->base[d] = HR__PICK_FROM(m, pool);
    }
  } while (m->base[0] * m->base[1] * m->base[2] > 24000);
  switch (hr__pick(m, 30)) {
    case 0:
    case 1: /* long rows */
      m->base[2] = 5000 + hr__pick(m, 15000);
      m->base[0] = 1 + hr__pick(m, 2), m->base[1] = 1 + hr__pick(m, 2);
      break;
    case 2:
    case 3: /* many short ones */
      m->base[0] = 300 + hr__pick(m, 2000);
      m->base[1] = 1 + hr__pick(m, 3), m->base[2] = 1 + hr__pick(m, 4);
      break;
    case 4: /* long columns */
      m->base[hr__pick(m, 2)] = 2000 + hr__pick(m, 6000);
      m->base[2] = 1 + hr__pick(m, 3);
      m->base[m->base[0] >= 2000 ? 1 : 0] = 1;
      break;
    case 5:
      m->base[hr__pick(m, 3)] = 0;
      break;
    default:
      break;
  }
}

static void make_first_tensors(hr__maker *m) {
  for (int k = 0; k < 3; ++k) {
    hr__new_tensor(m, k == 0 ? HR_DTYPE_F32 : hr__any_dtype(m), 3, m->base);
    hr__strange_tensor(m, k == 0 ? HR_DTYPE_F32 : hr__any_dtype(m), 3, m->base);
  }
  hr__new_tensor(m, HR_DTYPE_F32, 1, &m->base[2]);
  hr__new_tensor(m, HR_DTYPE_F32, 3, (int64_t[]){m->base[0], 1, 1});
  hr__new_tensor(m, HR_DTYPE_F32, 2, (int64_t[]){m->base[1], 1});
}

static hr_status generate(uint64_t seed, int node_count, const int64_t *base, generated *g) {
  hr__maker *m = calloc(1, sizeof *m);
  m->state = seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  m->g = g;
  memset(g, 0, sizeof *g);
  hr_program_init(&g->program);
  size_t buffers = BUFFERS_PER_NODE * ((size_t)node_count + 2);
  g->bytes = calloc(buffers, sizeof *g->bytes);
  g->dtypes = calloc(buffers, sizeof *g->dtypes);
  g->memory = calloc(buffers, sizeof *g->memory);
  g->arguments = calloc(ARGUMENTS_PER_NODE * (size_t)node_count + 8, sizeof *g->arguments);
  hr__next(m);
  choose_base(m);
  m->is_sized = base != NULL;
  if (base != NULL) {
    memcpy(m->base, base, sizeof m->base);
  }
  make_first_tensors(m);
  for (int n = 0; n < node_count && m->status == HR_OK; ++n) {
    if (hr__chance(m, 4)) {
      add_random_view(m);
    }
    if (hr__chance(m, 3)) {
      hr__add_composite(m);
    } else {
      hr__add_rows(m);
    }
  }
  g->program.bound_count = g->program.buffer_count;
  hr_status status = m->status;
  free(m);
  if (status != HR_OK) {
    hr__generated_fini(g);
  }
  return status;
}

hr_status hr__generate_program(uint64_t seed, int node_count, generated *g) {
  return generate(seed, node_count, NULL, g);
}

hr_status hr__generate_sized(uint64_t seed, int node_count, const int64_t base[3], generated *g) {
  return generate(seed, node_count, base, g);
}

void hr__generated_fini(generated *g) {
  for (int b = 0; b < g->buffer_count; ++b) {
    free(g->memory[b]);
  }
  free(g->memory);
  free(g->bytes);
  free(g->dtypes);
  free(g->arguments);
  hr_program_fini(&g->program);
}
