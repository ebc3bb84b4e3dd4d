/* gradient.c: walks the records of a tape backwards.
 *
 *   record     y = f(x0, x1)
 *   backwards  g = adjoint[y];  adjoint[y] = 0;  adjoint[x0] += rule 0 of f;  adjoint[x1] += rule 1 of f
 *
 * Operands are views: the same views of the adjoints are read and added to. All gradients of a record's outputs are
 * taken before any is given to its inputs, as a record reads all inputs before it writes.
 */
#include "base/allocator.h"
#include "transform/gradients.h"

enum { TARGETS_MAX = 8, NUMBER_BASE = 10 };

/* The gradients of a call. */
typedef struct walk {
  hr_tape *tape;
  hr__adjoints adjoints;
  int input_count;
  const hr_tensor *const *inputs;
  hr_tensor *results; /* zeroed: not yet found */
} walk;

static hr__function_call call_of(const walk *w, const hr__function_row *row) {
  return (hr__function_call){.row = row, .stream = w->tape->stream};
}

/* ---- rules ---- */

hr_status hr__refuse_gradient(const hr__backward *b, int i, const char *reason) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s has no gradient by input %d: %s", b->call.row->name, i, reason);
}

static hr_status give_texts(const hr__backward *b, const hr__gradient *gradient) {
  for (int i = 0; hr__taped_input(b, i) != NULL; ++i) {
    const char *text = i < HR__RULES_MAX && gradient->rules[i] != NULL ? gradient->rules[i] : "?";
    if (!hr__wants(b, i) || *text == '\0') {
      continue;
    }
    if (*text == '?') {
      return hr__refuse_gradient(b, i, "it is not known here");
    }
    if (hr__g(b, 0) != NULL) {
      HR_RETURN_IF_ERROR(hr__give_text(b, i, text));
    }
  }
  return HR_OK;
}

/* The number after a letter; moves the cursor behind it. */
static int take_number(const char **cursor) {
  int number = 0;
  for (; **cursor >= '0' && **cursor <= '9'; ++*cursor) {
    number = number * NUMBER_BASE + (**cursor - '0');
  }
  return number;
}

/* The operand that a letter of a ROW's inputs names, and moves the cursor behind it; NULL: absent. */
static const hr_tensor *take_letter(const hr__backward *b, const char **cursor, hr_tensor *number) {
  char letter = *(*cursor)++;
  int i = take_number(cursor);
  return letter == 'g'   ? hr__g(b, i)
         : letter == 'x' ? hr__value(hr__taped_input(b, i), number)
                         : hr__value(hr__taped_output(b, i), number);
}

static int take_inputs(const hr__backward *b, const char *letters, const hr_tensor **inputs, hr_tensor *numbers) {
  int count = 0;
  for (const char *cursor = letters; *cursor != '\0' && *cursor != ';'; ++count) {
    inputs[count] = take_letter(b, &cursor, &numbers[count]);
    cursor += *cursor == ' ';
  }
  return count;
}

/* Bits of the targets of each output of a ROW; returns the number of outputs. */
static int find_targets(const char *text, uint32_t *targets) {
  int count = 1;
  targets[0] = 0;
  for (const char *cursor = text; *cursor != '\0';) {
    char found = *cursor++;
    if (found == 'x') {
      targets[count - 1] |= 1u << take_number(&cursor);
    } else if (found == ',') {
      targets[count++] = 0;
    }
  }
  return count;
}

static uint32_t wanted_inputs(const hr__backward *b) {
  uint32_t wanted = 0;
  for (int i = 0; hr__taped_input(b, i) != NULL && i < 32; ++i) {
    wanted |= hr__wants(b, i) ? 1u << i : 0;
  }
  return wanted;
}

/* Gives each output to its targets, and releases it. */
static hr_status give_outputs(const hr__backward *b, int count, const uint32_t *targets, hr_tensor *outputs) {
  hr_status status = HR_OK;
  for (int o = 0; o < count; ++o) {
    for (int i = 0; outputs[o].buffer != NULL && i < 32; ++i) {
      if (status == HR_OK && (targets[o] >> i & 1u) != 0 && hr__wants(b, i)) {
        status = hr__adjoint_add(b->adjoints, &b->call, hr__taped_input(b, i), &outputs[o]);
      }
    }
    hr_tensor_release(&outputs[o]);
  }
  return status;
}

/* The outputs of a ROW that it has to compute: those with active targets, and those that the row always has. Returns
 * the number up to the last one. */
static int choose_outputs(const hr__backward *b, hr_op op, int count, const uint32_t *targets, uint32_t active,
                          hr_tensor *outputs, hr_tensor **wanted) {
  int used = 0;
  for (int o = 0; o < count; ++o) {
    uint32_t served = targets[o] & active;
    outputs[o] = (hr_tensor){0};
    wanted[o] = NULL;
    if (served != 0) {
      const hr_view *like = &hr__taped_input(b, __builtin_ctz(served))->view;
      outputs[o].rank = like->rank;
      for (int d = 0; d < like->rank; ++d) {
        outputs[o].dims[d] = like->dims[d];
      }
    }
    if (served != 0 || (hr_op_table(op)->outputs.needed >> o & 1u) != 0) {
      wanted[o] = &outputs[o], used = o + 1;
    }
  }
  return used;
}

static hr_status give_row(const hr__backward *b, const hr__gradient *gradient) {
  hr_tensor numbers[TARGETS_MAX], outputs[TARGETS_MAX], *wanted[TARGETS_MAX];
  const hr_tensor *inputs[TARGETS_MAX];
  uint32_t targets[TARGETS_MAX], unknown = wanted_inputs(b), active = unknown;
  int input_count = take_inputs(b, gradient->rules[0], inputs, numbers);
  int count = find_targets(gradient->targets, targets);
  for (int o = 0; o < count; ++o) {
    unknown &= ~targets[o];
  }
  if (unknown != 0) {
    return hr__refuse_gradient(b, __builtin_ctz(unknown), "it is not known here");
  }
  int used = choose_outputs(b, gradient->row, count, targets, active, outputs, wanted);
  HR_RETURN_IF_ERROR(hr__record_row(&b->call, gradient->row, &b->record->attrs, input_count, inputs, used, wanted));
  return give_outputs(b, used, targets, outputs);
}

bool hr__updates(const hr__taped *record) {
  return (hr_op_table(record->op)->traits & HR_TRAIT_UPDATES) != 0;
}

static hr_status give_missing(const hr__backward *b, const hr__gradient *gradient) {
  uint32_t active = wanted_inputs(b);
  return active == 0 && !hr__updates(b->record)
             ? HR_OK
             : hr__refuse_gradient(b, active != 0 ? __builtin_ctz(active) : 0, gradient->reason);
}

/* Outputs after the first whose gradient no rule reads. Their records are loops, if that is possible. */
static hr_status check_outputs(const hr__backward *b) {
  hr__letters letters = hr__row_letters(b->record->op);
  for (int i = 1; i < b->record->output_count; ++i) {
    if (hr__g(b, i) != NULL && !hr__has_letter(letters.gradients, i)) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s has no gradient of output %d: it is not known here",
                            b->call.row->name, i);
    }
  }
  return HR_OK;
}

hr_status hr__give_all(hr__backward *b) {
  if (b->record->custom != NULL) {
    return hr__give_custom(b);
  }
  const hr__gradient *gradient = hr__gradient_of(b->record->op);
  HR_RETURN_IF_ERROR(gradient->kind != HR__GRADIENT_NONE ? check_outputs(b) : HR_OK);
  switch (gradient->kind) {
    case HR__GRADIENT_TEXT:
      return give_texts(b, gradient);
    case HR__GRADIENT_ROW:
      return give_row(b, gradient);
    case HR__GRADIENT_CODE:
      return gradient->code(b);
    case HR__GRADIENT_NONE:
      return HR_OK;
    case HR__GRADIENT_LOOPS:
      return hr__refuse_gradient(b, 0, "its loops combine by index, and not by sums");
    default:
      return give_missing(b, gradient);
  }
}

/* ---- one record ---- */

const char *hr__taped_name(const hr__taped *record) {
  return record->custom != NULL ? hr__custom_name(record->custom) : hr_op_table(record->op)->name;
}

static bool has_gradient(const walk *w, const hr__taped *record) {
  for (int i = 0; i < record->output_count; ++i) {
    if (hr__adjoint_exists(&w->adjoints, &record->outputs[i])) {
      return true;
    }
  }
  return false;
}

static bool has_active_input(const hr__taped *record) {
  for (int i = 0; i < record->input_count; ++i) {
    if (record->inputs[i].is_active) {
      return true;
    }
  }
  return false;
}

static hr_status take_gradients(walk *w, const hr__function_call *call, const hr__taped *record, hr_tensor *g) {
  for (int i = 0; i < record->output_count; ++i) {
    if (record->outputs[i].serial != 0) {
      HR_RETURN_IF_ERROR(hr__adjoint_take(&w->adjoints, call, &record->outputs[i], &g[i]));
    }
  }
  return HR_OK;
}

/* Gives the gradients of a record by rules of the table. The tape, which is on pause, is left out if it is the first
 * that would see their records: none of them overwrites a value that it keeps. */
static hr_status give_by_table(hr__backward *b, hr_tape *tape) {
  hr_hook *top = hr_hook_set_top(tape->stream, tape->hook.below);
  if (top != &tape->hook) {
    (void)hr_hook_set_top(tape->stream, top);
    return hr__give_all(b);
  }
  hr_status status = hr__give_all(b);
  (void)hr_hook_set_top(tape->stream, top);
  return status;
}

static hr_status go_through(walk *w, const hr__taped *record) {
  const hr__function_row row = {.name = hr__taped_name(record)};
  hr__backward b = {.call = call_of(w, &row), .adjoints = &w->adjoints, .record = record};
  hr_tensor *g = hr_calloc((size_t)record->output_count, sizeof *g);
  if (g == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for its gradient", row.name);
  }
  hr_status status = take_gradients(w, &b.call, record, g);
  b.g = g;
  if (status == HR_OK && (has_active_input(record) || hr__updates(record))) {
    status = record->custom != NULL ? hr__give_all(&b) : give_by_table(&b, w->tape);
  }
  for (int i = 0; i < record->output_count; ++i) {
    hr_tensor_release(&g[i]);
  }
  hr_free(g);
  return status;
}

/* ---- watched tensors ---- */

bool hr__is_tensor(const hr__operand *operand, const hr_tensor *x) {
  bool is = x != NULL && x->buffer != NULL && hr_buffer_serial(x->buffer) == operand->serial &&
            x->dtype == operand->view.dtype && x->rank == operand->view.rank && x->offset == operand->view.offset;
  for (int d = 0; is && d < x->rank; ++d) {
    is = x->dims[d] == operand->view.dims[d] && x->strides[d] == operand->view.strides[d];
  }
  return is;
}

static bool is_watched(const hr_tape *tape, const hr_tensor *x) {
  for (size_t i = 0; i < tape->records.count; ++i) {
    const hr__taped *record = tape->records.data[i];
    if (record->op == HR_OP_NONE && hr__is_tensor(&record->outputs[0], x)) {
      return true;
    }
  }
  return false;
}

/* The gradients with respect to a tensor that is watched here, unless a later record watches it too. */
static hr_status find_results(walk *w, const hr__taped *record) {
  static const hr__function_row row = {.name = "tape"};
  hr__function_call call = call_of(w, &row);
  for (int i = 0; i < w->input_count; ++i) {
    hr_tensor *result = &w->results[i];
    if (result->buffer != NULL || !hr__is_tensor(&record->outputs[0], w->inputs[i])) {
      continue;
    }
    HR_RETURN_IF_ERROR(hr__adjoint_read(&w->adjoints, &call, &record->outputs[0], result));
    if (result->buffer == NULL) {
      const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), *number = &zero, *x = w->inputs[i];
      HR_RETURN_IF_ERROR(hr__record_new(&call, HR_OP_COPY, NULL, 1, &number, x->dtype, x->rank, x->dims, result));
    }
  }
  return HR_OK;
}

/* ---- outputs ---- */

hr_status hr__check_ends(const hr_tape *tape, int output_count, const hr_tensor *const *outputs, int input_count,
                         const hr_tensor *const *inputs) {
  for (int i = 0; i < output_count; ++i) {
    const hr_tensor *y = outputs[i];
    if (y == NULL || y->buffer == NULL || !hr__is_differentiable(y->dtype)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "tape: output %d is %s, expected a floating tensor", i,
                            y == NULL || y->buffer == NULL ? "absent" : hr_dtype_name(y->dtype));
    }
  }
  for (int i = 0; i < input_count; ++i) {
    if (!is_watched(tape, inputs[i])) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "tape: input %d is not watched by this tape", i);
    }
  }
  return HR_OK;
}

void hr__operand_of(const hr_tensor *x, hr__operand *out) {
  *out = (hr__operand){.serial = hr_buffer_serial(x->buffer), .bytes = hr_buffer_bytes(x->buffer)};
  out->view =
      (hr_view){.dtype = x->dtype, .rank = x->rank, .offset = x->offset, .dims = x->dims, .strides = x->strides};
}

static hr_status seed_one(walk *w, const hr__function_call *call, const hr_tensor *output, const hr_tensor *seed) {
  hr__operand at;
  hr_tensor wide;
  hr__operand_of(output, &at);
  if (hr_table_get(&w->tape->active, at.serial) == NULL) {
    return HR_OK;
  }
  if (seed != NULL) {
    HR_RETURN_IF_ERROR(hr__broadcast(call, seed, output->rank, output->dims, &wide));
  } else {
    const hr_tensor one = hr_tensor_number(hr_scalar_i64(1)), *number = &one;
    HR_RETURN_IF_ERROR(
        hr__record_new(call, HR_OP_COPY, NULL, 1, &number, output->dtype, output->rank, output->dims, &wide));
  }
  hr_status status = hr__adjoint_add(&w->adjoints, call, &at, &wide);
  hr_tensor_release(&wide);
  return status;
}

static hr_status seed_all(walk *w, int count, const hr_tensor *const *outputs, const hr_tensor *const *seeds) {
  static const hr__function_row row = {.name = "tape"};
  hr__function_call call = call_of(w, &row);
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(seed_one(w, &call, outputs[i], seeds != NULL ? seeds[i] : NULL));
  }
  return HR_OK;
}

static hr_status go_back(walk *w) {
  for (size_t i = w->tape->records.count; i-- > 0;) {
    const hr__taped *record = w->tape->records.data[i];
    if (record->op == HR_OP_NONE) {
      HR_RETURN_IF_ERROR(find_results(w, record));
    } else if (has_gradient(w, record)) {
      HR_RETURN_IF_ERROR(go_through(w, record));
    }
  }
  return HR_OK;
}

hr_status hr_tape_gradient(hr_tape *tape, int output_count, const hr_tensor *const *outputs,
                           const hr_tensor *const *seeds, int input_count, const hr_tensor *const *inputs,
                           hr_tensor *out_gradients) {
  HR_RETURN_IF_ERROR(hr__check_ends(tape, output_count, outputs, input_count, inputs));
  hr_tensor *results = hr_calloc((size_t)input_count + 1, sizeof *results);
  if (results == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "tape: no host memory for %d gradients", input_count);
  }
  walk w = {.tape = tape, .input_count = input_count, .inputs = inputs, .results = results};
  bool was_paused = tape->is_paused;
  tape->is_paused = true;
  hr_status status = seed_all(&w, output_count, outputs, seeds);
  status = status == HR_OK ? go_back(&w) : status;
  tape->is_paused = was_paused;
  hr__adjoints_fini(&w.adjoints);
  for (int i = 0; i < input_count; ++i) {
    if (status == HR_OK) {
      hr__copy_tensor(&results[i], &out_gradients[i]);
    } else {
      hr_tensor_release(&results[i]);
    }
  }
  hr_free(results);
  return status;
}
