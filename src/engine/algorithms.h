/* algorithms.h: the provider and the algorithm that run a node which is not a loop.
 *
 * A node may have several algorithms: each provider that accepts it has one of its own, and may list others by name
 * (provider.h). The algorithm that an earlier process measured as fastest runs (tuning_cache.h), else the first
 * provider's own.
 */
#ifndef HEADRACE_ENGINE_ALGORITHMS_H_
#define HEADRACE_ENGINE_ALGORITHMS_H_

#include "base/text.h"
#include "compiler/compile.h"
#include "engine/host_fallback.h"
#include "engine/tuning_cache.h"
#include "providers/provider.h"
#include "runtime/device.h"

enum { HR_ALGORITHMS_MAX = 32 }; /* of a node; more than a dialect's providers list (provider_list_test.c) */

typedef struct hr_algorithm {
  const hr_provider *provider;
  int number; /* among the provider's algorithms; HR_ALGORITHM_OWN: the provider's default */
} hr_algorithm;

/* A node that is ready to run. */
typedef struct hr_ready {
  hr_algorithm algorithm;
  hr_prepared *prepared;
  hr_node *node; /* a copy that `prepared` refers to, in one block; NULL: it refers to none */
  size_t workspace_bytes;
  hr_host_fallback *fallback; /* NULL: the algorithm runs on the device itself */
} hr_ready;

/* The available providers of a dialect, in order of preference, NULL-terminated; the first call opens them. Those of a
 * device include the host's providers of library rows, for nodes that no other provider accepts (host_fallback.h). */
const hr_provider *const *hr__algorithms_providers(hr_dialect dialect);
/* Those of them that may run a row's nodes, in the same order: the list that nodes of the row are prepared and timed
 * with. Each row's is made once; without memory for it, all are listed. */
const hr_provider *const *hr__algorithms_providers_of(hr_dialect dialect, hr_op op);
/* Opens a host's providers on a thread of its own, or at once if work has one thread; done once, in the default
 * context. A failure is met again, and reported, where they are needed. */
void hr__algorithms_open_early(const hr_device *device);
/* A contraction is recorded: if a library will generate code for all such calls, a thread begins with it. True: later
 * records need not be shown. */
bool hr__algorithms_expect(const hr_device *device, hr_op op, const hr_view *inputs, const hr_view *output);
/* Waits for those threads. */
void hr__algorithms_wait(void);
/* Prepares the algorithm of this name; false if there is none, or the node can't use it. */
bool hr__algorithms_prepare_called(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                                   const hr_node *node, const char *name, hr_ready *out_ready);
/* An hr_target's keeps; ctx: the hr_device. Epilogues don't move a contraction away from the provider that is best at
 * it. */
bool hr__algorithms_keep(void *ctx, const hr_program *program, const hr_node *node);
/* An hr_target's may_keep. */
bool hr__algorithms_may_keep(void *ctx, hr_op op);
/* OK if some library of the device runs a library row; UNIMPLEMENTED with the reason otherwise. */
HR_MUST_USE hr_status hr__library_check(const hr_device *device, hr_op op);
/* The forms of nodes that the device's providers prefer: sets channels_last, one_format, folds_scales, row_alignment
 * and split_bytes. */
void hr__algorithms_layouts(const hr_device *device, hr_target *target);

/* Lists the candidate algorithms, the default one first; returns their number. */
int hr__algorithms_list(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                        const hr_node *node, hr_algorithm algorithms[HR_ALGORITHMS_MAX]);
/* "onednn", or "onednn product". */
void hr__algorithm_name(const hr_algorithm *algorithm, hr_text *out_name);
bool hr__algorithm_is_called(const hr_algorithm *algorithm, const char *name);
/* The key of a node's times: the node without its epilogues, the device and the providers. */
void hr__algorithms_key(const hr_provider *const *providers, const hr_device *device, const hr_program *program,
                        const hr_node *node, hr_text *out_key);
/* The tuning-cache entry of that key, found by a hash of what the key names; NULL: see hr__tuning_entry_find. */
hr_tuning_entry *hr__algorithms_find_entry(const hr_provider *const *providers, const hr_device *device,
                                           const hr_program *program, const hr_node *node);
HR_MUST_USE hr_status hr__algorithm_prepare(hr_device *device, const hr_program *program, const hr_node *node,
                                            const hr_algorithm *algorithm, hr_ready *out_ready);
/* `tuning_entry` may be NULL. Nothing is prepared for a provider that writes its kernels. */
HR_MUST_USE hr_status hr__algorithms_prepare(hr_device *device, const hr_provider *const *providers,
                                             const hr_program *program, const hr_node *node,
                                             const hr_tuning_entry *tuning_entry, hr_ready *out_ready);
/* Gives a call of the host, which nothing runs, the numbers of another node of the same structure. False: it has to be
 * released, and the node prepared, since another algorithm is chosen or the provider can't renumber it. After true
 * hr__algorithms_keep holds. */
bool hr__ready_renumber(const hr_provider *const *providers, const hr_program *program, const hr_node *node,
                        const hr_tuning_entry *tuning_entry, hr_ready *ready);
/* `impl`: the driver's, of the lane. `queue`: the result of its `native`. `stamps`: contents of the operands, in the
 * order of args (provider.h). */
HR_MUST_USE hr_status hr__ready_run(const hr_driver *driver, void *impl, const hr_ready *ready, void *const *args,
                                    const uint64_t *stamps, void *workspace, void *queue);
void hr__ready_fini(hr_ready *ready);

#endif
