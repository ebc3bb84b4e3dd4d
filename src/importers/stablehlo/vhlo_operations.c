/* vhlo_operations.c: operations, with their regions and values. */
#include "importers/stablehlo/vhlo.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, "the file is damaged: " __VA_ARGS__)

enum {
  HAS_ATTRIBUTES = 1,
  HAS_RESULTS = 2,
  HAS_OPERANDS = 4,
  HAS_SUCCESSORS = 8,
  HAS_REGIONS = 16,
  HAS_USE_LISTS = 32,
  HAS_PROPERTIES = 64
};

/* The numbers of values inside of an isolated region. */
typedef struct numbering {
  hr__vhlo_value **values; /* NULL: none yet */
  int reserved, capacity;  /* by the regions that are open */
} numbering;

typedef struct place {
  hr__vhlo_module *module;
  hr__reader *reader;
  numbering *scope;
  int next;   /* the number of the next value */
  int region; /* its number */
  int depth;
} place;

static hr_status read_block(place *at, hr__vhlo_region *region);

static hr_status no_room(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for so many operations and values");
}

/* Room for the values of one more region. */
static hr_status reserve(hr__vhlo_module *module, numbering *scope, int count) {
  if (count > HR__VHLO_ITEMS_MAX - scope->reserved) {
    return DAMAGED("a region has more than %d values", HR__VHLO_ITEMS_MAX);
  }
  scope->reserved += count;
  if (scope->reserved <= scope->capacity) {
    return HR_OK;
  }
  int capacity = scope->reserved * 2 < HR__VHLO_ITEMS_MAX ? scope->reserved * 2 : HR__VHLO_ITEMS_MAX;
  hr__vhlo_value **values = hr__vhlo_array(module, (size_t)capacity, sizeof *values);
  if (values == NULL) {
    return no_room();
  }
  if (scope->capacity > 0) {
    memcpy(values, scope->values, (size_t)scope->capacity * sizeof *values);
  }
  scope->values = values, scope->capacity = capacity;
  return HR_OK;
}

static hr_status add_value(place *at, int type, const hr__vhlo_op *op, hr__vhlo_value *out) {
  if (at->reader->has_failed || type >= at->module->type_count || at->next >= at->scope->reserved) {
    return DAMAGED("value %d has no type, or is one more than its region has", at->next);
  }
  if (++at->module->value_count > HR__VHLO_ITEMS_MAX) {
    return no_room();
  }
  *out = (hr__vhlo_value){.type = type, .region = at->region, .op = op};
  at->scope->values[at->next++] = out;
  return HR_OK;
}

/* ---- the parts of an operation ---- */

static int read_size(place *at) {
  return hr__read_items(at->reader, HR__VHLO_ITEMS_MAX);
}

static int read_attribute(place *at) {
  return hr__read_count(at->reader, at->module->attribute_count - 1);
}

static hr_status read_results(place *at, hr__vhlo_op *op) {
  op->result_count = read_size(at);
  op->results = hr__vhlo_array(at->module, (size_t)op->result_count, sizeof *op->results);
  if (op->results == NULL) {
    return no_room();
  }
  for (int i = 0; i < op->result_count; ++i) {
    int type = hr__read_count(at->reader, HR__VHLO_ITEMS_MAX);
    HR_RETURN_IF_ERROR(add_value(at, type, op, &op->results[i]));
  }
  return HR_OK;
}

static hr_status read_operands(place *at, hr__vhlo_op *op) {
  op->operand_count = read_size(at);
  op->operands = hr__vhlo_array(at->module, (size_t)op->operand_count, sizeof *op->operands);
  if (op->operands == NULL) {
    return no_room();
  }
  for (int i = 0; i < op->operand_count; ++i) {
    uint64_t number = hr__read_number(at->reader);
    hr__vhlo_value *value = number < (uint64_t)at->scope->reserved ? at->scope->values[number] : NULL;
    if (at->reader->has_failed || value == NULL) {
      return DAMAGED("operand %d of %s is no earlier value", i, op->name->name);
    }
    op->operands[i] = value;
    ++value->use_count;
  }
  return HR_OK;
}

/* The order of uses does not matter here. */
static void skip_use_lists(place *at, int value_count) {
  int lists = value_count > 1 ? read_size(at) : 1;
  for (int i = 0; i < lists && !at->reader->has_failed; ++i) {
    if (value_count > 1) {
      hr__read_number(at->reader);
    }
    uint64_t count = hr__read_number(at->reader) >> 1;
    for (uint64_t k = 0; k < count && !at->reader->has_failed; ++k) {
      hr__read_number(at->reader);
    }
  }
}

/* ---- regions ---- */

static hr_status read_region(place *at, hr__vhlo_region *region) {
  region->number = region->end = ++at->module->region_count;
  ++region->end;
  int blocks = read_size(at);
  if (blocks == 0) {
    return at->reader->has_failed ? DAMAGED("a region is cut short") : HR_OK;
  }
  int count = read_size(at);
  if (blocks > 1 || at->depth >= HR__VHLO_DEPTH_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a region of several blocks, or more than %d regions in each other",
                          HR__VHLO_DEPTH_MAX);
  }
  int base = at->scope->reserved;
  HR_RETURN_IF_ERROR(reserve(at->module, at->scope, count));
  place inside = {at->module, at->reader, at->scope, base, region->number, at->depth + 1};
  HR_RETURN_IF_ERROR(read_block(&inside, region));
  if (inside.next > base) {
    memset(&at->scope->values[base], 0, (size_t)(inside.next - base) * sizeof(hr__vhlo_value *));
  }
  at->scope->reserved = base, region->end = at->module->region_count + 1;
  return HR_OK;
}

/* From version 2 on, isolated regions stand in a section of their own. */
static hr_status read_isolated(place *at, hr__vhlo_op *op) {
  enum { ID = 4 };
  hr__reader section = *at->reader;
  numbering scope = {0};
  if (at->module->version >= 2) {
    uint8_t id = hr__read_byte(at->reader);
    uint64_t size = hr__read_number(at->reader);
    section = hr__reader_of(hr__read_span(at->reader, size));
    if (id != ID || at->reader->has_failed) {
      return DAMAGED("the regions of %s", op->name->name);
    }
  }
  place inside = {at->module, at->module->version >= 2 ? &section : at->reader, &scope, 0, at->region, at->depth};
  for (int i = 0; i < op->region_count; ++i) {
    HR_RETURN_IF_ERROR(read_region(&inside, &op->regions[i]));
  }
  return at->module->version < 2 || hr__reader_is_done(&section) ? HR_OK : DAMAGED("the regions of %s", op->name->name);
}

static hr_status read_regions(place *at, hr__vhlo_op *op) {
  uint64_t number = hr__read_number(at->reader);
  if (number >> 1 > hr__reader_left(at->reader)) {
    return DAMAGED("%s has more regions than bytes", op->name->name);
  }
  op->region_count = (int)(number >> 1);
  op->regions = hr__vhlo_array(at->module, (size_t)op->region_count, sizeof *op->regions);
  if (op->regions == NULL) {
    return no_room();
  }
  if ((number & 1) != 0) {
    return read_isolated(at, op);
  }
  for (int i = 0; i < op->region_count; ++i) {
    HR_RETURN_IF_ERROR(read_region(at, &op->regions[i]));
  }
  return HR_OK;
}

/* ---- operations ---- */

static hr_status read_op(place *at, hr__vhlo_op *op) {
  hr__vhlo_module *module = at->module;
  int name = hr__read_count(at->reader, module->name_count - 1);
  uint8_t mask = hr__read_byte(at->reader);
  op->location = read_attribute(at);
  op->dictionary = (mask & HAS_ATTRIBUTES) != 0 ? read_attribute(at) : -1;
  int properties = (mask & HAS_PROPERTIES) != 0 ? hr__read_count(at->reader, module->property_count - 1) : -1;
  if (at->reader->has_failed || (mask & HAS_SUCCESSORS) != 0 || ++module->op_count > HR__VHLO_ITEMS_MAX) {
    return DAMAGED("operation %d", module->op_count);
  }
  op->name = &module->names[name];
  op->properties = properties >= 0 ? module->properties[properties] : (hr__span){NULL, 0};
  if ((mask & HAS_RESULTS) != 0) {
    HR_RETURN_IF_ERROR(read_results(at, op));
  }
  if ((mask & HAS_OPERANDS) != 0) {
    HR_RETURN_IF_ERROR(read_operands(at, op));
  }
  if ((mask & HAS_USE_LISTS) != 0) {
    skip_use_lists(at, op->result_count);
  }
  if ((mask & HAS_REGIONS) != 0) {
    HR_RETURN_IF_ERROR(read_regions(at, op));
  }
  return at->reader->has_failed ? DAMAGED("operation %d (%s) is cut short", module->op_count, op->name->name) : HR_OK;
}

static hr_status read_arguments(place *at, hr__vhlo_region *region) {
  region->argument_count = read_size(at);
  region->arguments = hr__vhlo_array(at->module, (size_t)region->argument_count, sizeof *region->arguments);
  if (region->arguments == NULL) {
    return no_room();
  }
  for (int i = 0; i < region->argument_count; ++i) {
    uint64_t type = hr__read_number(at->reader);
    bool may_lack_location = at->module->version >= 4;
    if (!may_lack_location || (type & 1) != 0) {
      read_attribute(at);
    }
    type = may_lack_location ? type >> 1 : type;
    HR_RETURN_IF_ERROR(
        add_value(at, type < HR__VHLO_ITEMS_MAX ? (int)type : HR__VHLO_ITEMS_MAX, NULL, &region->arguments[i]));
  }
  if (at->module->version >= 3 && hr__read_byte(at->reader) != 0) {
    skip_use_lists(at, region->argument_count);
  }
  return HR_OK;
}

static hr_status read_block(place *at, hr__vhlo_region *region) {
  uint64_t head = hr__read_number(at->reader);
  if ((head & 1) != 0) {
    HR_RETURN_IF_ERROR(read_arguments(at, region));
  }
  if (at->reader->has_failed || head >> 1 > hr__reader_left(at->reader)) {
    return DAMAGED("a block is cut short");
  }
  region->op_count = (int)(head >> 1);
  region->ops = hr__vhlo_array(at->module, (size_t)region->op_count, sizeof *region->ops);
  if (region->ops == NULL) {
    return no_room();
  }
  for (int i = 0; i < region->op_count; ++i) {
    HR_RETURN_IF_ERROR(read_op(at, &region->ops[i]));
  }
  return HR_OK;
}

hr_status hr__vhlo_read_operations(hr__vhlo_module *module, hr__span section) {
  hr__reader reader = hr__reader_of(section);
  numbering scope = {0};
  place at = {module, &reader, &scope, 0, 0, 0};
  HR_RETURN_IF_ERROR(read_block(&at, &module->top));
  module->top.end = module->region_count + 1;
  return hr__reader_is_done(&reader) ? HR_OK : DAMAGED("bytes behind the operations");
}
