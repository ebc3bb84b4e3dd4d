/* fake_graph.h: graphs of a few nodes for tests, and TensorFlow's functions that the optimizer calls. */
#ifndef HEADRACE_TENSORFLOW_FAKE_GRAPH_H_
#define HEADRACE_TENSORFLOW_FAKE_GRAPH_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../csrc/graphdef.h"
#include "../csrc/node.h"
#include "base/protobuf.h"

/* ---- TensorFlow's functions that the optimizer calls ---- */

struct TF_Status {
  int code;
  char message[256];
};
static tf_status *new_status(void) {
  return calloc(1, sizeof(tf_status));
}
static void delete_status(tf_status *status) {
  free(status);
}
static void set_status(tf_status *status, int code, const char *message) {
  status->code = code;
  snprintf(status->message, sizeof status->message, "%s", message);
}
static int get_code(const tf_status *status) {
  return status->code;
}
static const char *message_of(const tf_status *status) {
  return status->message;
}
static tf_buffer *new_buffer(void) {
  return calloc(1, sizeof(tf_buffer));
}
static void delete_buffer(tf_buffer *buffer) {
  free((void *)buffer->data);
  free(buffer);
}
static tf_library *new_library(const tf_buffer *graph, tf_status *status) {
  (void)graph, (void)status;
  static char library;
  return (tf_library *)&library;
}
static void delete_library(tf_library *library) {
  (void)library;
}

/* Arguments of OpDef: a letter each, T with the type attribute T, D with dtype, r a resource, i the shape in i32, b
 * bool; inputs, then outputs behind a colon. */
static const struct {
  const char *op, *arguments;
} definitions[] = {{"AddV2", "TT:T"},           {"Mul", "TT:T"},     {"Const", ":D"},
                   {"Identity", "T:T"},         {"Reshape", "Ti:T"}, {"ReadVariableOp", "r:D"},
                   {"AssignVariableOp", "rD:"}, {"NoOp", ":"},       {"Enter", "T:T"},
                   {"Merge", "TT:T"},           {"LoopCond", "b:b"}, {"Switch", "Tb:TT"},
                   {"NextIteration", "T:T"},    {"Exit", "T:T"},     {"Less", "TT:b"}};

static void append_argument(hr_text *text, unsigned field, char letter) {
  size_t argument = hr_protobuf_begin(text, field);
  hr_protobuf_string(text, 1, letter == 'i' ? "shape" : letter == 'r' ? "resource" : "x");
  if (letter == 'T' || letter == 'D') {
    hr_protobuf_string(text, 4, letter == 'T' ? "T" : "dtype");
  } else {
    hr_protobuf_int(text, 3, letter == 'i' ? TF_INT32 : letter == 'b' ? TF_BOOL : TF_RESOURCE);
  }
  hr_protobuf_end(text, argument);
}

static void look_up(tf_library *library, const char *name, tf_buffer *out, tf_status *status) {
  (void)library;
  for (size_t i = 0; i < sizeof definitions / sizeof *definitions; ++i) {
    if (strcmp(definitions[i].op, name) == 0) {
      hr_text text = {0};
      hr_protobuf_string(&text, 1, name);
      unsigned field = 2;
      for (const char *at = definitions[i].arguments; *at != '\0'; ++at) {
        if (*at == ':') {
          field = 3;
        } else {
          append_argument(&text, field, *at);
        }
      }
      out->size = text.length;
      void *bytes = malloc(text.length + 1);
      memcpy(bytes, hr_text_chars(&text), text.length);
      out->data = bytes;
      hr_text_fini(&text);
      return;
    }
  }
  set_status(status, 5, "");
}

static void fill_table(void) {
  tf.NewStatus = new_status, tf.DeleteStatus = delete_status, tf.SetStatus = set_status;
  tf.GetCode = get_code, tf.Message = message_of;
  tf.NewBuffer = new_buffer, tf.DeleteBuffer = delete_buffer;
  tf.NewFunctionLibraryDefinition = new_library, tf.DeleteFunctionLibraryDefinition = delete_library;
  tf.LookUpOpDef = look_up;
}

/* ---- graphs ---- */

static size_t begin_value(hr_text *text, const char *name, size_t *out_value) {
  size_t entry = hr_protobuf_begin(text, HTF_NODE_ATTRIBUTE);
  hr_protobuf_string(text, 1, name);
  *out_value = hr_protobuf_begin(text, 2);
  return entry;
}

/* An attribute with one number in a field of AttrValue. */
static void append_number(hr_text *text, const char *name, unsigned field, uint64_t number) {
  size_t value, entry = begin_value(text, name, &value);
  hr_protobuf_int(text, field, number);
  hr_protobuf_end(text, value);
  hr_protobuf_end(text, entry);
}

/* Names that begin with i are nodes of i32, and so are constants whose names begin with s. */
static bool is_integer(const char *name, const char *op) {
  return name[0] == 'i' || (strcmp(op, "Const") == 0 && name[0] == 's');
}

/* A node of f32 on the device, with inputs that have spaces between them. */
static void append_node(hr_text *text, const char *name, const char *op, const char *inputs, const char *type) {
  size_t node = hr_protobuf_begin(text, HTF_GRAPH_NODE);
  hr_protobuf_string(text, HTF_NODE_NAME, name);
  hr_protobuf_string(text, HTF_NODE_OP, op);
  char word[64];
  while (htf_next_word(&inputs, word, sizeof word)) {
    hr_protobuf_string(text, HTF_NODE_INPUT, word);
  }
  hr_protobuf_string(text, HTF_NODE_DEVICE, "/job:localhost/replica:0/task:0/device:HEADRACE:0");
  append_number(text, type, 6, is_integer(name, op) ? TF_INT32 : TF_FLOAT);
  append_number(text, "validate_shape", 5, 1);
  append_number(text, "_XlaMustCompile", 5, 1);
  if (strcmp(op, "Const") == 0) {
    size_t value, entry = begin_value(text, "value", &value), tensor = hr_protobuf_begin(text, 8);
    hr_protobuf_int(text, 1, is_integer(name, op) ? TF_INT32 : TF_FLOAT);
    size_t shape = hr_protobuf_begin(text, 2), dim = hr_protobuf_begin(text, 2);
    hr_protobuf_int(text, 1, 2);
    hr_protobuf_end(text, dim);
    hr_protobuf_end(text, shape);
    hr_protobuf_int(text, is_integer(name, op) ? 7 : 13, 1);
    hr_protobuf_end(text, tensor);
    hr_protobuf_end(text, value);
    hr_protobuf_end(text, entry);
  }
  hr_protobuf_end(text, node);
}

typedef struct node_row {
  const char *name, *op, *inputs, *type;
} node_row;

#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)

static hr_text make(const node_row *rows, size_t count) {
  hr_text text = {0};
  for (size_t i = 0; i < count; ++i) {
    append_node(&text, rows[i].name, rows[i].op, rows[i].inputs, rows[i].type);
  }
  return text;
}

static hr__span span_of(const hr_text *text) {
  return (hr__span){(const uint8_t *)hr_text_chars(text), text->length};
}

#endif
