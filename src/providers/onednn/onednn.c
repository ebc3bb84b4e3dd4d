/* onednn.c: the oneDNN provider: matrix products, convolutions and their gradients in f32, bf16 and f16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "base/dynlib.h"
#include "base/thread.h"
#include "core/ops/op.h"
#include "providers/onednn/pipe.h"

/* Tries a small product in each dtype: not every processor has the instructions of narrow ones. The library's plain
 * loops are too slow: 512 x 2048 x 2048 in f16 takes them 14 s, f32 and two conversions take 30 ms.
 */
static bool probe(hr_dtype dtype) {
  const int64_t dims[2] = {16, 16}, strides[2] = {16, 1};
  dnnl_memory_desc layout = NULL;
  dnnl_primitive_desc product = NULL;
  if (hr__dnnl()->memory_desc_create_with_strides(&layout, 2, dims, hr__dnnl_dtype(dtype), strides) != DNNL_SUCCESS) {
    return false;
  }
  int code = hr__dnnl()->matmul_primitive_desc_create(&product, hr__dnnl_engine(), layout, layout, NULL, layout, NULL);
  hr__dnnl()->memory_desc_destroy(layout);
  if (code != DNNL_SUCCESS) {
    return false;
  }
  const char *kernel = "";
  code = hr__dnnl()->primitive_desc_query(product, DNNL_QUERY_IMPL_INFO_STR, 0, &kernel);
  bool is_fast = code == DNNL_SUCCESS && strncmp(kernel, "ref", 3) != 0;
  hr__dnnl()->primitive_desc_destroy(product);
  return is_fast;
}

/* sgemm's code is generated at the first call, which takes 25 ms. At exit it is freed before all handlers registered
 * earlier, including the devices' close, which waits for running products. So that close is registered again.
 */
void hr__dnnl_generate_sgemm(void) {
  hr__dnnl_library *library = hr__dnnl_opened();
  if (atomic_load_explicit(&library->has_sgemm, memory_order_acquire)) {
    return;
  }
  const float ones[4] = {1, 1, 1, 1};
  float product[4];
  hr_mutex_lock(&library->vendor.mutex);
  if (!atomic_load_explicit(&library->has_sgemm, memory_order_relaxed)) {
    (void)library->table.sgemm('N', 'N', 2, 2, 2, 1, ones, 2, ones, 2, 0, product, 2);
    hr__contexts_stop_at_exit();
    atomic_store_explicit(&library->has_sgemm, true, memory_order_release);
  }
  hr_mutex_unlock(&library->vendor.mutex);
}

static hr_status open_library(void) {
  HR_RETURN_IF_ERROR(hr__dnnl_open());
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_BF16, HR_DTYPE_F16};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; ++i) {
    hr__dnnl_opened()->has_dtype[dtypes[i]] = probe(dtypes[i]);
  }
  (void)hr__dnnl()->set_primitive_cache_capacity(0); /* shared_primitives.h has the reason */
  hr__dnnl_library *library = hr__dnnl_opened();
  const dnnl_version *v = hr__dnnl()->version();
  snprintf(library->version, sizeof library->version, "%d.%d.%d", v->major, v->minor, v->patch);
  hr_dynlib_trim((const void *)(uintptr_t)hr__dnnl()->version); /* 413 initialisers touch 11 MB */
  return HR_OK;
}

hr_status hr__onednn_open(void) {
  return hr__vendor_open(&hr__dnnl_opened()->vendor, open_library);
}

static bool has_form(const hr_node *node) {
  const bool *has_dtype = hr__dnnl_opened()->has_dtype;
  if (hr_op_table(node->op)->family != HR_FAMILY_CONTRACTION || !has_dtype[node->outputs[0].dtype] ||
      !has_dtype[node->inputs[0].dtype]) {
    return false;
  }
  switch (node->op) {
    case HR_OP_MATMUL:
      return hr__onednn_supports_matmul(node);
    case HR_OP_CONV:
    case HR_OP_CONV_BACKWARD_DATA:
    case HR_OP_CONV_BACKWARD_WEIGHT:
      return hr__onednn_supports_conv(node);
    default:
      return false;
  }
}

static void key_of(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm,
                   hr__dnnl_key *out_key) {
  bool is_product = node->op != HR_OP_MATMUL && hr__onednn_is_product(program, node);
  const int64_t how[] = {algorithm, hr_thread_count(), is_product};
  hr__dnnl_key_make(node, sizeof how / sizeof *how, how, out_key);
}

static hr_status make(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm, bool probe,
                      hr_prepared **out_prepared) {
  hr_prepared *prepared = NULL;
  hr__dnnl_key key;
  key_of(program, node, algorithm, &key);
  int threads = hr_library_threads_set(hr_thread_count()); /* creating primitives changes it */
  hr_status made = node->op == HR_OP_MATMUL
                       ? hr__onednn_prepare_matmul(program, node, algorithm, probe, &key, &prepared)
                       : hr__onednn_prepare_conv(program, node, algorithm, probe, &key, &prepared);
  (void)hr_library_threads_set(threads);
  HR_RETURN_IF_ERROR(made);
  prepared->key = NULL;
  if (prepared->status != HR_OK) {
    hr_status status = prepared->status;
    prepared->status = HR_OK;
    hr__pipe_release(prepared);
    return status;
  }
  *out_prepared = hr__pipe_finish(prepared);
  return *out_prepared != NULL ? HR_OK
                               : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "oneDNN: no memory for a prepared call");
}

/* The library's name of what runs the node; NULL: nothing, or it is unknown. */
static const char *kernel_of(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm) {
  hr_prepared *prepared = NULL;
  hr_status status = make(program, node, algorithm, true, &prepared);
  if (status != HR_OK) {
    hr_status_free(status);
    return NULL;
  }
  const char *kernel = prepared->kernel;
  hr__pipe_release(prepared);
  return kernel;
}

/* oneDNN accepts every list of post-ops, if need be with its reference loops: epilogues are supported only if they keep
 * the implementation. */
static bool keeps_kernel(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm) {
  hr_node plain = *node;
  plain.epilogue_count = 0;
  hr__dnnl_key key;
  bool keeps;
  key_of(program, node, algorithm, &key);
  if (hr__dnnl_known_epilogues(&key, &keeps)) {
    return keeps;
  }
  const char *own = kernel_of(program, &plain, algorithm), *with = NULL;
  keeps = own != NULL && (with = kernel_of(program, node, algorithm)) != NULL && strcmp(own, with) == 0 &&
          strncmp(own, "ref", 3) != 0;
  hr__dnnl_note_epilogues(&key, keeps);
  return keeps;
}

static bool has_algorithm(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm) {
  return has_form(node) && (node->epilogue_count == 0 || keeps_kernel(program, node, algorithm));
}

static bool supports(const hr_program *program, const hr_node *node) {
  return has_algorithm(program, node, HR_ONEDNN_ESTIMATE);
}

/* Primitives are made by a thread, or in the first run: generating their code takes longer than all else. The first
 * ones of an operation are made here: with them the library registers what it frees at exit, and the devices are to be
 * closed before that (engine/algorithms.c). */
static void make_later(hr_op op, hr_prepared *prepared) {
  if (atomic_load(&hr__dnnl_opened()->has_made[op])) {
    hr__late_begin(&prepared->late, hr__pipe_make, prepared);
  } else {
    hr__pipe_make_all(prepared);
    atomic_store(&hr__dnnl_opened()->has_made[op], true);
  }
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)queue;
  bool is_own = algorithm == HR_ALGORITHM_OWN;
  if (!is_own && !has_algorithm(program, node, (hr__onednn_algorithm)algorithm)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "oneDNN: no algorithm for this operation");
  }
  hr_prepared *prepared = NULL;
  HR_RETURN_IF_ERROR(
      make(program, node, is_own ? HR_ONEDNN_ESTIMATE : (hr__onednn_algorithm)algorithm, false, &prepared));
  make_later(node->op, prepared);
  *out_prepared = prepared;
  *out_workspace_bytes = prepared->workspace_bytes;
  return HR_OK;
}

static void stamp(hr_prepared *prepared, const uint64_t *stamps) {
  if (prepared->kept.arg >= 0) {
    prepared->kept.stamp = stamps[prepared->kept.arg];
  }
}

static int keeps(const hr_prepared *prepared) {
  return prepared->kept.arg;
}

static bool needs_team(const hr_prepared *prepared) {
  return prepared->thread_count > 1;
}

const char *hr__onednn_version(void) {
  return hr__dnnl_opened()->version;
}

static const char *const algorithms[] = {"direct", "product", "threads", NULL}; /* hr__onednn_algorithm */

const hr_provider HR_CPU_NAME(hr__onednn_provider) = {
    .name = "onednn",
    .is_apart = true,
    .channels_last = true,
    .has_threads = true,
    .open = hr__onednn_open,
    .runs = hr__provider_runs_contractions,
    .supports = supports,
    .prepare = prepare,
    .make = hr__pipe_make_all,
    .algorithms = algorithms,
    .version = hr__onednn_version,
    .needs_team = needs_team,
    .stamp = stamp,
    .keeps = keeps,
    .run = hr__pipe_run,
    .footprint = hr__pipe_footprint,
    .release = hr__pipe_release,
    .forget = hr__dnnl_forget,
};
