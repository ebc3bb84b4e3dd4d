/* vhlo_attributes.c: types and attributes of a module, read when they are wanted. */
#include <math.h>

#include "headrace/dtype.h"
#include "importers/stablehlo/vhlo.h"

enum {
  ATTRIBUTE_ARRAY = 1,
  ATTRIBUTE_BOOL = 2,
  ATTRIBUTE_DICTIONARY = 6,
  ATTRIBUTE_FLOAT = 8,
  ATTRIBUTE_INTEGER = 9,
  ATTRIBUTE_STRING = 14,
  ATTRIBUTE_TENSOR = 15,
  ATTRIBUTE_TYPE = 17,
  BUILTIN_STRING = 2,
  BUILTIN_CALL_SITE = 10,
  BUILTIN_PLACE = 11,
  BUILTIN_FUSED = 12,
  BUILTIN_FUSED_METADATA = 13,
  BUILTIN_NAME = 14,
  BUILTIN_RANGE = 22
};

/* ---- types ---- */

static const hr_dtype dtypes[] = {
    [HR__VHLO_BOOL] = HR_DTYPE_BOOL,
    [2] = HR_DTYPE_BF16,
    [3] = HR_DTYPE_F16,
    [4] = HR_DTYPE_F32,
    [5] = HR_DTYPE_F64,
    [6] = HR_DTYPE_F8E4M3FN,
    [7] = HR_DTYPE_F8E5M2,
    [HR__VHLO_SI4] = HR_DTYPE_I8,
    [11] = HR_DTYPE_I8,
    [12] = HR_DTYPE_I16,
    [13] = HR_DTYPE_I32,
    [14] = HR_DTYPE_I64,
    [HR__VHLO_UI4] = HR_DTYPE_U8,
    [16] = HR_DTYPE_U8,
    [17] = HR_DTYPE_U16,
    [18] = HR_DTYPE_U32,
    [19] = HR_DTYPE_U64,
    [27] = HR_DTYPE_F8E4M3FNUZ,
    [28] = HR_DTYPE_F8E5M2FNUZ,
    [HR__VHLO_SI2] = HR_DTYPE_I8,
    [HR__VHLO_UI2] = HR_DTYPE_U8,
    [29] = HR_DTYPE_F8E4M3B11FNUZ,
    [35] = HR_DTYPE_F8E4M3,
    [36] = HR_DTYPE_F8E3M4,
    [37] = HR_DTYPE_F4E2M1FN,
    [40] = HR_DTYPE_F8E8M0FNU,
};

const char *hr__vhlo_type_name(int code) {
  static const char *const names[] = {[HR__VHLO_COMPLEX] = "complex",
                                      [HR__VHLO_FUNCTION] = "function",
                                      [HR__VHLO_INDEX] = "index",
                                      [HR__VHLO_TUPLE] = "tuple",
                                      [HR__VHLO_QUANTIZED] = "quantized",
                                      [25] = "unranked tensor",
                                      [HR__VHLO_QUANTIZED_AXIS] = "quantized per axis",
                                      [34] = "tf32",
                                      [38] = "f6E2M3FN",
                                      [39] = "f6E3M2FN",
                                      [41] = "buffer",
                                      [HR__VHLO_FUTURE] = "future"};
  bool is_known = code >= 0 && (size_t)code < sizeof names / sizeof *names && names[code] != NULL;
  return is_known ? names[code] : "unknown";
}

/* A reader behind the code of a type; false if it has none of VHLO. */
static bool open_type(const hr__vhlo_module *module, int64_t type, hr__reader *out_reader, int *out_code) {
  if (type < 0 || type >= module->type_count) {
    return false;
  }
  const hr__vhlo_entry *entry = &module->types[type];
  *out_reader = hr__reader_of(entry->bytes);
  *out_code = hr__read_count(out_reader, INT16_MAX);
  return entry->is_custom && strcmp(entry->dialect, "vhlo") == 0 && !out_reader->has_failed;
}

/* The dtype of a real number; NONE: it has none. */
static hr_dtype dtype_of(const hr__vhlo_module *module, uint64_t type) {
  hr__reader reader;
  int code;
  bool is_open = open_type(module, type < (uint64_t)module->type_count ? (int64_t)type : -1, &reader, &code);
  return is_open && (size_t)code < sizeof dtypes / sizeof *dtypes ? dtypes[code] : HR_DTYPE_NONE;
}

double hr__vhlo_scale(hr__reader *scales) {
  int64_t bits = hr__read_signed(scales);
  double scale;
  memcpy(&scale, &bits, sizeof scale);
  return scale;
}

static bool is_quantized(int code) {
  return code == HR__VHLO_QUANTIZED || code == HR__VHLO_QUANTIZED_AXIS;
}

/* The integers of a quantized type, behind its code; NONE: it has none. A flag, not their type, has their sign. */
static hr_dtype read_stored(const hr__vhlo_module *module, hr__reader *reader) {
  bool is_signed = (hr__read_number(reader) & 1) != 0;
  switch (dtype_of(module, hr__read_number(reader))) {
    case HR_DTYPE_I8:
    case HR_DTYPE_U8:
      return is_signed ? HR_DTYPE_I8 : HR_DTYPE_U8;
    case HR_DTYPE_I16:
    case HR_DTYPE_U16:
      return is_signed ? HR_DTYPE_I16 : HR_DTYPE_U16;
    case HR_DTYPE_I32:
    case HR_DTYPE_U32:
      return is_signed ? HR_DTYPE_I32 : HR_DTYPE_U32;
    default:
      return HR_DTYPE_NONE;
  }
}

bool hr__vhlo_quantization_of(const hr__vhlo_module *module, int type, hr__vhlo_quantization *out) {
  hr__reader reader;
  int code;
  if (!open_type(module, type, &reader, &code) || !is_quantized(code)) {
    return false;
  }
  *out = (hr__vhlo_quantization){.axis = -1, .count = 1};
  out->stored = read_stored(module, &reader);
  out->expressed = dtype_of(module, hr__read_number(&reader));
  if (code == HR__VHLO_QUANTIZED_AXIS) {
    out->axis = hr__read_count(&reader, HR_RANK_MAX - 1);
    out->min = hr__read_signed(&reader), out->max = hr__read_signed(&reader);
    out->count = hr__read_items(&reader, HR__VHLO_ITEMS_MAX);
  }
  out->scales = reader;
  for (int i = 0; i < out->count; ++i) {
    hr__read_signed(&reader);
  }
  if (code == HR__VHLO_QUANTIZED_AXIS && hr__read_items(&reader, HR__VHLO_ITEMS_MAX) != out->count) {
    return false;
  }
  out->zeros = reader;
  for (int i = 0; i < out->count; ++i) {
    hr__read_signed(&reader);
  }
  if (code == HR__VHLO_QUANTIZED) {
    out->min = hr__read_signed(&reader), out->max = hr__read_signed(&reader);
  }
  bool is_float = out->expressed >= HR_DTYPE_F16 && out->expressed <= HR_DTYPE_F64;
  return !reader.has_failed && out->stored != HR_DTYPE_NONE && is_float;
}

static bool read_element(const hr__vhlo_module *module, int64_t type, hr__vhlo_type *out) {
  hr__reader reader;
  if (!open_type(module, type, &reader, &out->code)) {
    return false;
  }
  out->element = (int)type;
  if (out->code == HR__VHLO_COMPLEX) {
    hr__reader part;
    int code;
    bool is_open = open_type(module, (int64_t)hr__read_number(&reader), &part, &code);
    out->dtype = is_open && code == 4 ? HR_DTYPE_C64 : is_open && code == 5 ? HR_DTYPE_C128 : HR_DTYPE_NONE;
  } else if (is_quantized(out->code)) {
    out->dtype = read_stored(module, &reader);
  } else {
    bool is_known = (size_t)out->code < sizeof dtypes / sizeof *dtypes;
    out->dtype = is_known ? dtypes[out->code] : HR_DTYPE_NONE;
  }
  return !reader.has_failed;
}

/* Dims whose product is a number of elements. */
static bool read_dims(hr__reader *reader, hr__vhlo_type *out) {
  int64_t count = 1;
  out->rank = hr__read_count(reader, HR_RANK_MAX);
  for (int d = 0; d < out->rank; ++d) {
    int64_t size = hr__read_signed(reader);
    out->dims[d] = size == INT64_MIN ? -1 : size;
    if (out->dims[d] < -1 || __builtin_mul_overflow(count, size > 1 ? size : 1, &count)) {
      return false;
    }
  }
  return !reader->has_failed;
}

bool hr__vhlo_type_of(const hr__vhlo_module *module, int type, hr__vhlo_type *out) {
  hr__reader reader;
  int code;
  *out = (hr__vhlo_type){0};
  if (!open_type(module, type, &reader, &code)) {
    return false;
  }
  if (code == HR__VHLO_TOKEN) {
    out->is_token = true, out->code = code;
    return true;
  }
  if (code == HR__VHLO_TENSOR || code == HR__VHLO_TENSOR_ENCODED) {
    return read_dims(&reader, out) && read_element(module, (int64_t)hr__read_number(&reader), out) &&
           !reader.has_failed;
  }
  return read_element(module, type, out);
}

/* ---- attributes ---- */

typedef struct opened {
  hr__reader reader; /* behind the code */
  int code;
  bool is_builtin; /* else of VHLO */
} opened;

static bool open_attribute(const hr__vhlo_module *module, int64_t attribute, opened *out) {
  if (attribute < 0 || attribute >= module->attribute_count) {
    return false;
  }
  const hr__vhlo_entry *entry = &module->attributes[attribute];
  out->reader = hr__reader_of(entry->bytes);
  out->code = hr__read_count(&out->reader, INT16_MAX);
  out->is_builtin = strcmp(entry->dialect, "builtin") == 0;
  return entry->is_custom && !out->reader.has_failed && (out->is_builtin || strcmp(entry->dialect, "vhlo") == 0);
}

/* One of VHLO with this code. */
static bool open_vhlo(const hr__vhlo_module *module, int64_t attribute, int code, hr__reader *out_reader) {
  opened at;
  bool is_one = open_attribute(module, attribute, &at) && !at.is_builtin && at.code == code;
  *out_reader = at.reader;
  return is_one;
}

int hr__vhlo_string(const hr__vhlo_module *module, int attribute) {
  opened at;
  if (!open_attribute(module, attribute, &at) || at.code != (at.is_builtin ? BUILTIN_STRING : ATTRIBUTE_STRING)) {
    return -1;
  }
  int index = hr__read_count(&at.reader, module->string_count - 1);
  return at.reader.has_failed ? -1 : index;
}

const char *hr__vhlo_text(const hr__vhlo_module *module, int attribute) {
  int index = hr__vhlo_string(module, attribute);
  return index >= 0 && strlen(module->strings[index]) == module->lengths[index] ? module->strings[index] : NULL;
}

/* The bits of an integer or a float of a type. */
static bool read_bits(const hr__vhlo_module *module, hr__reader *reader, hr__vhlo_type *out_type, int64_t *out_bits) {
  if (!read_element(module, (int64_t)hr__read_number(reader), out_type)) {
    return false;
  }
  bool is_index = out_type->code == HR__VHLO_INDEX;
  size_t size = is_index ? 8 : hr_dtype_size(out_type->dtype);
  *out_bits = size == 1 ? (int8_t)hr__read_byte(reader) : hr__read_signed(reader);
  return size > 0 && size <= 8 && !reader->has_failed;
}

bool hr__vhlo_int(const hr__vhlo_module *module, int attribute, int64_t *out_number) {
  enum { ENUMERATOR_LEAST = 3, ENUMERATOR_MOST = 19 };
  opened at;
  hr__vhlo_type type;
  if (!open_attribute(module, attribute, &at) || at.is_builtin) {
    return false;
  }
  if (at.code == ATTRIBUTE_INTEGER) {
    return read_bits(module, &at.reader, &type, out_number);
  }
  bool is_number = at.code >= ATTRIBUTE_BOOL && at.code <= ENUMERATOR_MOST && at.code != ATTRIBUTE_DICTIONARY &&
                   at.code != ATTRIBUTE_FLOAT && at.code != ATTRIBUTE_STRING && at.code != ATTRIBUTE_TENSOR &&
                   at.code != ATTRIBUTE_TYPE;
  *out_number = is_number ? (int64_t)hr__read_number(&at.reader) : 0;
  return is_number && !at.reader.has_failed;
}

bool hr__vhlo_real(const hr__vhlo_module *module, int attribute, double *out_number) {
  hr__reader reader;
  hr__vhlo_type type;
  int64_t bits;
  if (!open_vhlo(module, attribute, ATTRIBUTE_FLOAT, &reader) || !read_bits(module, &reader, &type, &bits)) {
    return false;
  }
  if (type.dtype == HR_DTYPE_F64) {
    memcpy(out_number, &bits, sizeof *out_number);
    return true;
  }
  float number = 0;
  uint32_t word = type.dtype == HR_DTYPE_BF16 ? (uint32_t)bits << 16 : (uint32_t)bits;
  memcpy(&number, &word, sizeof number);
  *out_number = (double)number;
  return type.dtype == HR_DTYPE_F32 || type.dtype == HR_DTYPE_BF16;
}

int hr__vhlo_list(const hr__vhlo_module *module, int attribute, int room, int *out_attributes) {
  hr__reader reader;
  if (!open_vhlo(module, attribute, ATTRIBUTE_ARRAY, &reader)) {
    return -1;
  }
  int count = hr__read_count(&reader, (int)hr__reader_left(&reader));
  for (int i = 0; i < count && i < room; ++i) {
    out_attributes[i] = hr__read_count(&reader, module->attribute_count - 1);
  }
  return reader.has_failed ? -1 : count;
}

bool hr__vhlo_tensor(const hr__vhlo_module *module, int attribute, hr__vhlo_type *out_type, hr__span *out_bytes) {
  hr__reader reader;
  if (!open_vhlo(module, attribute, ATTRIBUTE_TENSOR, &reader)) {
    return false;
  }
  int type = hr__read_count(&reader, module->type_count - 1);
  if (reader.has_failed || !hr__vhlo_type_of(module, type, out_type)) {
    return false;
  }
  *out_bytes = hr__read_span(&reader, hr__read_number(&reader));
  return !reader.has_failed;
}

static int tensor_ints(const hr__vhlo_type *type, hr__span bytes, int64_t *out_numbers) {
  bool is_flag = type->dtype == HR_DTYPE_BOOL;
  int64_t count = 1;
  for (int d = 0; d < type->rank; ++d) {
    count *= type->dims[d] >= 0 && type->dims[d] <= HR__VHLO_PLACES_MAX ? type->dims[d] : HR__VHLO_PLACES_MAX + 1;
    count = count > HR__VHLO_PLACES_MAX ? HR__VHLO_PLACES_MAX + 1 : count;
  }
  size_t needed = is_flag ? ((size_t)count + 7) / 8 : (size_t)count * 8;
  bool is_one = bytes.size == (is_flag ? 1u : 8u);
  if (count > HR__VHLO_PLACES_MAX || (!is_flag && type->dtype != HR_DTYPE_I64) || (bytes.size != needed && !is_one)) {
    return -1;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (is_flag) {
      bool is_splat = bytes.data[0] == 0xff || bytes.data[0] == 0 || count == 1;
      out_numbers[i] = is_splat ? bytes.data[0] != 0 : (bytes.data[i / 8] >> (i % 8)) & 1;
    } else {
      memcpy(&out_numbers[i], bytes.data + (is_one ? 0 : 8 * i), 8);
    }
  }
  return (int)count;
}

int hr__vhlo_ints(const hr__vhlo_module *module, int attribute, int64_t *out_numbers) {
  hr__vhlo_type type;
  hr__span bytes;
  int attributes[HR__VHLO_PLACES_MAX];
  if (hr__vhlo_tensor(module, attribute, &type, &bytes)) {
    return tensor_ints(&type, bytes, out_numbers);
  }
  int count = hr__vhlo_list(module, attribute, HR__VHLO_PLACES_MAX, attributes);
  for (int i = 0; i < count; ++i) {
    if (i >= HR__VHLO_PLACES_MAX || !hr__vhlo_int(module, attributes[i], &out_numbers[i])) {
      return -1;
    }
  }
  return count;
}

/* ---- names ---- */

/* Of a dictionary of VHLO, or of builtin: before version 5 that of an operation. */
int hr__vhlo_dictionary(const hr__vhlo_module *module, int dictionary, const char *name) {
  opened at;
  if (!open_attribute(module, dictionary, &at) || at.code != (at.is_builtin ? 1 : ATTRIBUTE_DICTIONARY)) {
    return -1;
  }
  int count = hr__read_count(&at.reader, (int)hr__reader_left(&at.reader));
  for (int i = 0; i < count; ++i) {
    int key = hr__read_count(&at.reader, module->attribute_count - 1);
    int value = hr__read_count(&at.reader, module->attribute_count - 1);
    const char *text = at.reader.has_failed ? NULL : hr__vhlo_text(module, key);
    if (text == NULL) {
      return -1;
    }
    if (strcmp(text, name) == 0) {
      return value;
    }
  }
  return -1;
}

/* The place of a word among those between ", "; -1: it is not there. */
static int place_of(const char *words, const char *name) {
  size_t length = strlen(name);
  for (int place = 0; words != NULL; ++place) {
    const char *end = strchr(words, ',');
    size_t size = end != NULL ? (size_t)(end - words) : strlen(words);
    if (size == length && memcmp(words, name, length) == 0) {
      return place;
    }
    words = end != NULL ? end + 2 : NULL;
  }
  return -1;
}

int hr__vhlo_find(const hr__vhlo_module *module, const hr__vhlo_op *op, const char *name) {
  if (module->version < 5) {
    return hr__vhlo_dictionary(module, op->dictionary, name);
  }
  int place = place_of(op->name->properties, name), attribute = -1;
  if (place < 0) {
    return -1;
  }
  hr__reader reader = hr__reader_of(op->properties);
  for (int i = 0; i <= place; ++i) {
    attribute = hr__read_count(&reader, module->attribute_count - 1);
  }
  return reader.has_failed ? -1 : attribute;
}

/* ---- locations ---- */

static void locate(const hr__vhlo_module *module, int64_t location, int depth, hr_text *text) {
  opened at;
  if (depth >= HR__VHLO_DEPTH_MAX || !open_attribute(module, location, &at) || !at.is_builtin) {
    return;
  }
  int first = hr__read_count(&at.reader, module->attribute_count - 1);
  if (at.reader.has_failed) {
    return;
  }
  switch (at.code) {
    case BUILTIN_CALL_SITE: /* callee, caller */
      locate(module, first, depth + 1, text);
      break;
    case BUILTIN_FUSED_METADATA: /* metadata first */
    case BUILTIN_FUSED: {
      hr__reader list = hr__reader_of(module->attributes[location].bytes);
      hr__read_number(&list);
      hr__read_number(&list);
      locate(module, (int64_t)(hr__read_number(&list) & INT32_MAX), depth + 1, text);
      break;
    }
    case BUILTIN_NAME: {
      const char *name = hr__vhlo_text(module, first);
      hr_text_printf(text, "%s\"%.200s\"", text->length > 0 ? " " : "", name != NULL ? name : "");
      locate(module, (int64_t)(hr__read_number(&at.reader) & INT32_MAX), depth + 1, text);
      break;
    }
    case BUILTIN_PLACE:
    case BUILTIN_RANGE: {
      const char *file = hr__vhlo_text(module, first);
      if (at.code == BUILTIN_RANGE) {
        hr__read_number(&at.reader);
      }
      hr_text_printf(text, "%s%.200s:%llu", text->length > 0 ? " " : "", file != NULL ? file : "",
                     (unsigned long long)hr__read_number(&at.reader));
      break;
    }
    default:
      break;
  }
}

void hr__vhlo_locate(const hr__vhlo_module *module, int location, hr_text *text) {
  locate(module, location, 0, text);
}
