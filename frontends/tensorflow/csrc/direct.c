/* direct.c: calls of clusters without the graph of their function. */
#include "direct.h"

#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of all here */
static htf_direct *first;
static int64_t last_number;
static int64_t last_time;
static atomic_int watchers;

/* ---- clusters ---- */

bool htf_direct_add(htf_cluster *cluster, int64_t *places, int count) {
  htf_direct *direct = calloc(1, sizeof *direct);
  void **addresses = calloc((size_t)cluster->body.result_count + 1, sizeof *addresses);
  if (direct == NULL || addresses == NULL) {
    free(direct);
    free(addresses);
    free(places);
    return false;
  }
  pthread_mutex_lock(&mutex);
  *direct = (htf_direct){.next = first,
                         .cluster = cluster,
                         .number = ++last_number,
                         .places = places,
                         .place_count = count,
                         .addresses = addresses};
  cluster->direct = first = direct;
  pthread_mutex_unlock(&mutex);
  return true;
}

void htf_direct_remove(htf_cluster *cluster) {
  htf_direct *direct = cluster->direct;
  if (direct == NULL) {
    return;
  }
  pthread_mutex_lock(&mutex);
  htf_direct **at = &first;
  while (*at != direct) {
    at = &(*at)->next;
  }
  *at = direct->next;
  cluster->direct = NULL;
  pthread_mutex_unlock(&mutex);
  free(direct->places);
  free(direct->addresses);
  free(direct);
}

/* The cluster of a number, with a reference; NULL: it is gone. */
static htf_cluster *take_cluster(int64_t number) {
  htf_cluster *cluster = NULL;
  pthread_mutex_lock(&mutex);
  for (htf_direct *direct = first; direct != NULL && cluster == NULL; direct = direct->next) {
    cluster = direct->number == number ? direct->cluster : NULL;
  }
  if (cluster != NULL) {
    atomic_fetch_add(&cluster->references, 1);
  }
  pthread_mutex_unlock(&mutex);
  return cluster;
}

/* ---- watched calls ---- */

void htf_direct_note(const htf_cluster *cluster, int index, void *address) {
  if (atomic_load_explicit(&watchers, memory_order_relaxed) == 0) {
    return;
  }
  pthread_mutex_lock(&mutex);
  htf_direct *direct = cluster->direct; /* NULL: also if the function's kernel has ended */
  if (direct != NULL) {
    if (index == 0) {
      memset(direct->addresses, 0, (size_t)cluster->body.result_count * sizeof *direct->addresses);
    }
    direct->addresses[index] = address;
    direct->time = ++last_time;
  }
  pthread_mutex_unlock(&mutex);
}

void htf_direct_forget(const void *address) {
  if (atomic_load_explicit(&watchers, memory_order_relaxed) == 0) {
    return;
  }
  pthread_mutex_lock(&mutex);
  for (htf_direct *direct = first; direct != NULL; direct = direct->next) {
    for (int i = 0; i < direct->cluster->body.result_count; ++i) {
      direct->addresses[i] = direct->addresses[i] == address ? NULL : direct->addresses[i];
    }
  }
  pthread_mutex_unlock(&mutex);
}

/* Clusters note their results between calls with true and false. Returns the time of the last result before. */
HTF_EXPORT int64_t headrace_tensorflow_watch(bool begins) {
  atomic_fetch_add(&watchers, begins ? 1 : -1);
  pthread_mutex_lock(&mutex);
  int64_t time = last_time;
  pthread_mutex_unlock(&mutex);
  return time;
}

static bool has_results(const htf_direct *direct, int count, void *const *addresses) {
  const int operands = htf_operand_count(direct->cluster);
  bool is_same = direct->place_count - operands == count;
  for (int i = 0; i < count && is_same; ++i) {
    is_same = direct->addresses[direct->places[operands + i]] == addresses[i];
  }
  return is_same;
}

/* TensorFlow's dtype of a result of the body; 0: no node makes it. */
static int64_t type_of(const htf_body *body, int result) {
  int64_t type = 0;
  for (int i = 0; i < body->node_count && type == 0; ++i) {
    const int64_t output = body->results[result] - body->nodes[i].first_output;
    type = output >= 0 && output < body->nodes[i].output_count ? body->nodes[i].types[output] : 0;
  }
  return type;
}

static int describe(const htf_direct *direct, int most, int64_t *out_numbers) {
  const htf_body *body = &direct->cluster->body;
  const int size = 4 + body->result_count + direct->place_count;
  if (size > most) {
    return size;
  }
  out_numbers[0] = direct->number, out_numbers[1] = body->input_count;
  out_numbers[2] = body->variable_count, out_numbers[3] = body->result_count;
  for (int i = 0; i < body->result_count; ++i) {
    out_numbers[4 + i] = type_of(body, i);
  }
  memcpy(out_numbers + 4 + body->result_count, direct->places, (size_t)direct->place_count * sizeof *direct->places);
  return size;
}

static int find_cluster(int count, void *const *addresses, int64_t begin, int most, int64_t *out_numbers) {
  const htf_direct *found = NULL;
  pthread_mutex_lock(&mutex);
  for (const htf_direct *direct = first; direct != NULL; direct = direct->next) {
    if (direct->time > begin && has_results(direct, count, addresses)) {
      found = direct;
      begin = direct->time;
    }
  }
  int size = found != NULL ? describe(found, most, out_numbers) : 0;
  pthread_mutex_unlock(&mutex);
  return size;
}

/* Finds the cluster that wrote the results of a call which is watched since `begin`. Earlier results do not count: a
 * call may return one of its arguments. Numbers: the cluster's, how many inputs, variables and results it has, the
 * dtypes of the results, and its places. Returns how many numbers there are, which are stored if they are not more than
 * `most`; 0: there is no such cluster. */
HTF_EXPORT int headrace_tensorflow_find(tf_handle *const *results, int count, int64_t begin, int most,
                                        int64_t *out_numbers) {
  void **addresses = calloc((size_t)count + 1, sizeof *addresses);
  tf_status *status = tf.NewStatus();
  bool is_usable = addresses != NULL && count > 0 && htf_device_at(1) == NULL;
  for (int i = 0; i < count && is_usable; ++i) {
    addresses[i] = tf.TensorHandleDevicePointer(results[i], status);
    is_usable = tf.GetCode(status) == 0 && addresses[i] != NULL;
  }
  int size = is_usable ? find_cluster(count, addresses, begin, most, out_numbers) : 0;
  tf.DeleteStatus(status);
  free(addresses);
  return size;
}

/* ---- the operation ---- */

static void *create_call(tf_construction *construction) {
  int64_t *number = calloc(1, sizeof *number);
  tf_status *status = tf.NewStatus();
  if (number == NULL) {
    tf.SetStatus(status, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a call");
  } else {
    tf.OpKernelConstruction_GetAttrInt64(construction, "cluster", number, status);
  }
  if (tf.GetCode(status) != 0) {
    tf.OpKernelConstruction_Failure(construction, status);
  }
  tf.DeleteStatus(status);
  return number;
}

static void compute(void *kernel, tf_context *context) {
  const int64_t *number = kernel;
  htf_cluster *cluster = take_cluster(*number);
  if (cluster != NULL) {
    htf_cluster_compute(cluster, context);
    htf_cluster_release(cluster);
    return;
  }
  tf_status *status = tf.NewStatus();
  tf.SetStatus(status, HR_STATUS_NOT_FOUND, "headrace: the function of a call is gone");
  tf.OpKernelContext_Failure(context, status);
  tf.DeleteStatus(status);
}

void htf_register_direct(void) {
  tf_status *status = tf.NewStatus();
  tf_op_builder *op = tf.NewOpDefinitionBuilder(HTF_CALL);
  tf.OpDefinitionBuilderAddAttr(op, "Tin: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "n: int >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 0");
  tf.OpDefinitionBuilderAddAttr(op, "cluster: int");
  htf_register_operation(op, HTF_CALL);
  tf_builder *builder = tf.NewKernelBuilder(HTF_CALL, HTF_TYPE, create_call, compute, free);
  tf.KernelBuilder_HostMemory(builder, "variables");
  tf.RegisterKernelBuilder(HTF_CALL, builder, status);
  htf_report(HTF_CALL, "kernel", status);
  tf.DeleteStatus(status);
}
