/* gguf.c: GGUF files, versions 2 and 3 (ggml's docs/gguf.md): a header, metadata with types, the tensors' names, dims,
 * types and offsets, then their data at multiples of an alignment.
 *
 * A tensor of type Q4_0, Q4_1 or Q8_0 consists of blocks of 32 elements with a scale, Q4_1's with a bias, too. It
 * becomes three arrays for hr.dequantize with groups of 32: NAME.weight of unsigned integers packed into u32,
 * NAME.scales and NAME.biases in f16. Other quantised types are refused, and so are big-endian files.
 */
#include <math.h>
#include <string.h>

#include "array/array_file.h"
#include "base/allocator.h"
#include "core/ir/dtype.h"

enum {
  GROUP = 32,
  ALIGNMENT = 32, /* if the metadata has no other */
  KEY_MAX = 65535,
  VERSION = 3
};

typedef unsigned long long ull;

/* ---- types ---- */

enum { TYPE_STRING = 8, TYPE_LIST = 9 };

/* Types of metadata, by number. */
static const hr_dtype number_types[] = {HR_DTYPE_U8,  HR_DTYPE_I8,  HR_DTYPE_U16,  HR_DTYPE_I16,  HR_DTYPE_U32,
                                        HR_DTYPE_I32, HR_DTYPE_F32, HR_DTYPE_BOOL, HR_DTYPE_BOOL, HR_DTYPE_BOOL,
                                        HR_DTYPE_U64, HR_DTYPE_I64, HR_DTYPE_F64};
enum { NUMBER_TYPES = sizeof number_types / sizeof *number_types };

/* Types of tensors. A block stands for 32 elements: of `bits` bits each, behind `head` bytes. */
static const struct {
  const char *name;
  unsigned type;
  hr_dtype dtype;
  int bits, head; /* 0 bits: not quantised */
} tensor_types[] = {{"F32", 0, HR_DTYPE_F32, 0, 0},  {"F16", 1, HR_DTYPE_F16, 0, 0},   {"Q4_0", 2, HR_DTYPE_U32, 4, 2},
                    {"Q4_1", 3, HR_DTYPE_U32, 4, 4}, {"Q8_0", 8, HR_DTYPE_U32, 8, 2},  {"I8", 24, HR_DTYPE_I8, 0, 0},
                    {"I16", 25, HR_DTYPE_I16, 0, 0}, {"I32", 26, HR_DTYPE_I32, 0, 0},  {"I64", 27, HR_DTYPE_I64, 0, 0},
                    {"F64", 28, HR_DTYPE_F64, 0, 0}, {"BF16", 30, HR_DTYPE_BF16, 0, 0}};
enum { TENSOR_TYPES = sizeof tensor_types / sizeof *tensor_types };

/* The names of types that are not read, for messages. */
static const char *const refused_types[] = {
    [6] = "Q5_0",   [7] = "Q5_1",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",
    [13] = "Q5_K",  [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS",
    [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [29] = "IQ1_M",
    [34] = "TQ1_0", [35] = "TQ2_0",  [39] = "MXFP4", [40] = "NVFP4"};
enum { REFUSED_TYPES = sizeof refused_types / sizeof *refused_types };

static int find_type(unsigned type) {
  int i = 0;
  while (i < TENSOR_TYPES && tensor_types[i].type != type) {
    ++i;
  }
  return i;
}

/* ---- reading: fields ---- */

typedef struct parser {
  hr_file *file;
  uint64_t at;
  uint64_t alignment;
  hr_text name; /* of the value or tensor at hand */
} parser;

static const char *name_of(const parser *p) {
  return hr_text_chars(&p->name);
}

static uint64_t left(const parser *p) {
  return p->file->size - p->at;
}

/* The next bytes, or an error that says what they are. */
static hr_status take(parser *p, uint64_t bytes, const char *what, const char **out) {
  *out = p->file->bytes;
  if (bytes > left(p)) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: %s at byte %llu needs %llu bytes, but %llu follow", what,
                          (ull)p->at, (ull)bytes, (ull)left(p));
  }
  *out = p->file->bytes + p->at;
  p->at += bytes;
  return HR_OK;
}

static hr_status take_u32(parser *p, const char *what, uint32_t *out) {
  const char *bytes;
  HR_RETURN_IF_ERROR(take(p, sizeof *out, what, &bytes));
  memcpy(out, bytes, sizeof *out);
  return HR_OK;
}

static hr_status take_u64(parser *p, const char *what, uint64_t *out) {
  const char *bytes;
  HR_RETURN_IF_ERROR(take(p, sizeof *out, what, &bytes));
  memcpy(out, bytes, sizeof *out);
  return HR_OK;
}

static hr_status take_string(parser *p, const char *what, hr_file_string *out) {
  uint64_t length;
  *out = (hr_file_string){"", 0};
  HR_RETURN_IF_ERROR(take_u64(p, what, &length));
  out->length = length;
  return take(p, length, what, &out->chars);
}

/* A name or key: UTF-8 without zeros, into p->name. */
static hr_status take_name(parser *p, const char *what) {
  hr_file_string string;
  uint64_t at = p->at;
  HR_RETURN_IF_ERROR(take_string(p, what, &string));
  if (string.length > KEY_MAX || !hr__is_utf8(string.chars, string.length) ||
      memchr(string.chars, '\0', string.length) != NULL) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: %s at byte %llu is no UTF-8 without zeros, of at most %d bytes",
                          what, (ull)at, KEY_MAX);
  }
  hr_text_clear(&p->name);
  hr_text_append_bytes(&p->name, string.chars, string.length);
  return hr_text_status(&p->name);
}

/* ---- reading: metadata ---- */

static hr_status read_strings(parser *p, hr_file_value_kind kind, uint64_t count) {
  uint64_t begin = p->at, bytes = 0;
  hr_file_string string;
  for (uint64_t i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(take_string(p, "a string", &string));
    bytes += string.length + 1;
  }
  hr_file_value *value = NULL;
  HR_RETURN_IF_ERROR(hr__file_add_value(p->file, name_of(p), kind, (int64_t)count, bytes, &value));
  hr_file_string *strings = (hr_file_string *)(uintptr_t)value->strings;
  char *to = (char *)(strings + count);
  p->at = begin;
  for (uint64_t i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(take_string(p, "a string", &string));
    memcpy(to, string.chars, string.length);
    to[string.length] = '\0';
    strings[i] = (hr_file_string){to, string.length};
    to += string.length + 1;
  }
  return HR_OK;
}

static hr_status read_numbers(parser *p, hr_file_value_kind kind, uint64_t count, hr_dtype dtype) {
  const char *from;
  uint64_t size = hr_dtype_size(dtype);
  hr_file_value *value = NULL;
  HR_RETURN_IF_ERROR(take(p, count <= left(p) / size ? count * size : UINT64_MAX, "a list of numbers", &from));
  HR_RETURN_IF_ERROR(hr__file_add_value(p->file, name_of(p), kind, (int64_t)count, count * size, &value));
  value->dtype = dtype;
  memcpy((void *)(uintptr_t)value->numbers, from, count * size);
  for (uint64_t i = 0; dtype == HR_DTYPE_BOOL && i < count; ++i) {
    if ((unsigned char)from[i] > 1) {
      return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: bool %llu of '%.200s' is %d, expected 0 or 1", (ull)i,
                            name_of(p), (unsigned char)from[i]);
    }
  }
  return HR_OK;
}

/* The alignment is a value of the metadata, too. */
static hr_status use_alignment(parser *p) {
  const hr_file_value *value = &p->file->values[p->file->value_count - 1];
  if (strcmp(value->key, "general.alignment") != 0) {
    return HR_OK;
  }
  uint32_t alignment = 0;
  if (value->kind == HR_FILE_NUMBER && value->dtype == HR_DTYPE_U32) {
    memcpy(&alignment, value->numbers, sizeof alignment);
  }
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: general.alignment is %u, expected a power of two", alignment);
  }
  p->alignment = alignment;
  return HR_OK;
}

static hr_status read_value(parser *p) {
  uint32_t type;
  uint64_t count = 1;
  HR_RETURN_IF_ERROR(take_name(p, "a key"));
  HR_RETURN_IF_ERROR(take_u32(p, "a type", &type));
  bool is_list = type == TYPE_LIST;
  if (is_list) {
    HR_RETURN_IF_ERROR(take_u32(p, "a type", &type));
    HR_RETURN_IF_ERROR(take_u64(p, "a length", &count));
  }
  if (type == TYPE_LIST) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "gguf: '%.200s' is a list of lists", name_of(p));
  }
  if (type >= NUMBER_TYPES) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: '%.200s' has type %u, expected at most %d", name_of(p), type,
                          NUMBER_TYPES - 1);
  }
  if (type == TYPE_STRING) {
    HR_RETURN_IF_ERROR(read_strings(p, is_list ? HR_FILE_STRINGS : HR_FILE_STRING, count));
  } else {
    HR_RETURN_IF_ERROR(read_numbers(p, is_list ? HR_FILE_NUMBERS : HR_FILE_NUMBER, count, number_types[type]));
  }
  return use_alignment(p);
}

/* ---- reading: quantised tensors ---- */

enum { WEIGHT = 0, SCALES, BIASES };

/* GGML puts element i beside element i + 16; a group's elements follow each other in ours. Q8_0's are signed. */
static void decode_weight(int bits, const unsigned char *elements, unsigned char *to) {
  for (int i = 0; i < GROUP && bits == 8; ++i) {
    to[i] = elements[i] ^ 0x80;
  }
  for (int i = 0; i < GROUP / 2 && bits == 4; ++i) {
    const unsigned char *pair = &elements[2 * i % 16];
    to[i] = (unsigned char)(i < 8 ? (pair[0] & 15) | (pair[1] & 15) << 4 : pair[0] >> 4 | (pair[1] & 0xf0));
  }
}

/* The bias of unsigned elements: that of the block, or the scale times the middle of their range. */
static uint16_t bias_of(int bits, int head, const unsigned char *block) {
  uint16_t scale, bias;
  memcpy(&scale, block, 2);
  memcpy(&bias, block + 2, 2);
  return head == 4 ? bias : hr_f32_to_f16(hr_f16_to_f32(scale) * (float)-(1 << (bits - 1)));
}

static hr_status decode(const hr_file *file, const hr_file_entry *entry, char *out) {
  int type = find_type(entry->type), bits = tensor_types[type].bits, head = tensor_types[type].head;
  uint64_t block_bytes = (uint64_t)head + (uint64_t)bits * GROUP / 8;
  const unsigned char *block = (const unsigned char *)file->bytes + entry->begin;
  for (uint64_t left_bytes = entry->packed; left_bytes > 0; left_bytes -= block_bytes, block += block_bytes) {
    uint16_t number = 0;
    if (entry->part == WEIGHT) {
      decode_weight(bits, block + head, (unsigned char *)out);
      out += bits * GROUP / 8;
      continue;
    }
    memcpy(&number, block, sizeof number);
    float scale = hr_f16_to_f32(number);
    number = entry->part == BIASES ? bias_of(bits, head, block) : number;
    if (isinf(hr_f16_to_f32(number)) && !isinf(scale)) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "gguf: scale %g is too large for a bias in f16", (double)scale);
    }
    memcpy(out, &number, sizeof number);
    out += sizeof number;
  }
  return HR_OK;
}

/* Adds one of the arrays of a quantised tensor, whose name ends with .weight, or is extended. */
static hr_status add_part(parser *p, const hr_file_entry *tensor, int bits, int part) {
  static const char ending[] = ".weight", *const endings[] = {".weight", ".scales", ".biases"};
  size_t length = p->name.length, end = sizeof ending - 1;
  bool has_ending = length >= end && strcmp(name_of(p) + length - end, ending) == 0;
  hr_text name = {0};
  hr_file_entry entry = *tensor;
  entry.dtype = part == WEIGHT ? HR_DTYPE_U32 : HR_DTYPE_F16;
  entry.dims[entry.rank - 1] = tensor->dims[entry.rank - 1] / GROUP * (part == WEIGHT ? bits : 1);
  HR_RETURN_IF_ERROR(hr__file_measure(&entry));
  entry.packed = tensor->packed, entry.decode = decode, entry.part = part;
  hr_text_append_bytes(&name, name_of(p), has_ending ? length - end : length);
  if (part != WEIGHT || has_ending) {
    hr_text_append(&name, endings[part]);
  }
  hr_status status = hr_text_status(&name);
  status = status == HR_OK ? hr__file_add(p->file, hr_text_chars(&name), &entry) : status;
  hr_text_fini(&name);
  return status;
}

/* Sets the bytes of a quantised tensor in the file. */
static hr_status measure_blocks(const parser *p, int type, hr_file_entry *entry) {
  int64_t row = entry->rank > 0 ? entry->dims[entry->rank - 1] : 1;
  hr_file_entry bytes = *entry;
  if (row % GROUP != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS,
                          "gguf: '%.200s' of type %s has rows of %lld, expected whole blocks of %d", name_of(p),
                          tensor_types[type].name, (long long)row, GROUP);
  }
  bytes.dtype = HR_DTYPE_U8;
  bytes.dims[entry->rank - 1] = row / GROUP * (tensor_types[type].head + tensor_types[type].bits * GROUP / 8);
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__file_measure(&bytes), "gguf: '%.200s'", name_of(p)));
  entry->packed = bytes.bytes;
  return HR_OK;
}

/* ---- reading: tensors ---- */

static hr_status refuse_type(const parser *p, unsigned type) {
  const char *name = type < REFUSED_TYPES ? refused_types[type] : NULL;
  return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                        "gguf: '%.200s' has type %u (%s), expected floats, signed integers, Q4_0, Q4_1 or Q8_0",
                        name_of(p), type, name != NULL ? name : "unknown");
}

/* Dims are those of rows first. */
static hr_status take_dims(parser *p, hr_file_entry *entry) {
  uint32_t rank;
  HR_RETURN_IF_ERROR(take_u32(p, "a number of dims", &rank));
  if (rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: '%.200s' has %u dims, expected at most %d", name_of(p), rank,
                          HR_RANK_MAX);
  }
  entry->rank = (int)rank;
  for (int d = entry->rank - 1; d >= 0; --d) {
    uint64_t dim;
    HR_RETURN_IF_ERROR(take_u64(p, "a dim", &dim));
    entry->dims[d] = (int64_t)dim;
  }
  return HR_OK;
}

/* Adds a tensor, or its parts, with the offset as its place. */
static hr_status read_tensor(parser *p) {
  hr_file_entry entry = {0};
  HR_RETURN_IF_ERROR(take_name(p, "a tensor's name"));
  HR_RETURN_IF_ERROR(take_dims(p, &entry));
  HR_RETURN_IF_ERROR(take_u32(p, "a type", &entry.type));
  HR_RETURN_IF_ERROR(take_u64(p, "an offset", &entry.begin));
  int type = find_type(entry.type);
  if (type == TENSOR_TYPES) {
    return refuse_type(p, entry.type);
  }
  if (entry.begin % p->alignment != 0) {
    return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: '%.200s' has offset %llu, expected a multiple of %llu",
                          name_of(p), (ull)entry.begin, (ull)p->alignment);
  }
  entry.dtype = tensor_types[type].dtype;
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__file_measure(&entry), "gguf: '%.200s'", name_of(p)));
  if (tensor_types[type].bits == 0) {
    return hr__file_add(p->file, name_of(p), &entry);
  }
  HR_RETURN_IF_ERROR(measure_blocks(p, type, &entry));
  for (int part = WEIGHT; part <= BIASES; ++part) {
    HR_RETURN_IF_ERROR(add_part(p, &entry, tensor_types[type].bits, part));
  }
  return HR_OK;
}

/* Moves the entries to the data, which begins at `data`. */
static hr_status place_tensors(hr_file *file, uint64_t data) {
  for (int i = 0; i < file->count; ++i) {
    hr_file_entry *entry = &file->entries[i];
    uint64_t size = data < file->size ? file->size - data : 0;
    if (entry->begin > size || entry->packed > size - entry->begin) {
      return hr_status_make(HR_STATUS_DATA_LOSS, "gguf: '%.200s' has %llu bytes at offset %llu, but the data has %llu",
                            entry->name, (ull)entry->packed, (ull)entry->begin, (ull)size);
    }
    entry->begin = size > 0 ? data + entry->begin : 0; /* else it is empty */
  }
  return HR_OK;
}

static hr_status read_all(parser *p) {
  uint32_t magic, version;
  uint64_t tensors, values;
  HR_RETURN_IF_ERROR(take_u32(p, "the magic", &magic));
  HR_RETURN_IF_ERROR(take_u32(p, "the version", &version));
  if (version != 2 && version != 3) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "gguf: version %u, expected 2 or 3 in little-endian order", version);
  }
  HR_RETURN_IF_ERROR(take_u64(p, "the number of tensors", &tensors));
  HR_RETURN_IF_ERROR(take_u64(p, "the number of values", &values));
  for (uint64_t i = 0; i < values; ++i) {
    HR_RETURN_IF_ERROR(read_value(p));
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    HR_RETURN_IF_ERROR(read_tensor(p));
  }
  HR_RETURN_IF_ERROR(hr__file_check_names(p->file));
  HR_RETURN_IF_ERROR(place_tensors(p->file, (p->at + p->alignment - 1) & ~(p->alignment - 1)));
  return hr__file_check_overlap(p->file);
}

hr_status hr__gguf_read(hr_file *file) {
  parser p = {.file = file, .alignment = ALIGNMENT};
  hr_status status = read_all(&p);
  hr_text_fini(&p.name);
  return status;
}

/* ---- writing ---- */

static void append(hr_text *text, uint64_t value, int bytes) {
  hr_text_append_bytes(text, (const char *)&value, (size_t)bytes);
}

static void append_string(hr_text *text, const char *chars, size_t length) {
  append(text, length, 8);
  hr_text_append_bytes(text, chars, length);
}

static hr_status append_name(hr_text *text, const char *name) {
  size_t length = strlen(name);
  if (length > KEY_MAX || !hr__is_utf8(name, length)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "gguf: a name of %zu bytes, expected UTF-8 of at most %d", length,
                          KEY_MAX);
  }
  append_string(text, name, length);
  return HR_OK;
}

static hr_status append_numbers(hr_text *text, const hr_file_value *value) {
  int type = 0;
  while (type < NUMBER_TYPES && (number_types[type] != value->dtype || type == TYPE_STRING || type == TYPE_LIST)) {
    ++type;
  }
  if (type == NUMBER_TYPES) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "gguf: metadata '%.200s': the format has no values of %s",
                          value->key, hr_dtype_name(value->dtype));
  }
  if (value->kind == HR_FILE_NUMBERS) {
    append(text, TYPE_LIST, 4);
  }
  append(text, (uint64_t)type, 4);
  if (value->kind == HR_FILE_NUMBERS) {
    append(text, (uint64_t)value->count, 8);
  }
  hr_text_append_bytes(text, value->numbers, (size_t)value->count * hr_dtype_size(value->dtype));
  return HR_OK;
}

static hr_status append_value(hr_text *text, const hr_file_value *value) {
  if (strcmp(value->key, "general.alignment") == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "gguf: general.alignment is set by the writer");
  }
  HR_RETURN_IF_ERROR(append_name(text, value->key));
  if (value->kind == HR_FILE_NUMBER || value->kind == HR_FILE_NUMBERS) {
    return append_numbers(text, value);
  }
  if (value->kind == HR_FILE_STRINGS) {
    append(text, TYPE_LIST, 4);
  }
  append(text, TYPE_STRING, 4);
  if (value->kind == HR_FILE_STRINGS) {
    append(text, (uint64_t)value->count, 8);
  }
  for (int64_t i = 0; i < value->count; ++i) {
    append_string(text, value->strings[i].chars, value->strings[i].length);
  }
  return HR_OK;
}

static uint64_t aligned(uint64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static hr_status append_tensor(hr_text *text, const char *name, const hr_tensor *x, uint64_t *offset) {
  int type = 0;
  while (type < TENSOR_TYPES && (tensor_types[type].dtype != x->dtype || tensor_types[type].bits > 0)) {
    ++type;
  }
  if (type == TENSOR_TYPES) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "gguf: '%.200s': the format has no arrays of %s", name,
                          hr_dtype_name(x->dtype));
  }
  HR_RETURN_IF_ERROR(append_name(text, name));
  append(text, (uint64_t)x->rank, 4);
  for (int d = x->rank - 1; d >= 0; --d) {
    append(text, (uint64_t)x->dims[d], 8);
  }
  append(text, tensor_types[type].type, 4);
  append(text, *offset, 8);
  *offset += aligned((uint64_t)hr_tensor_count(x) * hr_dtype_size(x->dtype));
  return HR_OK;
}

static hr_status append_header(hr_text *text, const hr_file_contents *contents) {
  uint64_t offset = 0;
  hr_text_append(text, "GGUF");
  append(text, VERSION, 4);
  append(text, (uint64_t)contents->count, 8);
  append(text, (uint64_t)contents->value_count, 8);
  for (int i = 0; i < contents->value_count; ++i) {
    HR_RETURN_IF_ERROR(append_value(text, &contents->values[i]));
  }
  for (int i = 0; i < contents->count; ++i) {
    HR_RETURN_IF_ERROR(append_tensor(text, contents->names[i], contents->arrays[i], &offset));
  }
  return hr_text_status(text);
}

hr_status hr__gguf_write(hr__writer *to) {
  static const char zeros[ALIGNMENT] = {0};
  hr_text header = {0};
  hr_status status = append_header(&header, to->contents);
  status = status == HR_OK ? hr__write_text(to, &header) : status;
  hr_text_fini(&header);
  for (int i = 0; i < to->contents->count && status == HR_OK; ++i) {
    status = hr__write(to, zeros, aligned(to->at) - to->at);
    status = status == HR_OK ? hr__write_array(to, to->contents->arrays[i]) : status;
  }
  return status == HR_OK ? hr__write(to, zeros, aligned(to->at) - to->at) : status;
}
