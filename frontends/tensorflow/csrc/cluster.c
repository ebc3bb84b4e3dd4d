/* cluster.c: the kernel of clusters. A call finds the captured body for its operands (captures.h) and runs it. */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "captures.h"
#include "direct.h"
#include "profiler.h"

htf_cluster_counts htf_clusters;

const htf_kernel htf_of_clusters = {.row = &(const htf_row){.op = HTF_CLUSTER}};

/* ---- state ---- */

static void release_variant(htf_variant *v) {
  if (v != NULL && atomic_fetch_sub(&v->references, 1) == 1) {
    hr_part_release(v->part);
    free(v->operands);
    free(v->first_same);
    free(v->results);
    free(v);
  }
}

static htf_variant *create_variant(const htf_cluster *self) {
  htf_variant *v = calloc(1, sizeof *v);
  if (v != NULL) {
    atomic_init(&v->references, 1);
    v->operands = calloc((size_t)htf_operand_count(self) + 1, sizeof *v->operands);
    v->first_same = calloc((size_t)self->body.variable_count + 1, sizeof *v->first_same);
    v->results = calloc((size_t)self->body.result_count + 1, sizeof *v->results);
  }
  if (v != NULL && (v->operands == NULL || v->first_same == NULL || v->results == NULL)) {
    release_variant(v);
    return NULL;
  }
  return v;
}

void htf_cluster_release(htf_cluster *self) {
  if (atomic_fetch_sub(&self->references, 1) > 1) {
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

static void destroy_cluster(void *kernel) {
  if (kernel != NULL) {
    htf_direct_remove(kernel);
    htf_cluster_release(kernel);
  }
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

static bool draws_numbers(const htf_body *body) {
  bool is_found = false;
  for (int i = 0; i < body->node_count && !is_found; ++i) {
    is_found = body->nodes[i].kernel->generator != NULL;
  }
  return is_found;
}

/* Reads if the cluster is all of its function, by the attribute's places. Kernels of random numbers have a state, of
 * which there must not be two. */
static void read_places(htf_cluster *self, tf_construction *construction, tf_status *status) {
  int32_t count = 0, bytes = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, "places", &count, &bytes, status);
  const int operands = htf_operand_count(self);
  if (tf.GetCode(status) != 0 || count <= operands || draws_numbers(&self->body)) {
    return;
  }
  int64_t *places = calloc((size_t)count, sizeof *places);
  bool is_good = places != NULL;
  if (is_good) {
    tf.OpKernelConstruction_GetAttrInt64List(construction, "places", places, (int)count, status);
  }
  for (int i = 0; i < count && is_good; ++i) {
    is_good = tf.GetCode(status) == 0 && places[i] >= 0 && (i < operands || places[i] < self->body.result_count);
  }
  if (!is_good) {
    free(places);
  } else if (!htf_direct_add(self, places, (int)count)) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  }
}

static void *create_cluster(tf_construction *construction) {
  tf_status *status = tf.NewStatus();
  htf_cluster *self = calloc(1, sizeof *self);
  size_t size = 0;
  char *text = self != NULL ? read_text(construction, "body", &size, status) : NULL;
  if (self == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  } else {
    pthread_mutex_init(&self->mutex, NULL);
    atomic_init(&self->references, 1);
    if (text != NULL && !htf_fails(htf_body_read((hr__span){(const uint8_t *)text, size}, &self->body), status)) {
      read_places(self, construction, status);
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

/* ---- calls ---- */

/* A call's operands, and buffers of a run. */
typedef struct call {
  htf_node node;
  htf_cluster *cluster;
  tf_locks *locks;
  htf_value *operands;
  int *first_same;
  hr_buffer **params, **results;
} call;

static bool fits(const hr_tensor *a, const hr_tensor *b) {
  return a->dtype == b->dtype && a->rank == b->rank && a->offset == b->offset &&
         memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static bool has_operands(const call *c, const htf_variant *v) {
  bool is_fit = true;
  for (int i = 0; i < htf_operand_count(c->cluster) && is_fit; ++i) {
    is_fit = fits(c->operands[i], &v->operands[i]);
  }
  for (int i = 0; i < c->cluster->body.variable_count && is_fit; ++i) {
    is_fit = c->first_same[i] == v->first_same[i];
  }
  return is_fit;
}

static htf_variant *new_variant(call *c) {
  htf_variant *v = create_variant(c->cluster);
  if (v == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
    return NULL;
  }
  for (int i = 0; i < htf_operand_count(c->cluster); ++i) {
    v->operands[i] = *c->operands[i];
    v->operands[i].buffer = NULL;
  }
  memcpy(v->first_same, c->first_same, (size_t)c->cluster->body.variable_count * sizeof *v->first_same);
  if (htf_keep(&c->node, htf_capture_body(c->cluster, c->node.device, v))) {
    release_variant(v);
    return NULL;
  }
  return v;
}

/* The variant for the operands, with a reference, and the constants among its parameters; NULL after a failure. */
static htf_variant *find_variant(call *c) {
  htf_cluster *self = c->cluster;
  int at = 0;
  while (at < self->variant_count && !has_operands(c, self->variants[at])) {
    ++at;
  }
  htf_variant *v = at < self->variant_count ? self->variants[at] : new_variant(c);
  if (v == NULL) {
    return NULL;
  }
  if (at == HTF_VARIANTS_MAX) {
    release_variant(self->variants[--at]);
  }
  self->variant_count = at == self->variant_count ? at + 1 : self->variant_count;
  memmove(self->variants + 1, self->variants, (size_t)at * sizeof *self->variants);
  self->variants[0] = v;
  atomic_fetch_add(&v->references, 1);
  c->params = malloc(((size_t)htf_operand_count(self) + (size_t)v->constant_count + 1) * sizeof *c->params);
  for (int i = 0; i < v->constant_count && c->params != NULL; ++i) {
    c->params[htf_operand_count(self) + i] = self->constants[i].buffer;
  }
  return v;
}

static void take_operand(call *c, int index, tf_tensor *tensor) {
  if (!htf_has_refused(&c->node)) {
    c->operands[index] = htf_value_of(&c->node, tensor);
  }
  if (tensor != NULL) {
    tf.DeleteTensor(tensor);
  }
}

static tf_tensor *variable_of(call *c, int variable, bool is_locked) {
  tf_tensor *tensor = NULL;
  if (!htf_has_failed(&c->node)) {
    tf.GetInputTensorFromVariable(c->node.context, c->cluster->body.input_count + variable, is_locked, false,
                                  htf_body_is_sparse(&c->cluster->body, variable), htf_copy_tensor, &tensor,
                                  c->node.status);
    (void)htf_has_refused(&c->node);
  }
  return tensor;
}

/* TensorFlow copies a variable for a dense read from its first sparse use on. It locks the variable for this itself. */
static void prepare_sparse(call *c) {
  for (int i = 0; i < c->cluster->body.variable_count; ++i) {
    tf_tensor *tensor = htf_body_is_sparse(&c->cluster->body, i) ? variable_of(c, i, false) : NULL;
    if (tensor != NULL) {
      tf.DeleteTensor(tensor);
    }
  }
}

/* The variables of which only elements are used, or the others, which may get another tensor for their update. */
static void take_variables(call *c, bool are_sparse) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < body->variable_count && !htf_has_failed(&c->node); ++i) {
    if (htf_body_is_sparse(body, i) == are_sparse) {
      take_operand(c, body->input_count + i, variable_of(c, i, true));
    }
  }
}

/* Locks the variables. Their tensors are not held, so a variable that comes twice is the same buffer. */
static void open_variables(call *c) {
  const htf_body *body = &c->cluster->body;
  int *inputs = c->first_same; /* until they are known */
  for (int i = 0; i < body->variable_count; ++i) {
    inputs[i] = body->input_count + i;
  }
  prepare_sparse(c);
  if (htf_has_failed(&c->node)) {
    return;
  }
  tf.MaybeLockVariableInputMutexesInOrder(c->node.context, true, false, inputs, (size_t)body->variable_count,
                                          htf_copy_tensor, &c->locks, c->node.status);
  (void)htf_has_refused(&c->node);
  take_variables(c, false);
  take_variables(c, true);
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
static int allocate_outputs(call *c, const htf_variant *v) {
  const htf_body *body = &c->cluster->body;
  int count = 0;
  for (int i = 0; i < body->result_count && !htf_has_failed(&c->node); ++i) {
    const htf_cluster_result *r = &v->results[i];
    size_t offset = 0;
    tf_tensor *tensor = tf.AllocateOutput(c->node.context, i, tf.ExpectedOutputDataType(c->node.context, i), r->dims,
                                          r->rank, (size_t)r->bytes, c->node.status);
    if (!htf_has_refused(&c->node) && r->bytes > 0) {
      htf_direct_note(c->cluster, i, tf.TensorData(tensor));
      c->results[count] = hr_buffer_from_handle(tf.TensorData(tensor), &offset);
      count += c->results[count] != NULL;
    }
    if (tensor != NULL) {
      tf.DeleteTensor(tensor);
    }
  }
  return count;
}

static void run_variant(call *c, const htf_variant *v) {
  for (int i = 0; i < htf_operand_count(c->cluster); ++i) {
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

/* A tensor of the host for one call. */
static htf_value place_temporary(htf_node *node, void *arg, const htf_host *host) {
  (void)arg;
  htf_value value = htf_new(node, host->dtype, host->rank, host->dims);
  if (!htf_has_failed(node) && host->count > 0) {
    const hr_view view = hr_tensor_view(value);
    (void)htf_keep(node, hr_stream_write(node->stream, &view, host->bytes));
  }
  return value;
}

/* Records the body on the device's stream. */
static void record_call(call *c) {
  const htf_body *body = &c->cluster->body;
  htf_capture walk;
  htf_capture_open(&walk, c->cluster, c->node.device, c->node.stream, c->first_same);
  walk.scope.place_host = place_temporary;
  for (int i = 0; i < htf_operand_count(c->cluster) && !htf_has_failed(&walk.node); ++i) {
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
    if (!htf_has_refused(&c->node) && tensor != NULL) {
      htf_direct_note(c->cluster, i, tf.TensorData(tensor));
      htf_write(&c->node, tensor, value);
    }
    if (tensor != NULL) {
      tf.DeleteTensor(tensor);
    }
  }
  if (!htf_has_failed(&c->node)) {
    htf_capture_write(&walk);
  }
  (void)htf_keep(&c->node, htf_capture_close(&walk));
  atomic_fetch_add(&htf_clusters.runs, 1);
}

static void run(call *c) {
  open_operands(c);
  if (htf_has_failed(&c->node)) {
    return;
  }
  pthread_mutex_lock(&c->cluster->mutex);
  htf_variant *v = find_variant(c);
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

void htf_cluster_compute(htf_cluster *self, tf_context *context) {
  call c = {.cluster = self};
  htf_node_init(&c.node, &htf_of_clusters, context);
  c.operands = calloc((size_t)htf_operand_count(self) + 1, sizeof *c.operands);
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

static void compute(void *kernel, tf_context *context) {
  htf_cluster_compute(kernel, context);
}

/* ---- registration ---- */

static void infer_nothing(tf_inference *inference, tf_status *status) {
  tf.ShapeInferenceContextSetUnknownShape(inference, status);
}

void htf_report(const char *name, const char *what, tf_status *status) {
  if (tf.GetCode(status) != 0) {
    fprintf(stderr, "headrace: no %s for %s: %s\n", what, name, tf.Message(status));
  }
}

void htf_register_operation(tf_op_builder *op, const char *name) {
  tf_status *status = tf.NewStatus();
  tf.OpDefinitionBuilderAddInput(op, "x: Tin");
  tf.OpDefinitionBuilderAddInput(op, "variables: n * resource");
  tf.OpDefinitionBuilderAddOutput(op, "y: Tout");
  tf.OpDefinitionBuilderSetIsStateful(op, true);
  tf.OpDefinitionBuilderSetShapeInferenceFunction(op, infer_nothing);
  tf.RegisterOpDefinition(op, status);
  htf_report(name, "operation", status);
  tf.DeleteStatus(status);
}

void htf_register_cluster(void) {
  tf_op_builder *op = tf.NewOpDefinitionBuilder(HTF_CLUSTER);
  tf.OpDefinitionBuilderAddAttr(op, "Tin: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "n: int >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "body: string");
  tf.OpDefinitionBuilderAddAttr(op, "places: list(int) = []");
  htf_register_operation(op, HTF_CLUSTER);
  tf_status *status = tf.NewStatus();
  tf_builder *builder = tf.NewKernelBuilder(HTF_CLUSTER, "HEADRACE", create_cluster, compute, destroy_cluster);
  tf.KernelBuilder_HostMemory(builder, "variables");
  tf.RegisterKernelBuilder(HTF_CLUSTER, builder, status);
  htf_report(HTF_CLUSTER, "kernel", status);
  tf.DeleteStatus(status);
}
