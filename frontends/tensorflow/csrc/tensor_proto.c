/* tensor_proto.c: TensorProto: raw bytes, or numbers in a field by dtype, the last of which repeats. */
#include "tensor_proto.h"

#include <stdlib.h>

#include "graphdef.h"

enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_CONTENT = 4 };
enum { SHAPE_DIM = 2, SHAPE_UNKNOWN_RANK = 3, DIM_SIZE = 1 };

/* The field with the numbers of a dtype. */
static uint32_t field_of(int dtype) {
  static const uint8_t fields[TF_DTYPE_COUNT] = {
      [TF_FLOAT] = 5, [TF_DOUBLE] = 6,    [TF_INT32] = 7,       [TF_INT16] = 7,   [TF_INT8] = 7,
      [TF_UINT8] = 7, [TF_UINT16] = 7,    [TF_COMPLEX64] = 9,   [TF_INT64] = 10,  [TF_BOOL] = 11,
      [TF_HALF] = 13, [TF_BFLOAT16] = 13, [TF_COMPLEX128] = 12, [TF_UINT32] = 16, [TF_UINT64] = 17};
  return dtype >= 0 && dtype < TF_DTYPE_COUNT ? fields[dtype] : 0;
}

static hr_status damaged(void) {
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "headrace: a damaged constant of a graph");
}

hr_status htf_host_create(hr_dtype dtype, int rank, const int64_t *dims, int64_t most, htf_host *out_host) {
  *out_host = (htf_host){.dtype = dtype, .rank = rank, .count = 1};
  most /= (int64_t)hr_dtype_size(dtype);
  bool is_empty = false;
  for (int d = 0; d < rank; ++d) {
    out_host->dims[d] = dims[d];
    is_empty = is_empty || dims[d] == 0;
  }
  for (int d = 0; d < rank && !is_empty; ++d) {
    if (dims[d] < 0 || dims[d] > most / out_host->count) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "headrace: a tensor of more than %lld numbers on the host",
                            (long long)most);
    }
    out_host->count *= dims[d];
  }
  out_host->count = is_empty ? 0 : out_host->count;
  out_host->bytes = calloc((size_t)out_host->count + 1, hr_dtype_size(dtype));
  return out_host->bytes != NULL ? HR_OK
                                 : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a constant");
}

void htf_host_fini(htf_host *host) {
  free(host->bytes);
  host->bytes = NULL;
}

/* Reads the sizes of a TensorShapeProto; -1 if it is damaged, unknown, or has too many dims. */
static int read_dims(hr__span shape, int64_t *out_dims) {
  int rank = 0;
  hr__wire wire = hr__wire_of(shape);
  for (hr__field field, size; hr__wire_next(&wire, &field);) {
    if (field.number == SHAPE_UNKNOWN_RANK && field.value != 0) {
      return -1;
    }
    if (field.number == SHAPE_DIM && field.type == HR__WIRE_BYTES) {
      if (rank == HR_RANK_MAX) {
        return -1;
      }
      bool has_size = htf_find_field(field.bytes, DIM_SIZE, &size);
      out_dims[rank++] = has_size ? (int64_t)size.value : 0;
    }
  }
  return wire.failure == NULL ? rank : -1;
}

/* Fills parts (halves of complex numbers, or numbers) from the fields of numbers. */
static bool fill(hr__span proto, uint32_t number, hr__wire_type type, uint8_t *bytes, size_t width, int64_t most,
                 int64_t *out_count) {
  int64_t count = 0;
  hr__wire wire = hr__wire_of(proto);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number != number) {
      continue;
    }
    hr__wire packed = hr__wire_of(field.type == HR__WIRE_BYTES ? field.bytes : (hr__span){NULL, 0});
    bool has_one = field.type != HR__WIRE_BYTES;
    for (uint64_t value = field.value; has_one || hr__wire_number(&packed, type, &value); has_one = false, ++count) {
      if (count >= most) {
        return false;
      }
      memcpy(bytes + (size_t)count * width, &value, width);
    }
    if (packed.failure != NULL) {
      return false;
    }
  }
  *out_count = count;
  return wire.failure == NULL;
}

static hr_status read_numbers(hr__span proto, int dtype, htf_host *host) {
  bool is_complex = dtype == TF_COMPLEX64 || dtype == TF_COMPLEX128;
  bool is_wide = dtype == TF_DOUBLE || dtype == TF_COMPLEX128, is_narrow = dtype == TF_FLOAT || dtype == TF_COMPLEX64;
  hr__wire_type type = is_wide ? HR__WIRE_FIXED64 : is_narrow ? HR__WIRE_FIXED32 : HR__WIRE_VARINT;
  size_t size = hr_dtype_size(host->dtype), width = is_complex ? size / 2 : size;
  int64_t parts = 0, parts_of_one = is_complex ? 2 : 1;
  uint8_t *bytes = host->bytes;
  if (!fill(proto, field_of(dtype), type, bytes, width, host->count * parts_of_one, &parts) ||
      parts % parts_of_one != 0) {
    return damaged();
  }
  for (int64_t i = parts / parts_of_one; i > 0 && i < host->count; ++i) {
    memcpy(bytes + (size_t)i * size, bytes + (size_t)(i - 1) * size, size);
  }
  return HR_OK;
}

hr_status htf_read_tensor(hr__span proto, htf_host *out_host) {
  hr__field dtype, shape, content;
  int64_t dims[HR_RANK_MAX];
  *out_host = (htf_host){0};
  if (!htf_find_field(proto, TENSOR_DTYPE, &dtype) || dtype.value >= TF_DTYPE_COUNT ||
      field_of((int)dtype.value) == 0) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "headrace: a constant of another dtype");
  }
  bool has_shape = htf_find_field(proto, TENSOR_SHAPE, &shape) && shape.type == HR__WIRE_BYTES;
  int rank = has_shape ? read_dims(shape.bytes, dims) : 0;
  if (rank < 0) {
    return damaged();
  }
  hr_status status = htf_host_create(htf_dtype_of((int)dtype.value), rank, dims, HTF_CONSTANT_BYTES_MAX, out_host);
  if (status == HR_OK && htf_find_field(proto, TENSOR_CONTENT, &content) && content.type == HR__WIRE_BYTES &&
      content.bytes.size > 0) {
    bool fits = content.bytes.size == (size_t)out_host->count * hr_dtype_size(out_host->dtype);
    status = fits ? HR_OK : damaged();
    if (fits) {
      memcpy(out_host->bytes, content.bytes.data, content.bytes.size);
    }
  } else if (status == HR_OK) {
    status = read_numbers(proto, (int)dtype.value, out_host);
  }
  if (status != HR_OK) {
    htf_host_fini(out_host);
  }
  return status;
}
