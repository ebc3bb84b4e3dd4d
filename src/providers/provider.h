/* provider.h: library kernels, offered through one table each.
 *
 * A provider answers for contractions, and for composites that it runs better as a whole than their lowering:
 * `supports` says whether it takes a node, `prepare` chooses an algorithm and makes whatever can be made before
 * addresses are known, `run` executes. A repeated program pays `run` alone. What nobody takes is lowered. A provider
 * may also write a text in the device's dialect instead, which the engine compiles, keeps and launches like the kernels
 * that it generates.
 * Providers of host memory run on the calling thread and the shared thread team; those of a device give work to its
 * queue.
 */
#ifndef HEADRACE_PROVIDERS_PROVIDER_H_
#define HEADRACE_PROVIDERS_PROVIDER_H_

#include "base/cpu.h"
#include "base/device_kernel.h"
#include "core/ir/program.h"

typedef struct hr_provider hr_provider;
typedef struct hr_prepared hr_prepared; /* a provider's own struct */

enum { HR_ALGORITHM_OWN = -1 };

struct hr_provider {
  const char *name;
  hr_dialect dialect; /* of the devices that it is for */
  bool channels_last; /* its convolutions run best on activations whose channels are neighbours */
  bool one_format;    /* and takes those alone whose operands all lie alike */
  /* It rounds factors of convolutions to fewer bits than they have: a scale of each channel behind one may go into the
   * weights, and epilogues need to have the rows' bits only up to the order of sums. */
  bool folds_scales;
  bool has_threads; /* run may call a library that opens parallel regions of its own */
  /* Bytes: its products of 16-bit matrices run best where rows begin at multiples of it, and take rows at any distance;
   * 0: no matter where. */
  size_t row_alignment;
  /* (optional; NULL: there is nothing to load) Loads the library; UNAVAILABLE with the reason and the paths tried when
   * it can't be had. Called once, under a lock. */
  hr_status (*open)(void);
  /* (optional; NULL: it runs no library rows) Whether it runs this one, in some dtypes and sizes: OK, NOT_FOUND where
   * the row is not its own, or what is missing. Asked at each record of such a row: a large library may be loaded here,
   * the first time. */
  hr_status (*has)(hr_op op);
  /* A node with epilogues is taken only if they are made on the way to memory, at about no cost, with the bits that the
   * rows of ops.def give after the contraction alone (a sum that overflowed to -infinity may count as NaN). */
  bool (*supports)(const hr_program *program, const hr_node *node);
  /* (optional) Instead of all members below: the node as kernels in the device's dialect. Their arguments are the
   * buffers of inputs, then outputs, in the node's order (NULL for absent operands), their scalars the node's
   * attributes. */
  hr_status (*write)(const hr_program *program, const hr_node *node, hr_device_source *out_source);
  /* `way`: HR_ALGORITHM_OWN, the one that the provider thinks best, for a node that it supports, or one of `ways`.
   * `node` and `program` stay valid as long as the prepared object. *out_workspace_bytes: scratch that run needs.
   * `queue`, here and below: what the driver's native gave, with the device current on the calling thread; NULL on the
   * host. */
  hr_status (*prepare)(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                       hr_prepared **out_prepared, size_t *out_workspace_bytes);
  /* (optional) Ways to run a node beside its own, by name, NULL-terminated: the engine times them where a program
   * repeats (engine/autotune.h). prepare is asked for each of them, whatever supports says; UNIMPLEMENTED: the node
   * can't be run in that way, or its own is that one. In all of them epilogues change nothing about the bits before
   * them. */
  const char *const *algorithms;
  /* (optional) Names the library and its version, once it is open. */
  const char *(*version)(void);
  /* (optional; NULL: no) Whether run wants the thread team; work that does not may run on whatever thread waits for it.
   */
  bool (*needs_team)(const hr_prepared *prepared);
  /* (optional) Before each run: a number for the contents of each operand, in the order of args. An operand whose
   * number is the same as at an earlier run holds the same bytes; 0: unknown. What was derived from it then may be used
   * again. */
  void (*stamp)(hr_prepared *prepared, const uint64_t *stamps);
  /* (optional) The operand of whose contents run may keep something (runtime/cached_weights.h), by its stamp; -1: none.
   */
  int (*keeps)(const hr_prepared *prepared);
  /* args: addresses of the buffers of inputs, then outputs, in the node's order (NULL for absent operands; scalars: of
   * a const hr_scalar), then of the node's attribute scalars; an operand's own offset is still to be added. workspace
   * is 64-byte aligned. */
  hr_status (*run)(hr_prepared *prepared, void *const *args, void *workspace, void *queue);
  void (*release)(hr_prepared *prepared);
};

HR_MUST_USE static inline hr_status hr__provider_open(const hr_provider *provider) {
  return provider->open != NULL ? provider->open() : HR_OK;
}

/* All providers, in order of preference; NULL-terminated. There are at most HR_PROVIDERS_MAX, or providers.c does not
 * compile. */
enum { HR_PROVIDERS_MAX = 32 };
/* They are those of the processor's level, where there are several. */
const hr_provider *const *hr_providers(void);

/* Those compiled for each level of the processor; and those that write texts or call a device's library. */
#define HR_CPU_PROVIDERS(X) \
  X(gemv)                   \
  X(batch_lanes) X(winograd) X(winograd_weights) X(gradients) X(attention) X(onednn) X(host) X(lapack) X(integers)
#define HR_DEVICE_PROVIDERS(X) \
  X(flash) X(small_product) X(taps) X(small_attention) X(images) X(matrices) X(cublaslt) X(cudnn)

#define HR__DECLARE(name) extern const hr_provider HR_CPU_NAME(hr__##name##_provider);
HR_CPU_PROVIDERS(HR__DECLARE)
#undef HR__DECLARE
#define HR__DECLARE(name) extern const hr_provider hr__##name##_provider;
HR_DEVICE_PROVIDERS(HR__DECLARE)
#undef HR__DECLARE

#endif
