/* captures.c: records of a cluster's body on a capture, and the part that is made of them. */
#include "captures.h"

#include <stdlib.h>
#include <string.h>

#include "cluster.h"

/* Adds a constant of the device with these elements, and writes it in the device's stream. */
static hr_status add_constant(htf_cluster *self, htf_device *device, const htf_host *host) {
  htf_cluster_constant *grown = realloc(self->constants, ((size_t)self->constant_count + 1) * sizeof *grown);
  if (grown == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a constant");
  }
  self->constants = grown;
  htf_cluster_constant added = {0};
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
  htf_cluster *self = arg;
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

static bool is_param(const htf_capture *c, const hr_buffer *buffer) {
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
static void place_operands(htf_capture *c, const htf_variant *v) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < htf_operand_count(c->cluster) && !htf_has_failed(&c->node); ++i) {
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
static void take_results(htf_capture *c, htf_variant *v) {
  const htf_body *body = &c->cluster->body;
  for (int i = 0; i < body->result_count && !htf_has_failed(&c->node); ++i) {
    htf_value value = htf_scope_tensor(&c->node, body->results[i]);
    if (htf_has_failed(&c->node)) {
      return;
    }
    htf_cluster_result *r = &v->results[i];
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

void htf_capture_write(htf_capture *c) {
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

static void record_body(htf_capture *c, htf_variant *v) {
  place_operands(c, v);
  htf_scope_walk(&c->node);
  if (c->scope.is_too_long) {
    return;
  }
  take_results(c, v);
  htf_capture_write(c);
  if (htf_has_failed(&c->node)) {
    return;
  }
  htf_cluster *self = c->cluster;
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

void htf_capture_open(htf_capture *c, htf_cluster *self, htf_device *device, hr_stream *stream, const int *first_same) {
  const size_t variables = (size_t)self->body.variable_count;
  *c = (htf_capture){.cluster = self, .scope = {.body = &self->body, .place_host = place_constant, .arg = self}};
  htf_node_open(&c->node, &htf_of_clusters, device, stream, &c->scope);
  c->scope.values = calloc((size_t)self->body.value_count + 1, sizeof *c->scope.values);
  c->scope.variables = calloc(variables + 1, sizeof *c->scope.variables);
  c->scope.first_same = first_same;
  c->initial = calloc(variables + 1, sizeof *c->initial);
  c->params = calloc((size_t)htf_operand_count(self) + 1, sizeof *c->params);
  c->results = calloc((size_t)self->body.result_count + 1, sizeof *c->results);
  if (c->scope.values == NULL || c->scope.variables == NULL || c->initial == NULL || c->params == NULL ||
      c->results == NULL) {
    htf_fail(&c->node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
  }
}

hr_status htf_capture_close(htf_capture *c) {
  hr_status status = htf_node_close(&c->node);
  htf_scope_fini(&c->scope);
  free(c->scope.values);
  free(c->scope.variables);
  free(c->initial);
  free(c->params);
  free(c->results);
  return status;
}

hr_status htf_capture_body(htf_cluster *self, htf_device *device, htf_variant *v) {
  hr_stream *stream = NULL;
  htf_capture c;
  HR_RETURN_IF_ERROR(hr_capture_create(device->device, &stream));
  htf_capture_open(&c, self, device, stream, v->first_same);
  c.scope.passed_most = HTF_PASSED_MAX;
  if (!htf_has_failed(&c.node)) {
    record_body(&c, v);
  }
  hr_status status = htf_capture_close(&c);
  hr_stream_release(stream);
  atomic_fetch_add(&htf_clusters.captures, 1);
  return status;
}
