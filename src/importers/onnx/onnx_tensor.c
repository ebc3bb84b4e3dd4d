/* onnx_tensor.c: elements of tensors: raw bytes, typed fields, and integers of less than eight bits. */
#include "functional/functions.h"
#include "importers/onnx/onnx_model.h"

#define DAMAGED(...) hr_status_make(HR_STATUS_DATA_LOSS, __VA_ARGS__)

/* ---- data types ---- */

typedef struct data_type {
  const char *name;
  hr_dtype dtype;
  int narrow_bits;
  uint32_t field; /* of TensorProto that has the elements if there are no raw ones */
} data_type;

enum { FLOATS = 4, INT32S = 5, INT64S = 7, DOUBLES = 10, UINT64S = 11 };

static const data_type data_types[] = {
    {"UNDEFINED", HR_DTYPE_NONE, 0, 0},
    {"FLOAT", HR_DTYPE_F32, 0, FLOATS},
    {"UINT8", HR_DTYPE_U8, 0, INT32S},
    {"INT8", HR_DTYPE_I8, 0, INT32S},
    {"UINT16", HR_DTYPE_U16, 0, INT32S},
    {"INT16", HR_DTYPE_I16, 0, INT32S},
    {"INT32", HR_DTYPE_I32, 0, INT32S},
    {"INT64", HR_DTYPE_I64, 0, INT64S},
    {"STRING", HR_DTYPE_NONE, 0, 0},
    {"BOOL", HR_DTYPE_BOOL, 0, INT32S},
    {"FLOAT16", HR_DTYPE_F16, 0, INT32S},
    {"DOUBLE", HR_DTYPE_F64, 0, DOUBLES},
    {"UINT32", HR_DTYPE_U32, 0, UINT64S},
    {"UINT64", HR_DTYPE_U64, 0, UINT64S},
    {"COMPLEX64", HR_DTYPE_C64, 0, FLOATS},
    {"COMPLEX128", HR_DTYPE_C128, 0, DOUBLES},
    {"BFLOAT16", HR_DTYPE_BF16, 0, INT32S},
    {"FLOAT8E4M3FN", HR_DTYPE_F8E4M3FN, 0, INT32S},
    {"FLOAT8E4M3FNUZ", HR_DTYPE_F8E4M3FNUZ, 0, INT32S},
    {"FLOAT8E5M2", HR_DTYPE_F8E5M2, 0, INT32S},
    {"FLOAT8E5M2FNUZ", HR_DTYPE_F8E5M2FNUZ, 0, INT32S},
    {"UINT4", HR_DTYPE_U8, 4, INT32S},
    {"INT4", HR_DTYPE_I8, 4, INT32S},
    {"FLOAT4E2M1", HR_DTYPE_F32, 4, INT32S},
    {"FLOAT8E8M0", HR_DTYPE_F8E8M0FNU, 0, INT32S},
    {"UINT2", HR_DTYPE_U8, 2, INT32S},
    {"INT2", HR_DTYPE_I8, 2, INT32S},
};

static const data_type *row_of(int64_t number) {
  bool exists = number > 0 && number < (int64_t)(sizeof data_types / sizeof *data_types);
  return &data_types[exists ? number : 0];
}

hr_dtype hr__onnx_dtype(int64_t number) {
  return row_of(number)->dtype;
}
int hr__onnx_narrow_bits(int64_t number) {
  return row_of(number)->narrow_bits;
}
const char *hr__onnx_data_type_name(int64_t number) {
  return row_of(number)->name;
}
int64_t hr__onnx_data_type_named(hr__span name) {
  int64_t number = (int64_t)(sizeof data_types / sizeof *data_types) - 1;
  while (number > 0 && !hr__span_is(name, data_types[number].name)) {
    --number;
  }
  return number;
}

/* ---- types and dims ---- */

static bool count_elements(hr__onnx_tensor *t) {
  t->count = 1;
  bool is_empty = false, fits = true;
  for (int d = 0; d < t->rank; ++d) {
    fits &= t->dims[d] >= 0;
    is_empty |= t->dims[d] == 0;
  }
  for (int d = 0; fits && !is_empty && d < t->rank; ++d) {
    fits = !__builtin_mul_overflow(t->count, t->dims[d], &t->count) && t->count <= INT64_MAX / 16;
  }
  t->count = is_empty ? 0 : t->count;
  return fits;
}

static hr_status check_type(hr__onnx_tensor *t, int64_t dim_count) {
  t->dtype = hr__onnx_dtype(t->data_type);
  if (t->dtype == HR_DTYPE_NONE) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a tensor has data type %lld (%s)", (long long)t->data_type,
                          hr__onnx_data_type_name(t->data_type));
  }
  if (dim_count > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a tensor has %lld dims, expected at most %d", (long long)dim_count,
                          HR_RANK_MAX);
  }
  t->rank = (int)dim_count;
  char dims[HR__SHAPE_TEXT];
  return count_elements(t) ? HR_OK
                           : DAMAGED("a tensor has dims %s, expected fewer elements, and none below 0",
                                     hr__shape_text(t->rank, t->dims, dims));
}

hr_status hr__onnx_read_tensor(hr__span message, hr__onnx_tensor *out) {
  hr__wire wire = hr__wire_of(message);
  *out = (hr__onnx_tensor){.message = message};
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == 2 && f.type == HR__WIRE_VARINT) {
      out->data_type = (int64_t)f.value;
    } else if (f.number == 8 && f.type == HR__WIRE_BYTES) {
      out->name = f.bytes;
    } else if (f.number == 9 && f.type == HR__WIRE_BYTES) {
      out->raw = f.bytes, out->has_raw = true;
    } else if (f.number == 14 && f.type == HR__WIRE_VARINT) {
      out->is_external = f.value == 1;
    }
  }
  HR_RETURN_IF_ERROR(hr__wire_status(&wire));
  int64_t dim_count = 0;
  HR_RETURN_IF_ERROR(hr__onnx_read_ints(message, 1, HR_RANK_MAX, out->dims, &dim_count));
  return check_type(out, dim_count);
}

/* ---- external data ---- */

static hr_status read_decimal(hr__span text, int64_t *out_number) {
  int64_t number = 0;
  bool is_right = text.size > 0;
  for (size_t i = 0; is_right && i < text.size; ++i) {
    is_right = text.data[i] >= '0' && text.data[i] <= '9' && !__builtin_mul_overflow(number, 10, &number) &&
               !__builtin_add_overflow(number, text.data[i] - '0', &number);
  }
  *out_number = number;
  return is_right ? HR_OK : DAMAGED("offset or length of external data is no number");
}

hr_status hr__onnx_read_external(const hr__onnx_tensor *tensor, hr__span *out_location, int64_t *out_offset,
                                 int64_t *out_length) {
  hr__wire wire = hr__wire_of(tensor->message);
  *out_location = (hr__span){0}, *out_offset = 0, *out_length = -1;
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number != 13 || f.type != HR__WIRE_BYTES) {
      continue;
    }
    hr__wire entry = hr__wire_of(f.bytes);
    hr__span texts[2] = {{0}};
    for (hr__field e; hr__wire_next(&entry, &e);) {
      if ((e.number == 1 || e.number == 2) && e.type == HR__WIRE_BYTES) {
        texts[e.number - 1] = e.bytes;
      }
    }
    HR_RETURN_IF_ERROR(hr__wire_status(&entry));
    if (hr__span_is(texts[0], "location")) {
      *out_location = texts[1];
    } else if (hr__span_is(texts[0], "offset")) {
      HR_RETURN_IF_ERROR(read_decimal(texts[1], out_offset));
    } else if (hr__span_is(texts[0], "length")) {
      HR_RETURN_IF_ERROR(read_decimal(texts[1], out_length));
    }
  }
  return hr__wire_status(&wire);
}

/* ---- elements ---- */

int64_t hr__onnx_tensor_bytes(const hr__onnx_tensor *t) {
  int bits = hr__onnx_narrow_bits(t->data_type);
  return bits > 0 ? t->count / (8 / bits) + (t->count % (8 / bits) != 0) : t->count * (int64_t)hr_dtype_size(t->dtype);
}

/* The numbers that a typed field has in place of the elements. */
static int64_t count_numbers(const hr__onnx_tensor *t) {
  bool is_complex = t->dtype == HR_DTYPE_C64 || t->dtype == HR_DTYPE_C128;
  return hr__onnx_narrow_bits(t->data_type) > 0 ? hr__onnx_tensor_bytes(t) : is_complex ? 2 * t->count : t->count;
}

hr_status hr__onnx_check_tensor(const hr__onnx_tensor *t, hr__span bytes) {
  if (t->has_raw || t->is_external) {
    return (int64_t)bytes.size == hr__onnx_tensor_bytes(t)
               ? HR_OK
               : DAMAGED("a tensor has %zu bytes, its dims and data type need %lld", bytes.size,
                         (long long)hr__onnx_tensor_bytes(t));
  }
  uint32_t field = row_of(t->data_type)->field;
  int64_t count = 0;
  HR_RETURN_IF_ERROR(field == FLOATS || field == DOUBLES ? hr__onnx_read_floats(t->message, field, 0, NULL, &count)
                                                         : hr__onnx_read_ints(t->message, field, 0, NULL, &count));
  return count == count_numbers(t)
             ? HR_OK
             : DAMAGED("a tensor has %lld numbers, its dims need %lld", (long long)count, (long long)count_numbers(t));
}

static float f4e2m1(unsigned bits) {
  static const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -magnitudes[bits & 7] : magnitudes[bits & 7];
}

/* Element i of less than eight bits; the first is in the lowest bits. */
static void put_narrow(const hr__onnx_tensor *t, int bits, uint8_t byte, int64_t i, void *out_elements) {
  int shift = (int)(i % (8 / bits)) * bits;
  unsigned element = (unsigned)byte >> shift & ((1u << bits) - 1);
  if (t->dtype == HR_DTYPE_F32) {
    ((float *)out_elements)[i] = f4e2m1(element);
    return;
  }
  bool is_negative = t->dtype == HR_DTYPE_I8 && element >> (bits - 1) != 0;
  ((uint8_t *)out_elements)[i] = (uint8_t)(is_negative ? element - (1u << bits) : element);
}

/* Number i of a typed field, or its two halves of a complex number, as an element. */
static void put_number(const hr__onnx_tensor *t, uint64_t number, int64_t i, void *out_elements) {
  int bits = hr__onnx_narrow_bits(t->data_type);
  for (int64_t at = i * 8 / (bits > 0 ? bits : 8); bits > 0 && at < (i + 1) * 8 / bits && at < t->count; ++at) {
    put_narrow(t, bits, (uint8_t)number, at, out_elements);
  }
  if (bits == 0) {
    bool is_complex = t->dtype == HR_DTYPE_C64 || t->dtype == HR_DTYPE_C128;
    size_t size = hr_dtype_size(t->dtype) / (is_complex ? 2 : 1);
    memcpy((char *)out_elements + (size_t)i * size, &number, size); /* little-endian, as the file */
  }
}

static hr_status decode_field(const hr__onnx_tensor *t, void *out_elements) {
  uint32_t field = row_of(t->data_type)->field;
  hr__wire_type type = field == FLOATS ? HR__WIRE_FIXED32 : field == DOUBLES ? HR__WIRE_FIXED64 : HR__WIRE_VARINT;
  hr__wire wire = hr__wire_of(t->message);
  int64_t i = 0, room = count_numbers(t); /* a mapped file may have changed since the check */
  for (hr__field f; hr__wire_next(&wire, &f);) {
    if (f.number == field && f.type == type && i < room) {
      put_number(t, f.value, i++, out_elements);
    } else if (f.number == field && f.type == HR__WIRE_BYTES) {
      hr__wire packed = hr__wire_of(f.bytes);
      for (uint64_t number; i < room && hr__wire_number(&packed, type, &number);) {
        put_number(t, number, i++, out_elements);
      }
    }
  }
  return HR_OK;
}

static hr_status check_bools(const hr__onnx_tensor *t, const uint8_t *elements) {
  for (int64_t i = 0; t->dtype == HR_DTYPE_BOOL && i < t->count; ++i) {
    if (elements[i] > 1) {
      return DAMAGED("element %lld of a bool tensor is %d, expected 0 or 1", (long long)i, elements[i]);
    }
  }
  return HR_OK;
}

hr_status hr__onnx_decode_tensor(const hr__onnx_tensor *t, hr__span bytes, void *out_elements) {
  int bits = hr__onnx_narrow_bits(t->data_type);
  if (!t->has_raw && !t->is_external) {
    HR_RETURN_IF_ERROR(decode_field(t, out_elements));
  } else if (bits == 0 && bytes.size > 0) {
    memcpy(out_elements, bytes.data, bytes.size);
  } else {
    for (int64_t i = 0; i < t->count; ++i) {
      put_narrow(t, bits, bytes.data[i * bits / 8], i, out_elements);
    }
  }
  return check_bools(t, out_elements);
}
