/* onnx_test.h: models as bytes, for tests. */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_TEST_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_TEST_H_

#include "base/protobuf.h"
#include "headrace/importer.h"

enum { FLOAT = 1, UINT8 = 2, INT32 = 6, INT64 = 7, UINT4 = 21, INT4 = 22 }; /* data types */

/* A type of dims; -1, -2, -3: the symbols "n", "n+1" and "n-1". */
static inline void put_value_info(hr_text *text, unsigned field, const char *name, int data_type, int rank,
                                  const int64_t *dims) {
  static const char *const symbols[3] = {"n", "n+1", "n-1"};
  size_t info = hr_protobuf_begin(text, field);
  hr_protobuf_string(text, 1, name);
  size_t type = hr_protobuf_begin(text, 2), tensor = hr_protobuf_begin(text, 1);
  hr_protobuf_int(text, 1, (uint64_t)data_type);
  size_t shape = hr_protobuf_begin(text, 2);
  for (int d = 0; d < rank; ++d) {
    size_t dim = hr_protobuf_begin(text, 1);
    if (dims[d] >= 0) {
      hr_protobuf_int(text, 1, (uint64_t)dims[d]);
    } else {
      hr_protobuf_string(text, 2, symbols[-1 - dims[d]]);
    }
    hr_protobuf_end(text, dim);
  }
  hr_protobuf_end(text, shape);
  hr_protobuf_end(text, tensor);
  hr_protobuf_end(text, type);
  hr_protobuf_end(text, info);
}

static inline void put_bytes(hr_text *text, unsigned field, const void *bytes, size_t count) {
  size_t message = hr_protobuf_begin(text, field);
  hr_text_append_bytes(text, bytes, count);
  hr_protobuf_end(text, message);
}

/* A tensor with raw elements, as the field of a graph or of an attribute. */
static inline void put_tensor(hr_text *text, unsigned field, const char *name, int data_type, int rank,
                              const int64_t *dims, const void *elements, size_t bytes) {
  size_t tensor = hr_protobuf_begin(text, field);
  for (int d = 0; d < rank; ++d) {
    hr_protobuf_int(text, 1, (uint64_t)dims[d]);
  }
  hr_protobuf_int(text, 2, (uint64_t)data_type);
  hr_protobuf_string(text, 8, name);
  put_bytes(text, 9, elements, bytes);
  hr_protobuf_end(text, tensor);
}

/* Begins a node, as field 1 of a graph or field 7 of a function; inputs and outputs are names between spaces. */
static inline size_t begin_node(hr_text *text, unsigned field, const char *name, const char *op, const char *inputs,
                                const char *outputs) {
  size_t node = hr_protobuf_begin(text, field);
  const char *const lists[2] = {inputs, outputs};
  for (unsigned i = 0; i < 2; ++i) {
    for (const char *at = lists[i]; *at != '\0';) {
      size_t length = strcspn(at, " ");
      put_bytes(text, i + 1, at, length);
      at += length + (at[length] == ' ');
    }
  }
  hr_protobuf_string(text, 3, name);
  hr_protobuf_string(text, 4, op);
  return node;
}

static inline void put_node(hr_text *text, unsigned field, const char *name, const char *op, const char *inputs,
                            const char *outputs) {
  hr_protobuf_end(text, begin_node(text, field, name, op, inputs, outputs));
}

static inline void put_int(hr_text *text, const char *name, int64_t number) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  hr_protobuf_int(text, 3, (uint64_t)number);
  hr_protobuf_int(text, 20, 2);
  hr_protobuf_end(text, attribute);
}

static inline void put_ints(hr_text *text, const char *name, int count, const int64_t *numbers) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  for (int i = 0; i < count; ++i) {
    hr_protobuf_int(text, 8, (uint64_t)numbers[i]);
  }
  hr_protobuf_int(text, 20, 7);
  hr_protobuf_end(text, attribute);
}

static inline void put_text(hr_text *text, const char *name, const char *word) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  hr_protobuf_string(text, 4, word);
  hr_protobuf_int(text, 20, 3);
  hr_protobuf_end(text, attribute);
}

static inline void put_real(hr_text *text, const char *name, float number) {
  size_t attribute = hr_protobuf_begin(text, 5);
  hr_protobuf_string(text, 1, name);
  hr_text_append_bytes(text, "\x15", 1); /* field 2, of four bytes */
  hr_text_append_bytes(text, (const char *)(const void *)&number, sizeof number);
  hr_protobuf_int(text, 20, 1);
  hr_protobuf_end(text, attribute);
}

static inline void put_opset(hr_text *text, unsigned field, const char *domain, int64_t version) {
  size_t opset = hr_protobuf_begin(text, field);
  hr_protobuf_string(text, 1, domain);
  hr_protobuf_int(text, 2, (uint64_t)version);
  hr_protobuf_end(text, opset);
}

#endif
