/* hlo_layouts.c: the layouts that a program states for the inputs and outputs of main (mhlo.layout_mode), and the kinds
 * of their memory (mhlo.memory_kind).
 *
 * "{0,1}" lists the dims, beginning with the one whose neighbours are nearest in memory; "default" and no text are
 * row-major. "auto" leaves the choice open: inputs are row-major, and an output that is a transpose has the layout in
 * which it is a view of its operand. Tiles are refused.
 */
#include <stdlib.h>

#include "importers/stablehlo/hlo.h"

enum { STEPS_MAX = 64 }; /* that are followed: values of a damaged file may depend on themselves */

static void set_row_major(int rank, hr_stablehlo_layout *out) {
  out->rank = rank;
  for (int i = 0; i < rank; ++i) {
    out->minor_to_major[i] = rank - 1 - i;
  }
}

/* The end of a layout: "}", or ":E(4)}" of elements that XLA packs, which are bytes here. */
static bool is_end(const char *text) {
  if (strncmp(text, ":E(", 3) == 0) {
    text += 3 + strspn(text + 3, "0123456789");
    return strcmp(text, ")}") == 0;
  }
  return strcmp(text, "}") == 0;
}

/* "{0,1}"; false: the text is none, or no permutation of the dims. */
static bool parse(const char *text, int rank, hr_stablehlo_layout *out) {
  unsigned seen = 0;
  out->rank = rank;
  if (*text++ != '{') {
    return false;
  }
  for (int i = 0; i < rank; ++i) {
    char *end;
    long dim = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (dim < 0 || dim >= rank || (seen >> dim & 1) != 0 || (i + 1 < rank && *end != ',')) {
      return false;
    }
    seen |= 1u << dim, out->minor_to_major[i] = (int)dim;
    text = i + 1 < rank ? end + 1 : end;
  }
  return is_end(text);
}

static const char *mode_of(const hr__vhlo_module *module, int dictionary) {
  const char *mode =
      dictionary >= 0 ? hr__vhlo_text(module, hr__vhlo_dictionary(module, dictionary, "mhlo.layout_mode")) : NULL;
  return mode != NULL && strcmp(mode, "default") != 0 ? mode : NULL;
}

static bool is_auto(const char *mode) {
  return mode != NULL && strcmp(mode, "auto") == 0;
}

static hr_stablehlo_memory memory_of(const hr__vhlo_module *module, int dictionary) {
  const char *kind =
      dictionary >= 0 ? hr__vhlo_text(module, hr__vhlo_dictionary(module, dictionary, "mhlo.memory_kind")) : NULL;
  if (kind != NULL && strcmp(kind, "pinned_host") == 0) {
    return HR_STABLEHLO_PINNED_HOST;
  }
  return kind != NULL && strcmp(kind, "unpinned_host") == 0 ? HR_STABLEHLO_UNPINNED_HOST : HR_STABLEHLO_DEVICE;
}

static hr_status read_mode(const char *mode, int rank, hr_stablehlo_layout *out) {
  if (mode == NULL || is_auto(mode)) {
    set_row_major(rank, out);
    return HR_OK;
  }
  if (strstr(mode, ":T") != NULL) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "the layout \"%s\", expected one without tiles", mode);
  }
  return parse(mode, rank, out) ? HR_OK
                                : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                                 "the layout \"%s\", expected an order of %d dims", mode, rank);
}

static int rank_of(const hr__vhlo_module *module, const hr__vhlo_value *value) {
  hr__vhlo_type type;
  return hr__vhlo_type_of(module, value->type, &type) && !type.is_token ? type.rank : 0;
}

hr_status hr__hlo_input_layout(const hr__vhlo_module *module, int dictionary, const hr__vhlo_value *input,
                               hr_stablehlo_layout *out) {
  out->memory = memory_of(module, dictionary);
  return read_mode(mode_of(module, dictionary), rank_of(module, input), out);
}

/* The number of an argument of main; -1: the value is none. */
static int argument_of(const hr__vhlo_region *main, const hr__vhlo_value *value) {
  bool is_one = value >= main->arguments && value < main->arguments + main->argument_count;
  return is_one ? (int)(value - main->arguments) : -1;
}

/* The value that an operation passes on, with its dims; NULL: none. */
static const hr__vhlo_value *passed_on(const hr__vhlo_value *value) {
  const hr__vhlo_op *op = value->op;
  const char *name = op != NULL ? op->name->name : "";
  if (strcmp(name, "sharding_constraint") == 0 || strcmp(name, "unrealized_conversion_cast") == 0) {
    return op->operand_count == 1 ? op->operands[0] : NULL;
  }
  if (strcmp(name, "manual_computation") != 0 || op->region_count != 1) {
    return NULL;
  }
  const hr__vhlo_region *region = &op->regions[0];
  const hr__vhlo_op *end = region->op_count > 0 ? &region->ops[region->op_count - 1] : NULL;
  ptrdiff_t index = value - op->results;
  return end != NULL && hr__hlo_is_return(end) && index < end->operand_count ? end->operands[index] : NULL;
}

/* Replaces a transpose by its operand: places[d] is the output's dim of dim d. False: it is none, or wrong, which the
 * import reports. */
static bool undo_transpose(const hr__vhlo_module *module, const hr__vhlo_value **value, int rank, int *places) {
  const hr__vhlo_op *op = (*value)->op;
  int64_t axes[HR__VHLO_PLACES_MAX];
  int before[HR_RANK_MAX];
  unsigned seen = 0;
  if (op == NULL || strcmp(op->name->name, "transpose_v1") != 0 || op->operand_count != 1 ||
      hr__vhlo_ints(module, hr__vhlo_find(module, op, "permutation"), axes) != rank) {
    return false;
  }
  for (int i = 0; i < rank; ++i) {
    if (axes[i] < 0 || axes[i] >= rank || (seen >> axes[i] & 1) != 0) {
      return false;
    }
    seen |= 1u << axes[i];
  }
  memcpy(before, places, (size_t)rank * sizeof *places);
  for (int i = 0; i < rank; ++i) {
    places[axes[i]] = before[i];
  }
  *value = op->operands[0];
  return true;
}

/* The layout of a chain of transposes as a view of its first operand. */
static void follow(const hr__vhlo_module *module, const hr__vhlo_region *main, const hr_stablehlo_layout *inputs,
                   const hr__vhlo_value *value, hr_stablehlo_layout *out) {
  int rank = rank_of(module, value), places[HR_RANK_MAX];
  for (int i = 0; i < rank; ++i) {
    places[i] = i;
  }
  const hr__vhlo_value *next = value;
  for (int i = 0; i < STEPS_MAX && next != NULL; ++i) {
    value = next;
    next = undo_transpose(module, &value, rank, places) ? value : passed_on(value);
  }
  int number = argument_of(main, value);
  bool is_input = number >= 0 && inputs[number].rank == rank;
  out->rank = rank;
  for (int i = 0; i < rank; ++i) {
    out->minor_to_major[i] = places[is_input ? inputs[number].minor_to_major[i] : rank - 1 - i];
  }
}

hr_status hr__hlo_output_layout(const hr__vhlo_module *module, const hr__vhlo_region *main,
                                const hr_stablehlo_layout *inputs, int dictionary, const hr__vhlo_value *output,
                                hr_stablehlo_layout *out) {
  const char *mode = mode_of(module, dictionary);
  out->memory = memory_of(module, dictionary);
  if (!is_auto(mode)) {
    return read_mode(mode, rank_of(module, output), out);
  }
  follow(module, main, inputs, output, out);
  return HR_OK;
}
