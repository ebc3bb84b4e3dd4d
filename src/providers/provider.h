/* provider.h: library kernels, each provider offered through one table.
 *
 * A provider runs contractions, and composites that it runs better as a whole than their lowering:
 *
 * - `supports` is true for nodes that the provider runs,
 * - `prepare` chooses an algorithm and makes everything that can be made before addresses are known,
 * - `run` executes; a repeated program pays for `run` alone.
 *
 * Nodes that no provider supports are lowered. Instead, a provider may write a text in the device's dialect, which the
 * engine compiles, caches and launches like the kernels that it generates.
 *
 * Providers of host memory run on the calling thread and the shared thread team; those of a device submit work to its
 * queue.
 */
#ifndef HEADRACE_PROVIDERS_PROVIDER_H_
#define HEADRACE_PROVIDERS_PROVIDER_H_

#include "base/cpu.h"
#include "base/device_kernel.h"
#include "base/host_kernel.h"
#include "core/ir/program.h"

typedef struct hr_provider hr_provider;
typedef struct hr_prepared hr_prepared; /* a provider's own struct */

enum { HR_ALGORITHM_OWN = -1 };

struct hr_provider {
  const char *name;
  hr_dialect dialect; /* of the devices that it supports */
  bool channels_last; /* its convolutions run best on channels-last activations */
  bool one_format;    /* and it supports only nodes whose operands all have the same layout */
  /* It rounds factors of convolutions to fewer bits than they have. So a per-channel scale after one may be folded
   * into the weights, and epilogues need the rows' bits only up to the order of sums. */
  bool folds_scales;
  bool runs_anew;   /* each run may do other work than the one before: it is not part of a graph */
  bool is_apart;    /* its prepared objects do not refer to the node; else they have a copy of it for themselves */
  bool has_threads; /* run may call a library that opens parallel regions of its own */
  /* Bytes: its products of 16-bit matrices run best if rows begin at multiples of it, at any distance between rows; 0:
   * no preferred alignment. */
  size_t row_alignment;
  /* (optional; NULL: no) True if its products of 16-bit factors are so fast beside those of f32 that the latter should
   * be made of 16-bit parts (compiler/split_products.c). Called after open. */
  bool (*prefers_parts)(void);
  /* (optional; NULL: there is nothing to load) Loads the library; on failure UNAVAILABLE with the reason and the paths
   * tried. Called once, under a lock. */
  hr_status (*open)(void);
  /* (optional; NULL: it runs no library rows) OK if it runs this row, in some dtypes and sizes; NOT_FOUND for rows that
   * are not its own; else an error that names the missing part. Called at each record of such a row: a large library
   * may be loaded here, the first time. */
  hr_status (*has)(hr_op op);
  /* (optional; NULL: it may run any row) True if it runs some nodes of this row. The engine passes no others to the
   * members below, and lists no algorithms for them. */
  bool (*runs)(hr_op op);
  /* A node with epilogues is supported only if they are applied before the result is stored, at almost no cost. The
   * bits must be those that the rows of ops.def give after the contraction alone (a sum that overflowed to -infinity
   * may count as NaN). */
  bool (*supports)(const hr_program *program, const hr_node *node);
  /* (optional) Replaces all members below: the node as kernels in the device's dialect. Their arguments are the buffers
   * of inputs, then outputs, in the node's order (NULL for absent operands), their scalars the node's attributes. */
  hr_status (*write)(const hr_program *program, const hr_node *node, hr_device_source *out_source);
  /* `algorithm`: HR_ALGORITHM_OWN (the provider's own choice) for a supported node, or one of `algorithms`. `program`
   * is valid during the call, `node` as long as the prepared object, unless is_apart. *out_workspace_bytes: scratch
   * that run needs. `queue`, here and below: the result of the driver's native, with the device current on the calling
   * thread; NULL on the host. */
  hr_status (*prepare)(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                       hr_prepared **out_prepared, size_t *out_workspace_bytes);
  /* (optional) Gives a call that was prepared with the provider's own choice the numbers of another node of the same
   * structure (compiler/numbers.h), as if prepared for it; nothing runs it meanwhile. False: the provider doesn't
   * support the node, or has to prepare it, and the call may only be released. Lifetimes are those of prepare. */
  bool (*renumber)(hr_prepared *prepared, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes);
  /* (optional) True if a record will probably run by code that all calls of the provider share, and that the first
   * prepare makes if `generate` has not. The library may not be open. */
  bool (*expects)(hr_op op, const hr_view *inputs, const hr_view *output);
  /* (optional) Makes that code. Any thread calls it, after open. */
  void (*generate)(void);
  /* (optional; NULL: never) True if no other algorithm is worth timing beside this call: none is clearly faster, and
   * trying them would load their code. */
  bool (*is_settled)(const hr_prepared *prepared);
  /* (optional) Makes now what prepare left to a thread or to the first run. A failure is left to that run. */
  void (*make)(hr_prepared *prepared);
  /* (optional) Names of alternative algorithms, NULL-terminated: the engine times them if a program repeats
   * (engine/autotune.h). prepare is called for each of them, independent of supports. UNIMPLEMENTED: the node can't run
   * with that algorithm, or it is already the provider's own choice. With all of them epilogues leave the bits before
   * them unchanged. */
  const char *const *algorithms;
  /* (optional) The library's name and version, once it is open. */
  const char *(*version)(void);
  /* (optional; NULL: no) True if run uses the thread team; other work may run on any thread that waits for it. */
  bool (*needs_team)(const hr_prepared *prepared);
  /* (optional) Before each run: a number for the contents of each operand, in the order of args. An operand with the
   * same number as at an earlier run holds the same bytes, so data derived from it may be reused; 0: unknown. */
  void (*stamp)(hr_prepared *prepared, const uint64_t *stamps);
  /* (optional) The operand from whose contents run may cache data (runtime/cached_weights.h), by its stamp; -1: none.
   */
  int (*keeps)(const hr_prepared *prepared);
  /* args: addresses of the buffers of inputs, then outputs, in the node's order (NULL for absent operands; scalars: of
   * a const hr_scalar), then of the node's attribute scalars. The operand's own offset is not included. workspace is
   * 64-byte aligned. */
  hr_status (*run)(hr_prepared *prepared, void *const *args, void *workspace, void *queue);
  /* (optional; NULL: no) True if the call hands its result over: all elements of its buffer, in their order, of f32. */
  bool (*hands_over)(const hr_prepared *prepared);
  /* (optional) run, with the taker's kernel run on the result, a part of it as soon as it is stored. False: not
   * possible in the kernel's units, and nothing was done. */
  bool (*run_for)(hr_prepared *prepared, void *const *args, void *workspace, const hr_host_taker *taker);
  /* (optional; NULL: about a kilobyte) Bytes of host memory of a prepared object. */
  size_t (*footprint)(const hr_prepared *prepared);
  void (*release)(hr_prepared *prepared);
  /* (optional) Frees what the process keeps to prepare nodes sooner. The library may not have been opened. */
  void (*forget)(void);
};

HR_MUST_USE static inline hr_status hr__provider_open(const hr_provider *provider) {
  return provider->open != NULL ? provider->open() : HR_OK;
}

/* A provider's `runs`: contractions alone; of these products of matrices, convolutions and their gradients for data, or
 * gradients for weights. */
bool hr__provider_runs_contractions(hr_op op);
bool hr__provider_runs_products(hr_op op);
bool hr__provider_runs_windows(hr_op op);
bool hr__provider_runs_weight_gradients(hr_op op);
/* A prepared object in one block of the host allocator: a copy of the first `bytes`. `failure`: what RESOURCE_EXHAUSTED
 * says. */
HR_MUST_USE hr_status hr__provider_keep(const hr_prepared *prepared, size_t bytes, const char *failure,
                                        hr_prepared **out_prepared);
/* A provider's `release` of a prepared object that is one block of the host allocator. */
void hr__provider_release(hr_prepared *prepared);

/* Calls `forget` of all providers. */
void hr__providers_forget(void);

/* All providers, in order of preference; NULL-terminated. At most HR_PROVIDERS_MAX, checked when providers.c is
 * compiled. */
enum { HR_PROVIDERS_MAX = 32 };
/* If providers are compiled for several levels of the processor, those of this processor's level. */
const hr_provider *const *hr_providers(void);

/* Providers compiled for each level of the processor; then those that call a function of the caller, write texts or
 * call a device's library. */
#define HR_CPU_PROVIDERS(X) \
  X(gemv)                   \
  X(packed)                 \
  X(batch_lanes)            \
  X(few_pixels)             \
  X(winograd)               \
  X(winograd_weights)       \
  X(batch_lane_weights)     \
  X(pixels)                 \
  X(gradients)              \
  X(direct)                 \
  X(direct_weights) X(attention) X(recurrent) X(sgemm) X(batched_products) X(onednn) X(host) X(lapack) X(integers)
#define HR_DEVICE_PROVIDERS(X) \
  X(device_closures)           \
  X(functions)                 \
  X(function_texts)            \
  X(flash) X(layers) X(small_product) X(taps) X(small_attention) X(images) X(matrices) X(cublaslt) X(cudnn)

#define HR__DECLARE(name) extern const hr_provider HR_CPU_NAME(hr__##name##_provider);
HR_CPU_PROVIDERS(HR__DECLARE)
#undef HR__DECLARE
#define HR__DECLARE(name) extern const hr_provider hr__##name##_provider;
HR_DEVICE_PROVIDERS(HR__DECLARE)
#undef HR__DECLARE

#endif
