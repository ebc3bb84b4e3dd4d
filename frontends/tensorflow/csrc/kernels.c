/* kernels.c: registers a kernel for each row of map.def and its types. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

#include "base/protobuf.h"
#include "cluster.h"
#include "direct.h"
#include "node.h"
#include "profiler.h"
#include "types.h"

static const htf_row rows[] = {
#define OP(op, type_name, types, host, attributes, rule, function) \
  {#op, type_name, types, host, attributes, htf_##rule, HR_FUNCTIONAL_##function},
#include "map.def"
#undef OP
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- attributes ---- */

static void fail_size(const htf_attribute *attribute, int size, int most, tf_status *status) {
  char text[128];
  snprintf(text, sizeof text, "headrace: the attribute %s has %d elements, at most %d are supported", attribute->name,
           size, most);
  tf.SetStatus(status, HR_STATUS_UNIMPLEMENTED, text);
}

bool htf_attribute_has_room(htf_attribute *attribute, int count, tf_status *status) {
  attribute->count = count;
  attribute->reals = calloc((size_t)count + 1, sizeof *attribute->reals);
  if (attribute->reals == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for an attribute");
  }
  return attribute->reals != NULL;
}

static void read_list(tf_construction *construction, htf_attribute *attribute, tf_status *status) {
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, attribute->name, &count, &bytes, status);
  if (tf.GetCode(status) == 0 && count > HTF_LIST_MAX) {
    fail_size(attribute, (int)count, HTF_LIST_MAX, status);
  }
  if (tf.GetCode(status) == 0) {
    attribute->count = (int)count;
    tf.OpKernelConstruction_GetAttrInt64List(construction, attribute->name, attribute->list, (int)count, status);
  }
}

static void read_reals(tf_construction *construction, htf_attribute *attribute, tf_status *status) {
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, attribute->name, &count, &bytes, status);
  if (tf.GetCode(status) == 0 && htf_attribute_has_room(attribute, (int)count, status)) {
    tf.OpKernelConstruction_GetAttrFloatList(construction, attribute->name, attribute->reals, (int)count, status);
  }
}

static void read_text(tf_construction *construction, htf_attribute *attribute, tf_status *status) {
  const int most = (int)sizeof attribute->text - 1;
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, attribute->name, &count, &bytes, status);
  if (tf.GetCode(status) == 0 && bytes > most) {
    fail_size(attribute, (int)bytes, most, status);
  }
  if (tf.GetCode(status) == 0) {
    tf.OpKernelConstruction_GetAttrString(construction, attribute->name, attribute->text, (size_t)most, status);
  }
}

/* A list of texts, as one with spaces between them. */
static void read_words(tf_construction *construction, htf_attribute *attribute, tf_status *status) {
  const int most = (int)sizeof attribute->text - 1;
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, attribute->name, &count, &bytes, status);
  if (tf.GetCode(status) == 0 && (count > HTF_LIST_MAX || count + bytes > most)) {
    fail_size(attribute, (int)(count + bytes), most, status);
  }
  char *texts[HTF_LIST_MAX], storage[sizeof attribute->text];
  size_t sizes[HTF_LIST_MAX];
  if (tf.GetCode(status) == 0) {
    tf.OpKernelConstruction_GetAttrStringList(construction, attribute->name, texts, sizes, (int)count, storage,
                                              sizeof storage, status);
  }
  char *at = attribute->text;
  for (int i = 0; i < count && tf.GetCode(status) == 0; ++i) {
    memcpy(at, texts[i], sizes[i]);
    at += sizes[i];
    *at++ = ' ';
  }
}

static void read_attribute(void *source, htf_attribute *attribute, tf_status *status) {
  tf_construction *construction = source;
  float real = 0;
  tf_bool flag = 0;
  int type = 0;
  switch (attribute->kind) {
    case 'b':
      tf.OpKernelConstruction_GetAttrBool(construction, attribute->name, &flag, status);
      attribute->integer = flag != 0;
      break;
    case 'i':
      tf.OpKernelConstruction_GetAttrInt64(construction, attribute->name, &attribute->integer, status);
      break;
    case 'f':
      tf.OpKernelConstruction_GetAttrFloat(construction, attribute->name, &real, status);
      attribute->real = (double)real;
      break;
    case 't':
      tf.OpKernelConstruction_GetAttrType(construction, attribute->name, &type, status);
      attribute->integer = type;
      break;
    case 'r':
      read_reals(construction, attribute, status);
      break;
    case 's':
      read_text(construction, attribute, status);
      break;
    case 'w':
      read_words(construction, attribute, status);
      break;
    default:
      read_list(construction, attribute, status);
      break;
  }
}

bool htf_next_word(const char **list, char *word, size_t bytes) {
  *list += strspn(*list, " ");
  size_t size = strcspn(*list, " ");
  if (size == 0) {
    return false;
  }
  snprintf(word, bytes, "%.*s", (int)size, *list);
  *list += size;
  return true;
}

static int count_words(const char *list) {
  char word[64];
  int count = 0;
  while (htf_next_word(&list, word, sizeof word)) {
    ++count;
  }
  return count;
}

static int64_t integer_of(const htf_kernel *kernel, const char *name) {
  for (int i = 0; i < kernel->count; ++i) {
    if (strcmp(kernel->attributes[i].name, name) == 0) {
      return kernel->attributes[i].integer;
    }
  }
  return 0;
}

/* Without seeds they are random. */
static void create_generator(htf_kernel *kernel, tf_status *status) {
  uint64_t seeds[2] = {(uint64_t)integer_of(kernel, "seed"), (uint64_t)integer_of(kernel, "seed2")};
  if (seeds[0] == 0 && seeds[1] == 0 && tf_is_deterministic()) {
    tf.SetStatus(status, HR_STATUS_INVALID_ARGUMENT,
                 "When determinism is enabled, random ops must have a seed specified.");
    return;
  }
  kernel->generator = calloc(1, sizeof *kernel->generator);
  bool has_failed = seeds[0] == 0 && seeds[1] == 0 && getentropy(seeds, sizeof seeds) != 0;
  if (kernel->generator == NULL || has_failed) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory or seeds for random numbers");
    return;
  }
  kernel->generator->seed = seeds[0], kernel->generator->seed2 = seeds[1];
}

void htf_kernel_destroy(void *self) {
  htf_kernel *kernel = self;
  if (kernel != NULL) {
    for (int i = 0; i < kernel->count; ++i) {
      free(kernel->attributes[i].reals);
    }
    free(kernel->generator);
    free(kernel);
  }
}

htf_kernel *htf_kernel_create(const htf_row *row, htf_attribute_reader reader, void *source, tf_status *status) {
  int count = count_words(row->attributes);
  htf_kernel *kernel = calloc(1, sizeof *kernel + (size_t)count * sizeof(htf_attribute));
  if (kernel == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a kernel");
    return NULL;
  }
  kernel->row = row, kernel->count = count;
  const char *list = row->attributes;
  for (int i = 0; i < count && tf.GetCode(status) == 0; ++i) {
    htf_attribute *attribute = &kernel->attributes[i];
    char word[64];
    (void)htf_next_word(&list, word, sizeof word);
    char *colon = strchr(word, ':');
    attribute->kind = colon[1];
    snprintf(attribute->name, sizeof attribute->name, "%.*s", (int)(colon - word), word);
    reader(source, attribute, status);
  }
  if (tf.GetCode(status) == 0 && strstr(row->attributes, "seed2:") != NULL) {
    create_generator(kernel, status);
  }
  if (tf.GetCode(status) != 0) {
    htf_kernel_destroy(kernel);
    return NULL;
  }
  return kernel;
}

/* TensorFlow's callback has no argument of ours, so a row has a function of its own, which passes the row. */
static void *create_kernel(const htf_row *row, tf_construction *construction) {
  tf_status *status = tf.NewStatus();
  htf_kernel *kernel = htf_kernel_create(row, read_attribute, construction, status);
  if (kernel == NULL) {
    tf.OpKernelConstruction_Failure(construction, status);
  }
  tf.DeleteStatus(status);
  return kernel;
}

const htf_row *htf_find_row(const char *op, size_t size) {
  for (int row = 0; row < ROWS && size > 0; ++row) {
    if (strncmp(rows[row].op, op, size) == 0 && rows[row].op[size] == '\0') {
      return &rows[row];
    }
  }
  return NULL;
}

static void compute(void *self, tf_context *context) {
  htf_kernel *kernel = self;
  htf_node node;
  htf_node_init(&node, kernel, context);
  bool is_profiled = atomic_load_explicit(&htf_profiler_is_on, memory_order_relaxed);
  if (is_profiled) {
    htf_profile_begin(&kernel->profiled, context, kernel->row->op, NULL);
  }
  if (!htf_has_failed(&node)) {
    kernel->row->rule(&node);
  }
  if (is_profiled) {
    htf_profile_end();
  }
  htf_node_fini(&node);
}

enum {
#define OP(op, type_name, types, host, attributes, rule, function) ROW_##op,
#include "map.def"
#undef OP
};
#define OP(op, type_name, types, host, attributes, rule, function) \
  static void *create_##op(tf_construction *construction) {        \
    return create_kernel(&rows[ROW_##op], construction);           \
  }
#include "map.def"
#undef OP
static const tf_create_kernel creators[ROWS] = {
#define OP(op, type_name, types, host, attributes, rule, function) create_##op,
#include "map.def"
#undef OP
};

/* ---- registration ---- */

/* Fields of the message KernelDef. TensorFlow reads it as a string that ends with a zero byte, so it has no other one.
 * A message within it is written as a string. */
enum { DEF_OP = 1, DEF_DEVICE = 2, DEF_CONSTRAINT = 3, DEF_HOST_ARGUMENT = 4 };
enum { CONSTRAINT_NAME = 1, CONSTRAINT_ALLOWED = 2 };
enum { ALLOWED_LIST = 1, LIST_TYPE = 6 };

/* A type attribute is one of a set of types. */
static void append_constraint(hr_text *text, const char *attribute, uint32_t types) {
  hr_text list = {0}, allowed = {0}, constraint = {0};
  for (int dtype = 1; dtype < TF_DTYPE_COUNT; ++dtype) {
    if ((types >> dtype & 1) != 0) {
      hr_protobuf_int(&list, LIST_TYPE, (uint64_t)dtype);
    }
  }
  hr_protobuf_string(&allowed, ALLOWED_LIST, hr_text_chars(&list));
  hr_protobuf_string(&constraint, CONSTRAINT_NAME, attribute);
  hr_protobuf_string(&constraint, CONSTRAINT_ALLOWED, hr_text_chars(&allowed));
  hr_protobuf_string(text, DEF_CONSTRAINT, hr_text_chars(&constraint));
  text->failed |= list.failed || allowed.failed || constraint.failed;
  hr_text_fini(&list);
  hr_text_fini(&allowed);
  hr_text_fini(&constraint);
}

static void append_host_arguments(hr_text *text, const char *list, bool is_small) {
  char word[64];
  while (htf_next_word(&list, word, sizeof word)) {
    char *of_small = strstr(word, "@i32");
    if (of_small != NULL) {
      *of_small = '\0';
    }
    if (of_small == NULL || is_small) {
      hr_protobuf_string(text, DEF_HOST_ARGUMENT, word);
    }
  }
}

/* A kernel of a row for a set of types; 0: any. */
static void register_kernel(int row, uint32_t types) {
  hr_text text = {0};
  hr_protobuf_string(&text, DEF_OP, rows[row].op);
  hr_protobuf_string(&text, DEF_DEVICE, HTF_TYPE);
  char attribute[32];
  for (const char *names = rows[row].type_name; types != 0 && names != NULL;) {
    snprintf(attribute, sizeof attribute, "%.*s", (int)strcspn(names, ","), names);
    append_constraint(&text, attribute, types);
    const char *comma = strchr(names, ',');
    names = comma != NULL ? comma + 1 : NULL;
  }
  append_host_arguments(&text, rows[row].host, types == 1u << TF_INT32);
  tf_status *status = tf.NewStatus();
  hr_status written = hr_text_status(&text);
  if (!htf_fails(written, status)) {
    tf_builder *builder = tf.NewKernelBuilder(rows[row].op, HTF_TYPE, creators[row], compute, htf_kernel_destroy);
    tf.RegisterKernelBuilderWithKernelDef(hr_text_chars(&text), rows[row].op, builder, status);
  }
  if (tf.GetCode(status) != 0) {
    fprintf(stderr, "headrace: no kernel for %s: %s\n", rows[row].op, tf.Message(status));
  }
  tf.DeleteStatus(status);
  hr_text_fini(&text);
}

/* The type i32 has a kernel of its own if arguments are on the host for it alone. */
static void register_row(int row) {
  uint32_t types = rows[row].types, small = 1u << TF_INT32;
  if ((types & small) != 0 && types != small && strstr(rows[row].host, "@i32") != NULL) {
    register_kernel(row, small);
    types &= ~small;
  }
  register_kernel(row, types);
}

/* TensorFlow calls this after SE_InitPlugin. */
HTF_EXPORT void TF_InitKernel(void) {
  for (int row = 0; row < ROWS && htf_is_ready(); ++row) {
    register_row(row);
  }
  if (htf_is_ready()) {
    htf_register_cluster();
    htf_register_direct();
  }
}
