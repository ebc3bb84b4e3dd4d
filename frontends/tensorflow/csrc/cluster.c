/* cluster.c: the kernel of clusters. */
#include "cluster.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "headrace/part.h"
#include "profiler.h"
#include "scope.h"

htf_cluster_counts htf_clusters;

static const htf_kernel of_clusters = {.row = &(const htf_row){.op = HTF_CLUSTER}};

/* ---- state ---- */

typedef struct constant {
  htf_host host;
  hr_buffer *buffer;
} constant;

typedef struct result {
  int64_t bytes;
  int rank;
  int64_t dims[HR_RANK_MAX];
} result;

/* The captured body for operands of some dims. */
typedef struct variant {
  atomic_int references;
  hr_part *part;       /* NULL: the body has a loop that is too long for a capture, and each call records it */
  hr_tensor *operands; /* without buffers */
  int *first_same;     /* of each variable */
  result *results;
  int constant_count; /* so many constants of the cluster are parameters */
} variant;

enum { VARIANTS_MAX = 64 };

typedef struct cluster {
  htf_body body;
  atomic_ullong profiled;          /* by profiler.c */
  pthread_mutex_t mutex;           /* of what follows */
  variant *variants[VARIANTS_MAX]; /* the last used first */
  int variant_count;
  constant *constants;
  int constant_count;
} cluster;

static int operand_count(const cluster *self) {
  return self->body.input_count + self->body.variable_count;
}

static void release_variant(variant *v) {
  if (v != NULL && atomic_fetch_sub(&v->references, 1) == 1) {
    hr_part_release(v->part);
    free(v->operands);
    free(v->first_same);
    free(v->results);
    free(v);
  }
}

static variant *create_variant(const cluster *self) {
  variant *v = calloc(1, sizeof *v);
  if (v != NULL) {
    atomic_init(&v->references, 1);
    v->operands = calloc((size_t)operand_count(self) + 1, sizeof *v->operands);
    v->first_same = calloc((size_t)self->body.variable_count + 1, sizeof *v->first_same);
    v->results = calloc((size_t)self->body.result_count + 1, sizeof *v->results);
  }
  if (v != NULL && (v->operands == NULL || v->first_same == NULL || v->results == NULL)) {
    release_variant(v);
    return NULL;
  }
  return v;
}

static void destroy_cluster(void *kernel) {
  cluster *self = kernel;
  if (self == NULL) {
    return;
  }
  for (int i = 0; i < self->variant_count; ++i) {
    release_variant(self->variants[i]);
  }
  for (int i = 0; i < self->constant_count; ++i) {
    htf_host_fini(&self->constants[i].host);
    hr_buffer_release(self->constants[i].buffer);
  }
  free(self->constants);
  htf_body_fini(&self->body);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

/* The text of an attribute, which the caller frees; NULL after a failure. */
static char *read_text(tf_construction *construction, const char *name, size_t *out_size, tf_status *status) {
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, name, &count, &bytes, status);
  char *text = tf.GetCode(status) == 0 ? malloc((size_t)bytes + 1) : NULL;
  if (text != NULL) {
    tf.OpKernelConstruction_GetAttrString(construction, name, text, (size_t)bytes, status);
    *out_size = (size_t)bytes;
  } else if (tf.GetCode(status) == 0) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  }
  return text;
}

static void *create_cluster(tf_construction *construction) {
  tf_status *status = tf.NewStatus();
  cluster *self = calloc(1, sizeof *self);
  size_t size = 0;
  char *text = self != NULL ? read_text(construction, "body", &size, status) : NULL;
  if (self == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  } else {
    pthread_mutex_init(&self->mutex, NULL);
    if (text != NULL) {
      (void)htf_fails(htf_body_read((hr__span){(const uint8_t *)text, size}, &self->body), status);
    }
  }
  if (tf.GetCode(status) != 0) {
    tf.OpKernelConstruction_Failure(construction, status);
    destroy_cluster(self);
    self = NULL;
  }
  free(text);
  tf.DeleteStatus(status);
  return self;
}

/* ---- captures ---- */

/* Adds a constant of the device with these elements, and writes it in the device's stream. */
static hr_status add_constant(cluster *self, htf_device *device, const htf_host *host) {
  constant *grown = realloc(self->constants, ((size_t)self->constant_count + 1) * sizeof *grown);
  if (grown == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a constant");
  }
  self->constants = grown;
  constant added = {0};
  HR_RETURN_IF_ERROR(htf_host_create(host->dtype, host->rank, host->dims, HTF_HOST_BYTES_MAX, &added.host));
  size_t bytes = (size_t)host->count * hr_dtype_size(host->dtype);
  memcpy(added.host.bytes, host->bytes, bytes);
  hr_tensor value = hr_tensor_number(hr_scalar_i64(0));
  value.number.dtype = HR_DTYPE_NONE, value.dtype = host->dtype, value.rank = host->rank;
  memcpy(value.dims, host->dims, sizeof value.dims);
  hr_tensor_set_row_major(&value);
  hr_status status = hr_buffer_create(device->device, bytes, &value.buffer);
  if (status == HR_OK && bytes > 0) {
    const hr_view view = hr_tensor_view(&value);
    status = hr_stream_write(device->stream, &view, host->bytes);
  }
  if (status != HR_OK) {
    htf_host_fini(&added.host);
    hr_buffer_release(value.buffer);
    return status;
  }
  added.buffer = value.buffer;
  self->constants[self->constant_count++] = added;
  return HR_OK;
}

/* The constant with the same elements, which may be there already. */
static htf_value place_constant(htf_node *node, void *arg, const htf_host *host) {
  cluster *self = arg;
  size_t bytes = (size_t)host->count * hr_dtype_size(host->dtype);
  int at = 0;
  while (at < self->constant_count &&
         (self->constants[at].host.dtype != host->dtype || self->constants[at].host.count != host->count ||
          memcmp(self->constants[at].host.bytes, host->bytes, bytes) != 0)) {
    ++at;
  }
  hr_tensor value = {.dtype = host->dtype, .rank = host->rank};
  if (at < self->constant_count || !htf_keep(node, add_constant(self, node->device, host))) {
    value.buffer = self->constants[at].buffer;
  }
  memcpy(value.dims, host->dims, sizeof value.dims);
  hr_tensor_set_row_major(&value);
  hr_buffer_retain(value.buffer);
  return htf_keep_value(node, &value);
}

/* The same for one call. */
static htf_value place_temporary(htf_node *node, void *arg, const htf_host *host) {
  (void)arg;
  htf_value value = htf_new(node, host->dtype, host->rank, host->dims);
  if (!htf_has_failed(node) && host->count > 0) {
    const hr_view view = hr_tensor_view(value);
    (void)htf_keep(node, hr_stream_write(node->stream, &view, host->bytes));
  }
  return value;
}

/* Buffers of a capture. */
typedef struct capture {
  cluster *cluster;
  htf_node node;
  htf_scope scope;
  hr_buffer **params, **results;
  htf_value *initial; /* of variables */
  int param_count, result_count;
} capture;

static bool is_param(const capture *c, const hr_buffer *buffer) {
  bool is_found = false;
  for (int i = 0; i < c->param_count && !is_found; ++i) {
    is_found = c->params[i] == buffer;
  }
  for (int i = 0; i < c->cluster->constant_count && !is_found; ++i) {
    is_found = c->cluster->constants[i].buffer == buffer;
  }
  return is_found;
}

/* Gives each operand a buffer that stands for those of the runs. */
static void place_operands(capture *c, const variant *v) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < operand_count(c->cluster) && !htf_has_failed(&c->node); ++i) {
    hr_tensor value = v->operands[i];
    size_t bytes = (size_t)(value.offset + hr_tensor_count(&value)) * hr_dtype_size(value.dtype);
    value.buffer = NULL;
    if (htf_keep(&c->node, hr_buffer_create(c->node.device->device, bytes, &value.buffer))) {
      return;
    }
    c->params[c->param_count++] = value.buffer;
    htf_value kept = htf_keep_value(&c->node, &value);
    if (i < body->input_count) {
      c->scope.values[i].tensor = kept;
    } else {
      c->initial[i - body->input_count] = c->scope.variables[i - body->input_count] = kept;
    }
  }
}

/* Each result in a buffer of its own. */
static void take_results(capture *c, variant *v) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < body->result_count && !htf_has_failed(&c->node); ++i) {
    htf_value value = htf_scope_tensor(&c->node, body->results[i]);
    if (htf_has_failed(&c->node)) {
      return;
    }
    result *r = &v->results[i];
    r->rank = value->rank, r->bytes = hr_tensor_count(value) * (int64_t)hr_dtype_size(value->dtype);
    memcpy(r->dims, value->dims, sizeof r->dims);
    if (r->bytes == 0) {
      continue;
    }
    bool is_own =
        value->offset == 0 && hr_buffer_bytes(value->buffer) == (size_t)r->bytes && !is_param(c, value->buffer);
    for (int j = 0; j < c->result_count && is_own; ++j) {
      is_own = c->results[j] != value->buffer;
    }
    c->results[c->result_count++] = (is_own ? value : htf_copy_value(&c->node, value))->buffer;
  }
}

/* Writes the last values of variables. One that is another variable's old value is copied before that is written. */
static void write_variables(capture *c) {
  const htf_body *body = &c->cluster->body;
  htf_value *last = c->scope.variables;
  for (int i = 0; i < body->variable_count && !htf_has_failed(&c->node); ++i) {
    if (last[i] != c->initial[i] && is_param(c, last[i]->buffer)) {
      last[i] = htf_copy_value(&c->node, last[i]);
    }
  }
  for (int i = 0; i < body->variable_count && !htf_has_failed(&c->node); ++i) {
    if (last[i] != c->initial[i] && hr_tensor_count(last[i]) > 0) {
      const hr_view source = hr_tensor_view(last[i]), target = hr_tensor_view(c->initial[i]);
      (void)htf_keep(&c->node, hr_stream_record(c->node.stream, HR_OP_COPY, NULL, 1, &source, 1, &target));
    }
  }
}

static void record_body(capture *c, variant *v) {
  place_operands(c, v);
  htf_scope_walk(&c->node);
  if (c->scope.is_too_long) {
    return;
  }
  take_results(c, v);
  write_variables(c);
  if (htf_has_failed(&c->node)) {
    return;
  }
  cluster *self = c->cluster;
  hr_buffer **params = realloc(c->params, ((size_t)c->param_count + (size_t)self->constant_count + 1) * sizeof *params);
  if (params == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
    return;
  }
  c->params = params;
  for (int i = 0; i < self->constant_count; ++i) {
    params[c->param_count + i] = self->constants[i].buffer;
  }
  v->constant_count = self->constant_count;
  const hr_part_spec spec = {.param_count = c->param_count + self->constant_count,
                             .result_count = c->result_count,
                             .params = params,
                             .results = c->results};
  (void)htf_keep(&c->node, hr_part_create(c->node.stream, &spec, &v->part));
}

/* Begins a walk that records on a stream. */
static void open_capture(capture *c, cluster *self, htf_device *device, hr_stream *stream, const int *first_same) {
  const size_t variables = (size_t)self->body.variable_count;
  *c = (capture){.cluster = self, .scope = {.body = &self->body, .place_host = place_constant, .arg = self}};
  htf_node_open(&c->node, &of_clusters, device, stream, &c->scope);
  c->scope.values = calloc((size_t)self->body.value_count + 1, sizeof *c->scope.values);
  c->scope.variables = calloc(variables + 1, sizeof *c->scope.variables);
  c->scope.first_same = first_same;
  c->initial = calloc(variables + 1, sizeof *c->initial);
  c->params = calloc((size_t)operand_count(self) + 1, sizeof *c->params);
  c->results = calloc((size_t)self->body.result_count + 1, sizeof *c->results);
  if (c->scope.values == NULL || c->scope.variables == NULL || c->initial == NULL || c->params == NULL ||
      c->results == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  }
}

static hr_status close_capture(capture *c) {
  hr_status status = htf_node_close(&c->node);
  htf_scope_fini(&c->scope);
  free(c->scope.values);
  free(c->scope.variables);
  free(c->initial);
  free(c->params);
  free(c->results);
  return status;
}

/* Captures the body for the operands of a variant. */
static hr_status capture_body(cluster *self, htf_device *device, variant *v) {
  hr_stream *stream = NULL;
  capture c;
  HR_RETURN_IF_ERROR(hr_capture_create(device->device, &stream));
  open_capture(&c, self, device, stream, v->first_same);
  c.scope.passed_most = HTF_PASSED_MAX;
  if (!htf_has_failed(&c.node)) {
    record_body(&c, v);
  }
  hr_status status = close_capture(&c);
  hr_stream_release(stream);
  atomic_fetch_add(&htf_clusters.captures, 1);
  return status;
}

/* ---- calls ---- */

/* A call's operands, and buffers of a run. */
typedef struct call {
  htf_node node;
  cluster *cluster;
  tf_locks *locks;
  htf_value *operands;
  int *first_same;
  hr_buffer **params, **results;
} call;

static bool fits(const hr_tensor *a, const hr_tensor *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->offset == b->offset &&
         memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static bool has_operands(const call *c, const variant *v) {
  bool is_fit = true;
  for (int i = 0; i < operand_count(c->cluster) && is_fit; ++i) {
    is_fit = fits(c->operands[i], &v->operands[i]);
  }
  for (int i = 0; i < c->cluster->body.variable_count && is_fit; ++i) {
    is_fit = c->first_same[i] == v->first_same[i];
  }
  return is_fit;
}

static variant *new_variant(call *c) {
  variant *v = create_variant(c->cluster);
  if (v == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
    return NULL;
  }
  for (int i = 0; i < operand_count(c->cluster); ++i) {
    v->operands[i] = *c->operands[i];
    v->operands[i].buffer = NULL;
  }
  memcpy(v->first_same, c->first_same, (size_t)c->cluster->body.variable_count * sizeof *v->first_same);
  if (htf_keep(&c->node, capture_body(c->cluster, c->node.device, v))) {
    release_variant(v);
    return NULL;
  }
  return v;
}

/* The variant for the operands, with a reference, and the constants among its parameters; NULL after a failure. */
static variant *find_variant(call *c) {
  cluster *self = c->cluster;
  int at = 0;
  while (at < self->variant_count && !has_operands(c, self->variants[at])) {
    ++at;
  }
  variant *v = at < self->variant_count ? self->variants[at] : new_variant(c);
  if (v == NULL) {
    return NULL;
  }
  if (at == VARIANTS_MAX) {
    release_variant(self->variants[--at]);
  }
  self->variant_count = at == self->variant_count ? at + 1 : self->variant_count;
  memmove(self->variants + 1, self->variants, (size_t)at * sizeof *self->variants);
  self->variants[0] = v;
  atomic_fetch_add(&v->references, 1);
  c->params = malloc(((size_t)operand_count(self) + (size_t)v->constant_count + 1) * sizeof *c->params);
  for (int i = 0; i < v->constant_count && c->params != NULL; ++i) {
    c->params[operand_count(self) + i] = self->constants[i].buffer;
  }
  return v;
}

static bool has_refused(call *c) {
  return tf.GetCode(c->node.status) != 0 && htf_keep(&c->node, htf_status_of(c->node.status));
}

static void take_operand(call *c, int index, tf_tensor *tensor) {
  if (!has_refused(c)) {
    c->operands[index] = htf_value_of(&c->node, tensor);
  }
  if (tensor != NULL) {
    tf.DeleteTensor(tensor);
  }
}

/* Locks the variables. Their tensors are not held, so a variable that comes twice is the same buffer. */
static void open_variables(call *c) {
  const htf_body *body = &c->cluster->body;
  int *inputs = c->first_same; /* until they are known */
  for (int i = 0; i < body->variable_count; ++i) {
    inputs[i] = body->input_count + i;
  }
  tf.MaybeLockVariableInputMutexesInOrder(c->node.context, true, false, inputs, (size_t)body->variable_count,
                                          htf_copy_tensor, &c->locks, c->node.status);
  (void)has_refused(c);
  for (int i = 0; i < body->variable_count && !htf_has_failed(&c->node); ++i) {
    tf_tensor *tensor = NULL;
    tf.GetInputTensorFromVariable(c->node.context, body->input_count + i, true, false, false, htf_copy_tensor, &tensor,
                                  c->node.status);
    take_operand(c, body->input_count + i, tensor);
  }
  for (int i = 0; i < body->variable_count && !htf_has_failed(&c->node); ++i) {
    int first = 0;
    htf_value value = c->operands[body->input_count + i];
    while (first < i &&
           (hr_tensor_count(value) == 0 || c->operands[body->input_count + first]->buffer != value->buffer)) {
      ++first;
    }
    c->first_same[i] = first;
  }
}

static void open_operands(call *c) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < body->input_count && !htf_has_failed(&c->node); ++i) {
    tf_tensor *tensor = NULL;
    tf.GetInput(c->node.context, i, &tensor, c->node.status);
    take_operand(c, i, tensor);
  }
  if (body->variable_count > 0 && !htf_has_failed(&c->node)) {
    open_variables(c);
  }
}

/* Allocates the outputs; their buffers are the results of the run, with a reference. */
static int allocate_outputs(call *c, const variant *v) {
  const htf_body *body = &c->cluster->body;
  int count = 0;
  for (int i = 0; i < body->result_count && !htf_has_failed(&c->node); ++i) {
    const result *r = &v->results[i];
    size_t offset = 0;
    tf_tensor *tensor = tf.AllocateOutput(c->node.context, i, tf.ExpectedOutputDataType(c->node.context, i), r->dims,
                                          r->rank, (size_t)r->bytes, c->node.status);
    if (!has_refused(c) && r->bytes > 0) {
      c->results[count] = hr_buffer_from_handle(tf.TensorData(tensor), &offset);
      count += c->results[count] != NULL;
    }
    if (tensor != NULL) {
      tf.DeleteTensor(tensor);
    }
  }
  return count;
}

static void run_variant(call *c, const variant *v) {
  for (int i = 0; i < operand_count(c->cluster); ++i) {
    c->params[i] = c->operands[i]->buffer;
  }
  int count = allocate_outputs(c, v);
  bool is_profiled = atomic_load_explicit(&htf_profiler_is_on, memory_order_relaxed);
  if (is_profiled) {
    htf_profile_begin(&c->cluster->profiled, c->node.context, HTF_CLUSTER, &c->cluster->body);
  }
  if (!htf_has_failed(&c->node)) {
    (void)htf_keep(&c->node, hr_part_run(c->node.stream, v->part, c->params, c->results, NULL));
    atomic_fetch_add(&htf_clusters.runs, 1);
  }
  if (is_profiled) {
    htf_profile_end();
  }
  for (int i = 0; i < count; ++i) {
    hr_buffer_release(c->results[i]);
  }
}

/* Records the body on the device's stream. */
static void record_call(call *c) {
  const htf_body *body = &c->cluster->body;
  capture walk;
  open_capture(&walk, c->cluster, c->node.device, c->node.stream, c->first_same);
  walk.scope.place_host = place_temporary;
  for (int i = 0; i < operand_count(c->cluster) && !htf_has_failed(&walk.node); ++i) {
    walk.params[walk.param_count++] = c->operands[i]->buffer;
    if (i < body->input_count) {
      walk.scope.values[i].tensor = c->operands[i];
    } else {
      walk.initial[i - body->input_count] = walk.scope.variables[i - body->input_count] = c->operands[i];
    }
  }
  htf_scope_walk(&walk.node);
  for (int i = 0; i < body->result_count && !htf_has_failed(&walk.node); ++i) {
    htf_value value = htf_scope_tensor(&walk.node, body->results[i]);
    size_t bytes = (size_t)hr_tensor_count(value) * hr_dtype_size(value->dtype);
    tf_tensor *tensor = htf_has_failed(&walk.node)
                            ? NULL
                            : tf.AllocateOutput(c->node.context, i, tf.ExpectedOutputDataType(c->node.context, i),
                                                value->dims, value->rank, bytes, c->node.status);
    if (!has_refused(c) && tensor != NULL) {
      htf_write(&c->node, tensor, value);
    }
    if (tensor != NULL) {
      tf.DeleteTensor(tensor);
    }
  }
  if (!htf_has_failed(&c->node)) {
    write_variables(&walk);
  }
  (void)htf_keep(&c->node, close_capture(&walk));
  atomic_fetch_add(&htf_clusters.runs, 1);
}

static void run(call *c) {
  open_operands(c);
  if (htf_has_failed(&c->node)) {
    return;
  }
  pthread_mutex_lock(&c->cluster->mutex);
  variant *v = find_variant(c);
  pthread_mutex_unlock(&c->cluster->mutex);
  if (v != NULL && v->part == NULL) {
    record_call(c);
  } else if (v != NULL && c->params == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster's call");
  } else if (v != NULL) {
    run_variant(c, v);
  }
  release_variant(v);
}

static void compute(void *kernel, tf_context *context) {
  call c = {.cluster = kernel};
  htf_node_init(&c.node, &of_clusters, context);
  c.operands = calloc((size_t)operand_count(kernel) + 1, sizeof *c.operands);
  c.first_same = calloc((size_t)c.cluster->body.variable_count + 1, sizeof *c.first_same);
  c.results = calloc((size_t)c.cluster->body.result_count + 1, sizeof *c.results);
  if (c.operands == NULL || c.first_same == NULL || c.results == NULL) {
    htf_fail(&c.node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster's call");
  } else if (!htf_has_failed(&c.node) &&
             !htf_keep(&c.node, htf_note_step(c.node.device, tf.StepId(context), c.cluster->body.node_count))) {
    run(&c);
  }
  if (c.locks != NULL) {
    tf.ReleaseVariableInputLockHolder(c.locks);
  }
  htf_node_fini(&c.node);
  free(c.operands);
  free(c.first_same);
  free(c.params);
  free(c.results);
}

/* ---- registration ---- */

static void infer_nothing(tf_inference *inference, tf_status *status) {
  tf.ShapeInferenceContextSetUnknownShape(inference, status);
}

static void report(const char *what, tf_status *status) {
  if (tf.GetCode(status) != 0) {
    fprintf(stderr, "headrace: no %s for %s: %s\n", what, HTF_CLUSTER, tf.Message(status));
  }
}

void htf_register_cluster(void) {
  tf_status *status = tf.NewStatus();
  tf_op_builder *op = tf.NewOpDefinitionBuilder(HTF_CLUSTER);
  tf.OpDefinitionBuilderAddAttr(op, "Tin: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "n: int >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "body: string");
  tf.OpDefinitionBuilderAddInput(op, "x: Tin");
  tf.OpDefinitionBuilderAddInput(op, "variables: n * resource");
  tf.OpDefinitionBuilderAddOutput(op, "y: Tout");
  tf.OpDefinitionBuilderSetIsStateful(op, true);
  tf.OpDefinitionBuilderSetShapeInferenceFunction(op, infer_nothing);
  tf.RegisterOpDefinition(op, status);
  report("operation", status);
  tf_builder *builder = tf.NewKernelBuilder(HTF_CLUSTER, "HEADRACE", create_cluster, compute, destroy_cluster);
  tf.KernelBuilder_HostMemory(builder, "variables");
  tf.RegisterKernelBuilder(HTF_CLUSTER, builder, status);
  report("kernel", status);
  tf.DeleteStatus(status);
}
