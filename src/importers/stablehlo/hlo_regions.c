/* hlo_regions.c: regions that combine pairs of elements. Those of one operation are recognised; all others are inlined
 * over whole tensors. */
#include "base/allocator.h"
#include "importers/stablehlo/hlo.h"

static const struct {
  const char *name;
  hr__hlo_combiner combiner, of_flags;
} known[] = {{"add_v1", HR__HLO_ADD, HR__HLO_OR},     {"multiply_v1", HR__HLO_MULTIPLY, HR__HLO_AND},
             {"maximum_v1", HR__HLO_MAX, HR__HLO_OR}, {"minimum_v1", HR__HLO_MIN, HR__HLO_AND},
             {"and_v1", HR__HLO_OTHER, HR__HLO_AND},  {"or_v1", HR__HLO_OTHER, HR__HLO_OR}};

const hr__vhlo_op *hr__hlo_return_op(const hr__vhlo_region *region) {
  const hr__vhlo_op *last = region->op_count > 0 ? &region->ops[region->op_count - 1] : NULL;
  return last != NULL && hr__hlo_is_return(last) ? last : NULL;
}

hr__hlo_combiner hr__hlo_combiner_of(const hr__hlo *hlo, const hr__vhlo_region *region, int index) {
  const hr__vhlo_op *end = hr__hlo_return_op(region);
  int count = region->argument_count / 2;
  hr__vhlo_type type;
  if (end == NULL || region->argument_count % 2 != 0 || index >= end->operand_count || index >= count) {
    return HR__HLO_OTHER;
  }
  const hr__vhlo_value *result = end->operands[index];
  const hr__vhlo_value *x = &region->arguments[index], *y = &region->arguments[count + index];
  const hr__vhlo_op *op = result->op;
  if (result == y) {
    return HR__HLO_SECOND;
  }
  bool is_pair = op != NULL && op->operand_count == 2 && strcmp(op->name->dialect, "vhlo") == 0 &&
                 ((op->operands[0] == x && op->operands[1] == y) || (op->operands[0] == y && op->operands[1] == x));
  bool is_flag = hr__vhlo_type_of(&hlo->import->module, result->type, &type) && type.dtype == HR_DTYPE_BOOL;
  for (size_t i = 0; is_pair && i < sizeof known / sizeof *known; ++i) {
    if (strcmp(known[i].name, op->name->name) == 0) {
      return is_flag ? known[i].of_flags : known[i].combiner;
    }
  }
  return HR__HLO_OTHER;
}

hr_value hr__hlo_combine(hr__hlo *hlo, hr__hlo_combiner combiner, hr_value x, hr_value y) {
  static const hr_functional functions[HR__HLO_COMBINERS] = {
      [HR__HLO_ADD] = HR_FUNCTIONAL_ADD,         [HR__HLO_MULTIPLY] = HR_FUNCTIONAL_MULTIPLY,
      [HR__HLO_MAX] = HR_FUNCTIONAL_MAXIMUM,     [HR__HLO_MIN] = HR_FUNCTIONAL_MINIMUM,
      [HR__HLO_AND] = HR_FUNCTIONAL_LOGICAL_AND, [HR__HLO_OR] = HR_FUNCTIONAL_LOGICAL_OR};
  return combiner == HR__HLO_SECOND ? y : hr_graph_add(hlo->graph, functions[combiner], IN(x, y), PLAIN);
}

/* ---- regions over whole tensors ---- */

/* Those that x and y have together. A result that depends on no argument has none yet. */
static hr_value with_dims_of(hr__hlo *hlo, hr_value result, hr_value x, hr_value y) {
  hr_type own, first, second;
  hr_status status = hr_graph_type(hlo->graph, result, &own);
  status = status == HR_OK ? hr_graph_type(hlo->graph, x, &first) : status;
  status = status == HR_OK ? hr_graph_type(hlo->graph, y, &second) : status;
  if (status != HR_OK) {
    hr__hlo_fail_with(hlo, status);
    return 0;
  }
  const hr_type *wanted = first.rank >= second.rank ? &first : &second;
  return own.rank == wanted->rank ? result : hr__hlo_broadcast(hlo, result, wanted->rank, wanted->dims);
}

bool hr__hlo_combine_all(hr__hlo *hlo, const hr__vhlo_region *region, int count, const hr_value *x, const hr_value *y,
                         hr_value *out) {
  hr_value *arguments = hr_calloc(3 * (size_t)count + 1, sizeof *arguments), *results = arguments + 2 * count;
  if (arguments == NULL) {
    hr__hlo_fail(hlo, HR_STATUS_RESOURCE_EXHAUSTED, "no memory for its values");
    return false;
  }
  for (int i = 0; i < count; ++i) {
    arguments[i] = x[i], arguments[count + i] = y[i];
  }
  int found = hr__hlo_inline(hlo, region, 2 * count, arguments, count, results, false);
  if (found >= 0 && found != count) {
    HR__HLO_WRONG(hlo, "its region has %d results, expected %d", found, count);
  }
  for (int i = 0; i < count && found == count; ++i) {
    out[i] = with_dims_of(hlo, results[i], x[i], y[i]);
  }
  hr_free(arguments);
  return !hr__hlo_failed(hlo);
}

/* ---- expressions ---- */

typedef struct speller {
  const hr__hlo *hlo;
  const hr__vhlo_region *region;
  int stride;
  unsigned sides;
  hr_text *text;
} speller;

enum { SPELLED_MAX = 2000 };

/* Operations whose results depend on nothing but their operands. */
static bool is_without_attributes(const char *name) {
  static const char *const names[] = {"add_v1",     "and_v1",    "abs_v1",  "imag_v1",     "maximum_v1",
                                      "minimum_v1", "negate_v1", "not_v1",  "multiply_v1", "or_v1",
                                      "real_v1",    "select_v1", "sign_v1", "subtract_v1", "xor_v1"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    if (strcmp(names[i], name) == 0) {
      return true;
    }
  }
  return false;
}

static void spell_name(speller *s, const hr__vhlo_op *op, const hr__vhlo_value *value) {
  static const char *const directions[] = {"eq", "ne", "ge", "gt", "le", "lt"};
  enum { TOTAL_ORDER = 2 };
  const hr__vhlo_module *module = &s->hlo->import->module;
  int64_t direction = -1, type = 0;
  const char *name = op->name->name;
  if (strcmp(name, "compare_v1") == 0) {
    hr__vhlo_int(module, hr__vhlo_find(module, op, "comparison_direction"), &direction);
    hr__vhlo_int(module, hr__vhlo_find(module, op, "compare_type"), &type);
  }
  if (direction >= 0 && direction < (int64_t)(sizeof directions / sizeof *directions)) {
    hr_text_printf(s->text, "%s%s", directions[direction], type == TOTAL_ORDER ? "_total" : "");
  } else if (is_without_attributes(name)) {
    hr_text_printf(s->text, "%.*s", (int)strlen(name) - 3, name);
  } else { /* equal attributes are the same bytes of the file */
    hr_text_printf(s->text, "%s<%d>{%p}", name, value->type, (const void *)op->properties.data);
  }
}

static bool spell(speller *s, const hr__vhlo_value *value) {
  const hr__vhlo_op *op = value->op;
  const hr__vhlo_region *region = s->region;
  const hr__vhlo_module *module = &s->hlo->import->module;
  if (s->text->length > SPELLED_MAX) {
    return false;
  }
  if (value >= region->arguments && value < region->arguments + region->argument_count) {
    int number = (int)(value - region->arguments);
    s->sides |= 1u << number % s->stride;
    hr_text_printf(s->text, "a%d", number / s->stride);
    return true;
  }
  if (op != NULL && strcmp(op->name->name, "constant_v1") == 0) {
    hr_text_printf(s->text, "c%d", hr__vhlo_find(module, op, "value"));
    return true;
  }
  bool is_outside = value->region < region->number || value->region >= region->end;
  if (op == NULL || is_outside || op->result_count != 1 || op->region_count != 0) {
    hr_text_printf(s->text, "v%p", (const void *)value);
    return is_outside;
  }
  spell_name(s, op, value);
  for (int i = 0; i < op->operand_count; ++i) {
    hr_text_append(s->text, i == 0 ? "(" : ",");
    if (!spell(s, op->operands[i])) {
      return false;
    }
  }
  hr_text_append(s->text, ")");
  return true;
}

bool hr__hlo_spell(const hr__hlo *hlo, const hr__vhlo_region *region, const hr__vhlo_value *value, int stride,
                   hr_text *text, unsigned *out_sides) {
  speller s = {.hlo = hlo, .region = region, .stride = stride, .text = text};
  bool is_done = spell(&s, value);
  *out_sides = s.sides;
  return is_done;
}
