/* optimizer.c: TensorFlow calls this for each graph with nodes on the device.
 *
 * Keras' default asks for XLA (`jit_compile="auto"`), which has no such device. The mark that demands it is removed, so
 * that the functions run on the device's kernels. Nodes become clusters (cluster.h). TensorFlow's passes that make
 * private operations are turned off.
 */
#include <stdlib.h>

#include "base/allocator.h"
#include "cluster.h"
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
  hr_free(graph);
}

static atomic_bool is_off; /* clusters */

/* Functions that are built from now on become clusters, or not. */
HTF_EXPORT void headrace_tensorflow_use_clusters(bool uses_them) {
  atomic_store(&is_off, !uses_them);
}

/* The names of nodes that must stay, in two blocks that the caller frees. */
static int read_preserved(const tf_item *item, hr__span **out_names, char **out_storage, tf_status *status) {
  int count = 0;
  size_t bytes = 0;
  tf.GetNodesToPreserveListSize(item, &count, &bytes, status);
  if (tf.GetCode(status) != 0) {
    return 0;
  }
  char **texts = calloc((size_t)count + 1, sizeof *texts), *storage = malloc(bytes + 1);
  size_t *sizes = calloc((size_t)count + 1, sizeof *sizes);
  hr__span *names = calloc((size_t)count + 1, sizeof *names);
  if (texts != NULL && storage != NULL && sizes != NULL && names != NULL) {
    tf.GetNodesToPreserveList(item, texts, sizes, count, storage, bytes, status);
  } else {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a graph");
  }
  for (int i = 0; i < count && tf.GetCode(status) == 0; ++i) {
    names[i] = (hr__span){(const uint8_t *)texts[i], sizes[i]};
  }
  free(texts);
  free(sizes);
  *out_names = names, *out_storage = storage;
  return count;
}

static void optimize(void *optimizer, const tf_buffer *graph, const tf_item *item, tf_buffer *out_graph,
                     tf_status *status) {
  (void)optimizer;
  hr__span *names = NULL;
  char *storage = NULL;
  hr_text text = {0};
  int count = read_preserved(item, &names, &storage, status);
  const hr__span bytes = {graph->data, graph->size};
  if (tf.GetCode(status) == 0 &&
      !htf_fails(!atomic_load(&is_off) ? htf_make_clusters(graph, count, names, &text)
                                       : htf_copy_without(bytes, 0, "_XlaMustCompile", &text),
                 status)) {
    out_graph->size = text.length;
    out_graph->data = hr_text_take(&text), out_graph->release = free_graph;
  }
  hr_text_fini(&text);
  free(names);
  free(storage);
}

HTF_EXPORT void TF_InitGraph(tf_optimizer_registration *registration, tf_status *status) {
  (void)status;
  registration->size_of = TF_STRUCT_SIZE(tf_optimizer_registration, optimizer);
  registration->device_type = HTF_TYPE;
  registration->passes->size_of = TF_STRUCT_SIZE(tf_optimizer_passes, pass);
  registration->passes->pass[TF_PASS_LAYOUT] = TF_PASS_OFF;
  registration->passes->pass[TF_PASS_REMAPPING] = TF_PASS_OFF;
  registration->passes->pass[TF_PASS_MEMORY] = TF_PASS_OFF;
  registration->passes->pass[TF_PASS_SCOPED_ALLOCATOR] = TF_PASS_OFF;
  tf_optimizer *optimizer = registration->optimizer;
  optimizer->size_of = TF_STRUCT_SIZE(tf_optimizer, destroy);
  optimizer->create = create_optimizer, optimizer->optimize = optimize, optimizer->destroy = destroy_optimizer;
}
