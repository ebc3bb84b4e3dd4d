/* product.c: walks the records of a tape forwards: products of Jacobians and tangents.
 *
 *   record   y = f(x0, x1)
 *   forward  tangent[y] = J0 tangent[x0] + J1 tangent[x1]
 *
 * A buffer's tangent has its layout, as an adjoint has (adjoint.h). The products are found from the rules of gradients:
 *
 *   element-wise rows        J is diagonal: the rule of input i with the tangent in the place of g. Of complex numbers
 *                            the rule is the one of the conjugate.
 *   linear rows              whose rules read no floating value: the row itself, of tangents
 *   contractions             linear in each factor: the row with a tangent in the place of the factor, summed
 *   others                   rules are linear in g: the gradient by v of J^T v, paired with the tangents, is J tangent
 *
 * The last needs no values that the record has not, and its J^T v is never needed.
 */
#include "base/allocator.h"
#include "transform/gradients.h"

typedef struct walk {
  hr_tape *tape;
  hr__adjoints tangents;
  int input_count;
  const hr_tensor *const *inputs, *const *seeds;
} walk;

/* A record, and the tangents of its inputs; without a buffer: 0. */
typedef struct step {
  hr__backward b;
  hr__adjoints *tangents;
  hr_tensor *t;
} step;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "tape: no host memory for a product");
}

static const hr_tensor zero_number = {.dtype = HR_DTYPE_I64, .number = {.dtype = HR_DTYPE_I64}};

static hr_status zeros_like(const step *s, const hr__operand *like, hr_tensor *out) {
  const hr_tensor *number = &zero_number;
  return hr__record_new(&s->b.call, HR_OP_COPY, NULL, 1, &number, like->view.dtype, like->view.rank, like->view.dims,
                        out);
}

static const hr_tensor *tangent(const step *s, int i) {
  return i < s->b.record->input_count && s->t[i].buffer != NULL ? &s->t[i] : NULL;
}

/* Adds to the tangent of output o, and releases the product. */
static hr_status add(const step *s, int o, hr_status status, hr_tensor *product) {
  if (status != HR_OK) {
    return status;
  }
  status = hr__adjoint_add(s->tangents, &s->b.call, &s->b.record->outputs[o], product);
  hr_tensor_release(product);
  return status;
}

/* ---- element-wise rows ---- */

/* A view of real numbers. */
static hr_status conjugate(const step *s, const hr_tensor *x, hr_tensor *out) {
  if (!hr_dtype_is_complex(x->dtype)) {
    hr__view_like(x, out);
    return HR_OK;
  }
  return hr__record_one(&s->b.call, HR_OP_CONJ, NULL, 1, &x, HR_DTYPE_NONE, out);
}

/* True if each Jacobian is diagonal, and real or that of a function with a complex derivative. */
static bool is_diagonal(const step *s) {
  const hr__taped *record = s->b.record;
  bool is_complex = hr_dtype_is_complex(record->outputs[0].view.dtype);
  bool is = hr_op_table(record->op)->family == HR_FAMILY_POINTWISE && record->op != HR_OP_COMPLEX &&
            record->op != HR_OP_POLAR;
  for (int i = 0; is && i < record->input_count; ++i) {
    is = tangent(s, i) == NULL || is_complex || !hr_dtype_is_complex(record->inputs[i].view.dtype);
  }
  return is && hr__gradient_of(record->op)->kind == HR__GRADIENT_TEXT;
}

static hr_status evaluate_with(const step *s, int i, const char *text, const hr_tensor *g, hr_tensor *out) {
  hr__backward b = s->b;
  b.g = g;
  return hr__evaluate(&b, text, i, out);
}

/* Rules have the conjugate of the derivative: conj(rule(conj(t))) */
static hr_status product_of_rule(const step *s, int i, const char *text, hr_tensor *out) {
  hr_tensor turned, product;
  if (!hr_dtype_is_complex(s->b.record->outputs[0].view.dtype)) {
    return evaluate_with(s, i, text, &s->t[i], out);
  }
  HR_RETURN_IF_ERROR(conjugate(s, &s->t[i], &turned));
  hr_status status = evaluate_with(s, i, text, &turned, &product);
  hr_tensor_release(&turned);
  HR_RETURN_IF_ERROR(status);
  status = conjugate(s, &product, out);
  hr_tensor_release(&product);
  return status;
}

static hr_status add_diagonals(const step *s) {
  const hr__gradient *gradient = hr__gradient_of(s->b.record->op);
  hr_tensor product;
  for (int i = 0; i < s->b.record->input_count; ++i) {
    const char *text = i < HR__RULES_MAX && gradient->rules[i] != NULL ? gradient->rules[i] : "?";
    if (tangent(s, i) == NULL || *text == '\0') {
      continue;
    }
    if (*text == '?') {
      return hr__refuse_gradient(&s->b, i, "it is not known here");
    }
    HR_RETURN_IF_ERROR(add(s, 0, product_of_rule(s, i, text, &product), &product));
  }
  return HR_OK;
}

/* ---- linear rows ---- */

/* True if the gradients of a row read no floating value, and the row is 0 at 0. */
static bool is_linear(const hr__taped *record) {
  hr__gradient_kind kind = hr__gradient_of(record->op)->kind;
  hr__letters letters = hr__row_letters(record->op);
  bool is = (kind == HR__GRADIENT_TEXT || kind == HR__GRADIENT_CODE) && letters.outputs == 0 &&
            hr_op_table(record->op)->family != HR_FAMILY_POINTWISE && record->op != HR_OP_PAD &&
            record->op != HR_OP_NORMAL;
  for (int i = 0; is && i < record->input_count; ++i) {
    is = !hr__has_letter(letters.inputs, i) || !hr__is_differentiable(record->inputs[i].view.dtype);
  }
  return is;
}

/* Floating inputs replaced by their tangents, of which some are zeros with a reference in `zeros`. */
static hr_status take_tangents(const step *s, const hr_tensor **inputs, hr_tensor *zeros) {
  for (int i = 0; i < s->b.record->input_count; ++i) {
    const hr__operand *x = &s->b.record->inputs[i];
    if (!hr__is_differentiable(x->view.dtype) || (x->serial == 0 && x->view.scalar == NULL)) {
      inputs[i] = hr__value(x, &zeros[i]);
    } else if (x->serial == 0) {
      inputs[i] = &zero_number;
    } else if (tangent(s, i) != NULL) {
      inputs[i] = tangent(s, i);
    } else {
      HR_RETURN_IF_ERROR(zeros_like(s, x, &zeros[i]));
      inputs[i] = &zeros[i];
    }
  }
  return HR_OK;
}

typedef hr_status (*row_of_tangents)(const step *s, const hr_tensor *const *inputs, hr_tensor *out);

static hr_status with_tangents(const step *s, row_of_tangents apply, hr_tensor *out) {
  size_t count = (size_t)s->b.record->input_count;
  hr_tensor *zeros = hr_calloc(count + 1, sizeof *zeros);
  const hr_tensor **inputs = hr_calloc(count + 1, sizeof *inputs);
  hr_status status = zeros != NULL && inputs != NULL ? take_tangents(s, inputs, zeros) : no_memory();
  status = status == HR_OK ? apply(s, inputs, out) : status;
  for (size_t i = 0; zeros != NULL && i < count; ++i) {
    hr_buffer_release(zeros[i].buffer);
  }
  hr_free(zeros);
  hr_free(inputs);
  return status;
}

static hr_status apply_row(const step *s, const hr_tensor *const *inputs, hr_tensor *out) {
  const hr__taped *record = s->b.record;
  const hr_view *like = &record->outputs[0].view;
  return hr__record_new(&s->b.call, record->op, &record->attrs, record->input_count, inputs, like->dtype, like->rank,
                        like->dims, out);
}

/* ---- rows that change a part of their output: so they do to the tangent ---- */

enum { SCATTER_ADD = 1 };

static bool changes_linearly(const hr__taped *record) {
  return record->op == HR_OP_INDEX_PUT || record->op == HR_OP_INDEX_ADD ||
         (record->op == HR_OP_SCATTER && record->attrs.ints[1] <= SCATTER_ADD);
}

static hr_status change_part(const step *s, const hr_tensor *const *inputs, hr_tensor *out) {
  const hr__taped *record = s->b.record;
  const hr__operand *at = &record->outputs[0];
  hr_tensor before, changed;
  HR_RETURN_IF_ERROR(hr__adjoint_take(s->tangents, &s->b.call, at, &before));
  const hr_tensor *from = before.buffer != NULL ? &before : &zero_number;
  hr_status status =
      hr__record_new(&s->b.call, HR_OP_COPY, NULL, 1, &from, at->view.dtype, at->view.rank, at->view.dims, &changed);
  hr_tensor_release(&before);
  HR_RETURN_IF_ERROR(status);
  status = hr__write_row(&s->b.call, record->op, &record->attrs, record->input_count, inputs, &changed);
  if (status != HR_OK) {
    hr_tensor_release(&changed);
    return status;
  }
  hr__copy_tensor(&changed, out);
  return HR_OK;
}

/* ---- contractions ---- */

/* The row with a tangent in the place of factor i, without a bias. */
static hr_status product_of_factor(const step *s, int i, hr_tensor *out) {
  const hr__taped *record = s->b.record;
  const hr_view *like = &record->outputs[0].view;
  hr_tensor number;
  const hr_tensor *inputs[2];
  inputs[i] = &s->t[i], inputs[1 - i] = hr__value(&record->inputs[1 - i], &number);
  return hr__record_new(&s->b.call, record->op, &record->attrs, 2, inputs, like->dtype, like->rank, like->dims, out);
}

/* A convolution's bias has one number for each channel, dim 1 of the output. */
static void spread_bias(const step *s, hr_tensor *out) {
  hr__view_like(&s->t[2], out);
  int rank = s->b.record->outputs[0].view.rank;
  for (; s->b.record->op != HR_OP_MATMUL && out->rank < rank - 1; ++out->rank) {
    out->dims[out->rank] = 1, out->strides[out->rank] = 0;
  }
}

static hr_status add_products(const step *s) {
  hr_tensor product;
  for (int i = 0; i < 2; ++i) {
    if (tangent(s, i) != NULL) {
      HR_RETURN_IF_ERROR(add(s, 0, product_of_factor(s, i, &product), &product));
    }
  }
  if (tangent(s, 2) != NULL) {
    spread_bias(s, &product);
    return add(s, 0, HR_OK, &product);
  }
  return HR_OK;
}

/* ---- any row, by its gradient ---- */

/* The gradient of J^T v by v. Pairs: J^T v and the tangent of a buffer. */
typedef struct transposition {
  int pair_count;
  hr_tensor *v, *found, *tangents, *products; /* in one block */
  const hr_tensor **pointers;                 /* to v, in the first third; to found; to tangents */
  uint64_t *serials;                          /* of the pairs */
} transposition;

static hr_status create_room(const step *s, transposition *r) {
  size_t outputs = (size_t)s->b.record->output_count, most = (size_t)s->b.record->input_count + outputs;
  *r = (transposition){.v = hr_calloc(2 * outputs + 2 * most + 1, sizeof *r->v),
                       .pointers = hr_calloc(3 * most + 1, sizeof *r->pointers),
                       .serials = hr_calloc(most + 1, sizeof *r->serials)};
  if (r->v == NULL || r->pointers == NULL || r->serials == NULL) {
    return no_memory();
  }
  r->products = r->v + outputs, r->found = r->products + outputs, r->tangents = r->found + most;
  return HR_OK;
}

static void release_room(const step *s, transposition *r) {
  size_t outputs = (size_t)s->b.record->output_count, most = (size_t)s->b.record->input_count + outputs;
  for (size_t i = 0; r->v != NULL && i < 2 * outputs + 2 * most; ++i) {
    hr_tensor_release(&r->v[i]);
  }
  hr_free(r->v);
  hr_free(r->pointers);
  hr_free(r->serials);
}

/* v: zeros like the outputs whose gradients rules read. Returns their number in *out_count. */
static hr_status make_cotangents(const step *s, transposition *r, int *out_count) {
  const hr__taped *record = s->b.record;
  hr__letters letters = hr__row_letters(record->op);
  *out_count = 0;
  for (int o = 0; o < record->output_count; ++o) {
    const hr__operand *y = &record->outputs[o];
    bool is_read = o == 0 || record->custom != NULL || hr__has_letter(letters.gradients, o);
    if (is_read && y->serial != 0 && hr__is_differentiable(y->view.dtype)) {
      HR_RETURN_IF_ERROR(zeros_like(s, y, &r->v[o]));
      r->pointers[(*out_count)++] = &r->v[o];
    }
  }
  return HR_OK;
}

/* Whole buffers: inputs may be parts of one, or the same. */
static hr_status add_pair(const step *s, hr__adjoints *found, const hr__operand *x, transposition *r) {
  if (!hr__adjoint_exists(found, x) || !hr__adjoint_exists(s->tangents, x)) {
    return HR_OK;
  }
  int64_t size = (int64_t)(x->bytes / hr_dtype_size(x->view.dtype)), stride = 1;
  const hr_view all = {.dtype = x->view.dtype, .rank = 1, .dims = &size, .strides = &stride};
  const hr__operand whole = {.serial = x->serial, .bytes = x->bytes, .view = all};
  for (int i = 0; i < r->pair_count; ++i) {
    if (r->serials[i] == x->serial) {
      return HR_OK;
    }
  }
  int at = r->pair_count++;
  r->serials[at] = x->serial;
  HR_RETURN_IF_ERROR(hr__adjoint_read(found, &s->b.call, &whole, &r->found[at]));
  return hr__adjoint_read(s->tangents, &s->b.call, &whole, &r->tangents[at]);
}

static hr_status find_pairs(const step *s, transposition *r) {
  const hr__taped *record = s->b.record;
  hr__adjoints found = {{0}};
  hr__backward b = s->b;
  b.adjoints = &found, b.g = r->v;
  hr_status status = hr__give_all(&b);
  for (int i = 0; status == HR_OK && i < record->input_count; ++i) {
    status = record->inputs[i].is_active ? add_pair(s, &found, &record->inputs[i], r) : HR_OK;
  }
  for (int o = 0; status == HR_OK && hr__updates(record) && o < record->output_count; ++o) {
    status = add_pair(s, &found, &record->outputs[o], r);
  }
  hr__adjoints_fini(&found);
  return status;
}

static hr_status differentiate(const step *s, transposition *r, hr_tape *tape) {
  int most = s->b.record->input_count + s->b.record->output_count, count;
  const hr_tensor **found = r->pointers + most, **tangents = found + most;
  hr_tensor *products = r->products;
  HR_RETURN_IF_ERROR(make_cotangents(s, r, &count));
  HR_RETURN_IF_ERROR(hr_tape_watch(tape, count, r->pointers));
  HR_RETURN_IF_ERROR(find_pairs(s, r));
  hr_tape_end(tape);
  for (int i = 0; i < r->pair_count; ++i) {
    found[i] = &r->found[i], tangents[i] = &r->tangents[i];
  }
  return hr_tape_gradient(tape, r->pair_count, found, tangents, count, r->pointers, products);
}

static hr_status clear(const step *s) {
  for (int o = 0; o < s->b.record->output_count; ++o) {
    if (s->b.record->outputs[o].serial != 0) {
      hr_tensor before;
      HR_RETURN_IF_ERROR(hr__adjoint_take(s->tangents, &s->b.call, &s->b.record->outputs[o], &before));
      hr_tensor_release(&before);
    }
  }
  return HR_OK;
}

static hr_status set_by_gradient(const step *s) {
  transposition r;
  hr_tape *tape = NULL;
  hr_status status = create_room(s, &r);
  status = status == HR_OK ? hr_tape_begin(s->b.call.stream, &tape) : status;
  status = status == HR_OK ? differentiate(s, &r, tape) : status;
  status = status == HR_OK ? clear(s) : status;
  for (int o = 0, at = 0; status == HR_OK && o < s->b.record->output_count; ++o) {
    if (r.v[o].buffer != NULL) {
      status = hr__adjoint_add(s->tangents, &s->b.call, &s->b.record->outputs[o], &r.products[at++]);
    }
  }
  hr_tape_destroy(tape);
  release_room(s, &r);
  return status;
}

/* ---- functions with a product of their own ---- */

static hr_status set_custom(const step *s) {
  const hr__taped *record = s->b.record;
  hr_tensor *products = hr_calloc((size_t)record->output_count + 1, sizeof *products);
  hr_status status = products != NULL ? hr__custom_product(&s->b, s->t, products) : no_memory();
  status = status == HR_OK ? clear(s) : status;
  for (int o = 0; products != NULL && o < record->output_count; ++o) {
    if (status == HR_OK && products[o].buffer != NULL && hr__is_differentiable(record->outputs[o].view.dtype)) {
      status = hr__adjoint_add(s->tangents, &s->b.call, &record->outputs[o], &products[o]);
    }
    hr_tensor_release(&products[o]);
  }
  hr_free(products);
  return status;
}

/* ---- one record ---- */

static hr_status take_inputs(step *s, bool *out_has) {
  const hr__taped *record = s->b.record;
  for (int i = 0; i < record->input_count; ++i) {
    if (record->inputs[i].is_active) {
      HR_RETURN_IF_ERROR(hr__adjoint_read(s->tangents, &s->b.call, &record->inputs[i], &s->t[i]));
      *out_has = *out_has || s->t[i].buffer != NULL;
    }
  }
  return HR_OK;
}

static bool has_tangent(const step *s) {
  for (int o = 0; o < s->b.record->output_count; ++o) {
    if (hr__adjoint_exists(s->tangents, &s->b.record->outputs[o])) {
      return true;
    }
  }
  return false;
}

static hr_status set_linear(const step *s, row_of_tangents apply) {
  hr_tensor product;
  HR_RETURN_IF_ERROR(with_tangents(s, apply, &product));
  hr_status status = clear(s);
  if (status != HR_OK) {
    hr_tensor_release(&product);
  }
  return add(s, 0, status, &product);
}

/* The tangents of the outputs; has_input: those of inputs are not all 0. */
static hr_status set_outputs(const step *s, bool has_input) {
  const hr__taped *record = s->b.record;
  bool changes = hr__updates(record);
  if (!has_input && !(changes && has_tangent(s))) {
    return changes ? HR_OK : clear(s);
  }
  if (record->custom != NULL) {
    return hr__custom_spec(record->custom)->product != NULL ? set_custom(s) : set_by_gradient(s);
  }
  if (hr__gradient_of(record->op)->kind == HR__GRADIENT_NONE) {
    return clear(s);
  }
  if (changes ? changes_linearly(record) : is_linear(record)) {
    return set_linear(s, changes ? change_part : apply_row);
  }
  if (changes || (!is_diagonal(s) && hr_op_table(record->op)->family != HR_FAMILY_CONTRACTION)) {
    return set_by_gradient(s);
  }
  HR_RETURN_IF_ERROR(clear(s));
  return is_diagonal(s) ? add_diagonals(s) : add_products(s);
}

static hr_status go_through(walk *w, const hr__taped *record) {
  const hr__function_row row = {.name = hr__taped_name(record)};
  step s = {.b = {.call = {.row = &row, .stream = w->tape->stream}, .record = record}, .tangents = &w->tangents};
  bool has_input = false;
  s.t = hr_calloc((size_t)record->input_count + 1, sizeof *s.t);
  if (s.t == NULL) {
    return no_memory();
  }
  hr_status status = take_inputs(&s, &has_input);
  status = status == HR_OK ? set_outputs(&s, has_input) : status;
  for (int i = 0; i < record->input_count; ++i) {
    hr_tensor_release(&s.t[i]);
  }
  hr_free(s.t);
  return status;
}

/* ---- the walk ---- */

static const hr__function_row tape_row = {.name = "tape"};

/* Each input's tangent begins where it is watched last. */
static hr_status add_seeds(walk *w, size_t at) {
  const hr__operand *here = &w->tape->records.data[at]->outputs[0];
  const hr__function_call call = {.row = &tape_row, .stream = w->tape->stream};
  for (int i = 0; i < w->input_count; ++i) {
    bool is_last = hr__is_tensor(here, w->inputs[i]);
    for (size_t later = at + 1; is_last && later < w->tape->records.count; ++later) {
      const hr__taped *record = w->tape->records.data[later];
      is_last = record->op != HR_OP_NONE || !hr__is_tensor(&record->outputs[0], w->inputs[i]);
    }
    if (is_last) {
      hr_tensor wide;
      HR_RETURN_IF_ERROR(hr__broadcast(&call, w->seeds[i], w->inputs[i]->rank, w->inputs[i]->dims, &wide));
      hr_status status = hr__adjoint_add(&w->tangents, &call, here, &wide);
      hr_tensor_release(&wide);
      HR_RETURN_IF_ERROR(status);
    }
  }
  return HR_OK;
}

static hr_status read_product(walk *w, const hr_tensor *y, hr_tensor *out) {
  const hr__function_call call = {.row = &tape_row, .stream = w->tape->stream};
  hr__operand at;
  hr__operand_of(y, &at);
  HR_RETURN_IF_ERROR(hr__adjoint_read(&w->tangents, &call, &at, out));
  if (out->buffer != NULL) {
    return HR_OK;
  }
  const hr_tensor *number = &zero_number;
  return hr__record_new(&call, HR_OP_COPY, NULL, 1, &number, y->dtype, y->rank, y->dims, out);
}

static hr_status go_forward(walk *w, int output_count, const hr_tensor *const *outputs, hr_tensor *products) {
  for (size_t i = 0; i < w->tape->records.count; ++i) {
    const hr__taped *record = w->tape->records.data[i];
    HR_RETURN_IF_ERROR(record->op == HR_OP_NONE ? add_seeds(w, i) : go_through(w, record));
  }
  for (int o = 0; o < output_count; ++o) {
    HR_RETURN_IF_ERROR(read_product(w, outputs[o], &products[o]));
  }
  return HR_OK;
}

static hr_status check_tangents(int count, const hr_tensor *const *tangents) {
  for (int i = 0; i < count; ++i) {
    if (tangents[i] == NULL || tangents[i]->buffer == NULL || !hr__is_differentiable(tangents[i]->dtype)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "tape: tangent %d is not a floating tensor", i);
    }
  }
  return HR_OK;
}

hr_status hr_tape_product(hr_tape *tape, int input_count, const hr_tensor *const *inputs,
                          const hr_tensor *const *tangents, int output_count, const hr_tensor *const *outputs,
                          hr_tensor *out_products) {
  HR_RETURN_IF_ERROR(hr__check_ends(tape, output_count, outputs, input_count, inputs));
  HR_RETURN_IF_ERROR(check_tangents(input_count, tangents));
  hr_tensor *products = hr_calloc((size_t)output_count + 1, sizeof *products);
  if (products == NULL) {
    return no_memory();
  }
  walk w = {.tape = tape, .input_count = input_count, .inputs = inputs, .seeds = tangents};
  bool was_paused = tape->is_paused;
  tape->is_paused = true;
  hr_status status = go_forward(&w, output_count, outputs, products);
  tape->is_paused = was_paused;
  hr__adjoints_fini(&w.tangents);
  for (int o = 0; o < output_count; ++o) {
    if (status == HR_OK) {
      hr__copy_tensor(&products[o], &out_products[o]);
    } else {
      hr_tensor_release(&products[o]);
    }
  }
  hr_free(products);
  return status;
}
