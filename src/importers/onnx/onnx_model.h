/* onnx_model.h: the messages of an ONNX file, read in place. Numbers of fields are those of onnx.proto.
 *
 * Texts and lists stay in the file: an attribute is its message, of which a list is read when it is needed. Arrays of a
 * node are in an arena.
 */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_MODEL_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_MODEL_H_

#include "base/arena.h"
#include "headrace/op.h"
#include "importers/wire.h"

enum {
  HR__ONNX_OPERANDS_MAX = 1 << 16, /* inputs, outputs or attributes of a node */
  HR__ONNX_OPSETS_MAX = 16
};

/* Numbers of TensorProto.DataType that are used by name. */
enum {
  HR__ONNX_STRING = 8,
  HR__ONNX_U4 = 21,
  HR__ONNX_I4 = 22,
  HR__ONNX_F4E2M1 = 23,
  HR__ONNX_U2 = 25,
  HR__ONNX_I2 = 26
};
/* The dtype in which elements of a data type are computed: integers of 2 and 4 bits in i8 and u8, F4E2M1 in f32. NONE:
 * none. */
hr_dtype hr__onnx_dtype(int64_t data_type);
/* The bits of an element in a file, if it has less than eight; else 0. */
int hr__onnx_narrow_bits(int64_t data_type);
/* "FLOAT", ... as in onnx.proto; "unknown". */
const char *hr__onnx_data_type_name(int64_t data_type);
/* The data type of such a name; 0: there is none. */
int64_t hr__onnx_data_type_named(hr__span name);

/* Numbers of AttributeProto.AttributeType. */
typedef enum hr__onnx_attribute_type {
  HR__ONNX_FLOAT = 1,
  HR__ONNX_INT,
  HR__ONNX_TEXT,
  HR__ONNX_TENSOR,
  HR__ONNX_GRAPH,
  HR__ONNX_FLOATS,
  HR__ONNX_INTS,
  HR__ONNX_TEXTS
} hr__onnx_attribute_type;

typedef struct hr__onnx_attribute {
  hr__span name, reference; /* reference: the name of an attribute of the function's call */
  int64_t type, i;
  float f;
  hr__span bytes; /* of TEXT, TENSOR, GRAPH */
  hr__span message;
} hr__onnx_attribute;

typedef struct hr__onnx_operator {
  hr__span domain, name, overload;
} hr__onnx_operator;

typedef struct hr__onnx_call {
  hr__onnx_operator op;
  hr__span name;
  int input_count, output_count, attribute_count;
  hr__span *inputs, *outputs; /* names; empty: absent */
  hr__onnx_attribute *attributes;
} hr__onnx_call;

typedef struct hr__onnx_opset {
  hr__span domain;
  int64_t version;
} hr__onnx_opset;

typedef struct hr__onnx_opsets {
  int count;
  hr__onnx_opset all[HR__ONNX_OPSETS_MAX];
} hr__onnx_opsets;

typedef struct hr__onnx_model {
  int64_t ir_version;
  hr__span graph, producer, producer_version, message;
  hr__onnx_opsets opsets;
} hr__onnx_model;

/* A value's name and type. */
typedef struct hr__onnx_value_info {
  hr__span name, type;
  bool is_tensor, is_sequence, is_optional, has_shape;
  int64_t data_type;
  int rank;
  int64_t dims[HR_RANK_MAX]; /* -1: no number */
  hr__span symbols[HR_RANK_MAX];
} hr__onnx_value_info;

HR_MUST_USE hr_status hr__onnx_read_model(hr__span file, hr__onnx_model *out);
HR_MUST_USE hr_status hr__onnx_read_opset(hr__span message, hr__onnx_opsets *to);
/* The version of a domain; 0: there is none. "ai.onnx" is the empty domain. */
int64_t hr__onnx_opset_of(const hr__onnx_opsets *opsets, hr__span domain);
/* True for the domain of the standard's operators. */
bool hr__onnx_is_standard(hr__span domain);
HR_MUST_USE hr_status hr__onnx_read_call(hr__span message, hr_arena *arena, hr__onnx_call *out);
HR_MUST_USE hr_status hr__onnx_read_attribute(hr__span message, hr__onnx_attribute *out);
HR_MUST_USE hr_status hr__onnx_read_value_info(hr__span message, hr__onnx_value_info *out);

/* The numbers of a list, at most `room`; out_count: all of them. */
HR_MUST_USE hr_status hr__onnx_read_ints(hr__span message, uint32_t field, int64_t room, int64_t *out_numbers,
                                         int64_t *out_count);
/* The same for floats and doubles; ints of a field of floats are none. */
HR_MUST_USE hr_status hr__onnx_read_floats(hr__span message, uint32_t field, int64_t room, double *out_numbers,
                                           int64_t *out_count);
/* Messages or texts of a field, at most `room`. */
HR_MUST_USE hr_status hr__onnx_read_spans(hr__span message, uint32_t field, int64_t room, hr__span *out_spans,
                                          int64_t *out_count);

/* ---- tensors ---- */

typedef struct hr__onnx_tensor {
  hr__span name, message, raw;
  int64_t data_type;
  hr_dtype dtype; /* in which it is computed */
  int rank;
  int64_t dims[HR_RANK_MAX], count;
  bool has_raw, is_external;
} hr__onnx_tensor;

/* Reads type and dims. UNIMPLEMENTED: a data type that has no dtype, such as strings. */
HR_MUST_USE hr_status hr__onnx_read_tensor(hr__span message, hr__onnx_tensor *out);
/* Reads location, offset and length of external data. length -1: to the end. */
HR_MUST_USE hr_status hr__onnx_read_external(const hr__onnx_tensor *tensor, hr__span *out_location, int64_t *out_offset,
                                             int64_t *out_length);
/* The bytes that the elements of a tensor have in a file. */
int64_t hr__onnx_tensor_bytes(const hr__onnx_tensor *tensor);
/* Checks the number of elements in the file against the dims, before anything is allocated. bytes: of raw or external
 * data. */
HR_MUST_USE hr_status hr__onnx_check_tensor(const hr__onnx_tensor *tensor, hr__span bytes);
/* Decodes the elements into memory of count * hr_dtype_size(dtype) bytes. bytes: as above. */
HR_MUST_USE hr_status hr__onnx_decode_tensor(const hr__onnx_tensor *tensor, hr__span bytes, void *out_elements);

#endif
