/* optimizer.c: TensorFlow calls this for each graph with nodes on the device.
 *
 * Keras' default asks for XLA (`jit_compile="auto"`), which has no such device. The mark that demands it is removed, so
 * that the functions run on the device's kernels. TensorFlow's passes that make private operations are turned off.
 */
#include <stdlib.h>

#include "graphdef.h"
#include "plugin.h"

static void *create_optimizer(void) {
  static char optimizer;
  return &optimizer;
}

static void destroy_optimizer(void *optimizer) {
  (void)optimizer;
}

static void free_graph(void *graph, size_t size) {
  (void)size;
  free(graph);
}

static void optimize(void *optimizer, const tf_buffer *graph, const tf_item *item, tf_buffer *out_graph,
                     tf_status *status) {
  (void)optimizer, (void)item;
  uint8_t *bytes = malloc(graph->size > 0 ? graph->size : 1);
  size_t size = 0;
  if (bytes == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a graph");
    return;
  }
  if (htf_fails(htf_graph_without(graph->data, graph->size, "_XlaMustCompile", bytes, &size), status)) {
    free(bytes);
    return;
  }
  out_graph->data = bytes, out_graph->size = size, out_graph->release = free_graph;
}

HTF_EXPORT void TF_InitGraph(tf_optimizer_registration *registration, tf_status *status) {
  (void)status;
  registration->size_of = TF_STRUCT_SIZE(tf_optimizer_registration, optimizer);
  registration->device_type = HTF_TYPE;
  registration->passes->size_of = TF_STRUCT_SIZE(tf_optimizer_passes, pass);
  registration->passes->pass[TF_PASS_LAYOUT] = TF_PASS_OFF;
  registration->passes->pass[TF_PASS_REMAPPING] = TF_PASS_OFF;
  tf_optimizer *optimizer = registration->optimizer;
  optimizer->size_of = TF_STRUCT_SIZE(tf_optimizer, destroy);
  optimizer->create = create_optimizer, optimizer->optimize = optimize, optimizer->destroy = destroy_optimizer;
}
