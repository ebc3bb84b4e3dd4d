/* algorithms.h: who runs what is not a loop, and which way.
 *
 * A node may have several ways to run: each provider that takes it has its own, and may offer others by name
 * (provider.h). What is taken is what measurement chose in an earlier process (tuning_cache.h), else the first
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

enum { HR_ALGORITHMS_MAX = 32 }; /* of a node, beyond all that a dialect's providers offer (provider_list_test.c) */

typedef struct hr_algorithm {
  const hr_provider *provider;
  int number; /* among the provider's ways; HR_ALGORITHM_OWN: as it thinks best */
} hr_algorithm;

/* A node that is ready to run. */
typedef struct hr_ready {
  hr_algorithm algorithm;
  hr_prepared *prepared;
  size_t workspace_bytes;
  hr_host_fallback *fallback; /* NULL: the way is the device's own */
} hr_ready;

/* The providers of a dialect that can be had, in order of preference, NULL-terminated; opens them when it is first
 * asked. With those of a device are the host's that run library rows: such a node runs there where nobody else takes it
 * (host_fallback.h). */
const hr_provider *const *hr__algorithms_providers(hr_dialect dialect);
/* Prepares the way of this name; false when there is none, or it can't be taken. */
bool hr__algorithms_prepare_called(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                                   const hr_node *node, const char *name, hr_ready *out_ready);
/* An hr_target's keeps; ctx: the hr_device. Epilogues don't take a contraction away from the provider that is best at
 * it. */
bool hr__algorithms_keep(void *ctx, const hr_program *program, const hr_node *node);
/* Whether some library of the device runs a library row; UNIMPLEMENTED says why not. */
HR_MUST_USE hr_status hr__library_check(const hr_device *device, hr_op op);
/* How the dialect's providers like what they work on to lie: sets channels_last, one_format and row_alignment. */
void hr__algorithms_layouts(hr_dialect dialect, hr_target *target);

/* The ways that may be there, the one that is taken without measurement first; their number. */
int hr__algorithms_list(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                        const hr_node *node, hr_algorithm algorithms[HR_ALGORITHMS_MAX]);
/* "onednn", or "onednn product". */
void hr__algorithm_name(const hr_algorithm *algorithm, hr_text *out_name);
bool hr__algorithm_is_called(const hr_algorithm *algorithm, const char *name);
/* What the times of a node's ways depend on: itself, but for its epilogues, the device and the providers. */
void hr__algorithms_key(const hr_provider *const *providers, const hr_device *device, const hr_program *program,
                        const hr_node *node, hr_text *out_key);
HR_MUST_USE hr_status hr__algorithm_prepare(hr_device *device, const hr_program *program, const hr_node *node,
                                            const hr_algorithm *algorithm, hr_ready *out_ready);
/* `choice` may be NULL. Where the provider writes its kernels, nothing is prepared. */
HR_MUST_USE hr_status hr__algorithms_prepare(hr_device *device, const hr_provider *const *providers,
                                             const hr_program *program, const hr_node *node,
                                             const hr_tuning_entry *tuning_entry, hr_ready *out_ready);
/* `queue`: what the driver's native gave. `stamps`: contents of the operands, in the order of args (provider.h). */
HR_MUST_USE hr_status hr__ready_run(hr_device *device, const hr_ready *ready, void *const *args, const uint64_t *stamps,
                                    void *workspace, void *queue);
void hr__ready_fini(hr_ready *ready);

#endif
