/* op_def.c: reads OpDef and its ArgDef. */
#include "op_def.h"

#include "graphdef.h"
#include "node.h"

enum {
  ARG_NAME = 1,
  ARG_TYPE = 3,
  ARG_TYPE_ATTRIBUTE = 4,
  ARG_NUMBER_ATTRIBUTE = 5,
  ARG_LIST_ATTRIBUTE = 6,
  ARG_IS_REF = 16
};
enum { VALUE_LIST = 1, VALUE_INT = 3, VALUE_TYPE = 6, LIST_TYPES = 6 };

typedef struct argument {
  hr__span name, type_attribute, number_attribute, list_attribute;
  int type;
  bool is_ref;
} argument;

static argument read_argument(hr__span message) {
  argument read = {0};
  hr__wire wire = hr__wire_of(message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    hr__span *const texts[] = {[ARG_NAME] = &read.name,
                               [ARG_TYPE_ATTRIBUTE] = &read.type_attribute,
                               [ARG_NUMBER_ATTRIBUTE] = &read.number_attribute,
                               [ARG_LIST_ATTRIBUTE] = &read.list_attribute};
    if (field.type == HR__WIRE_BYTES && field.number <= ARG_LIST_ATTRIBUTE && texts[field.number] != NULL) {
      *texts[field.number] = field.bytes;
    } else if (field.number == ARG_TYPE) {
      read.type = (int)field.value;
    } else if (field.number == ARG_IS_REF) {
      read.is_ref = field.value != 0;
    }
  }
  return read;
}

/* The attribute of a node whose name is a span. */
static bool find_value(hr__span node, hr__span name, hr__span *out_value) {
  char text[64];
  if (name.size >= sizeof text) {
    return false;
  }
  memcpy(text, name.data, name.size);
  text[name.size] = '\0';
  return htf_find_attribute(node, text, out_value);
}

static bool find_number(hr__span node, hr__span name, uint32_t number, int64_t *out_number) {
  hr__span value;
  hr__field field;
  bool is_found = find_value(node, name, &value) && htf_find_field(value, number, &field);
  *out_number = is_found ? (int64_t)field.value : 0;
  return is_found;
}

static bool is_host(const char *host, hr__span name) {
  char word[64];
  while (htf_next_word(&host, word, sizeof word)) {
    if (hr__span_is(name, word)) {
      return true;
    }
  }
  return false;
}

/* The dtypes of one argument; -1 if they cannot be told. */
static int expand(const argument *arg, hr__span node, int most, int *out_types) {
  int64_t count = 1, type = arg->type, list[256];
  if (arg->is_ref || most <= 0) {
    return -1;
  }
  if (arg->list_attribute.size > 0) {
    hr__span value;
    hr__field field;
    if (!find_value(node, arg->list_attribute, &value) || !htf_find_field(value, VALUE_LIST, &field)) {
      return -1;
    }
    count = htf_read_numbers(field.bytes, LIST_TYPES, 256, list);
    for (int64_t i = 0; i < count && i < 256 && i < most; ++i) {
      out_types[i] = (int)list[i];
    }
    return count > 256 || count > most ? -1 : (int)count;
  }
  bool is_known = arg->type_attribute.size == 0 || find_number(node, arg->type_attribute, VALUE_TYPE, &type);
  is_known =
      is_known && (arg->number_attribute.size == 0 || find_number(node, arg->number_attribute, VALUE_INT, &count));
  if (!is_known || count < 0 || count > most) {
    return -1;
  }
  for (int64_t i = 0; i < count; ++i) {
    out_types[i] = (int)type;
  }
  return (int)count;
}

int htf_argument_types(hr__span definition, uint32_t field_number, hr__span node, const char *host, int host_flag,
                       int most, int *out_types) {
  int total = 0;
  hr__wire wire = hr__wire_of(definition);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number != field_number || field.type != HR__WIRE_BYTES) {
      continue;
    }
    argument arg = read_argument(field.bytes);
    int count = expand(&arg, node, most - total, out_types + total);
    if (count < 0) {
      return -1;
    }
    for (int i = 0; i < count && is_host(host, arg.name); ++i) {
      out_types[total + i] |= host_flag;
    }
    total += count;
  }
  return wire.failure == NULL ? total : -1;
}
