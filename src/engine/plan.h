/* plan.h: the compiled program of a key.
 *
 *   key --decode, compile--> plan: steps (kernel forms, nodes), bindings (a place for each buffer), size of the arena
 *   plan --instantiate--> instance: prepared kernels and libraries, replay, times, tuning (instance.h)
 *
 * A plan contains no addresses, and depends on a kind of devices, not on a device. So all streams, threads and devices
 * of that kind share it: it is compiled once, and lives as long as an instance of it. On a host a plan is *settled*
 * once an instance is made: it keeps what runs read, and the rest packed (packed_schedule.h). Another stream that meets
 * the key gets a plan that is unpacked from it, not compiled. A copy of a general plan is one instance's alone: copying
 * again costs less than the kernel forms that another instance would need.
 * Threads: any; one lock for finding and releasing.
 */
#ifndef HEADRACE_ENGINE_PLAN_H_
#define HEADRACE_ENGINE_PLAN_H_

#include "compiler/describe.h"
#include "compiler/numbers.h"
#include "core/ir/packed_program.h"
#include "engine/bindings.h"
#include "engine/folded_key.h"
#include "engine/general_plan.h"
#include "engine/index_source.h"
#include "engine/key_changes.h"
#include "engine/packed_schedule.h"
#include "engine/step_args.h"
#include "engine/trace.h"
#include "runtime/device.h"

/* Devices that run the same plans: those of a driver with these properties. */
typedef struct hr_device_kind {
  const hr_driver *driver;
  hr_device_properties properties;
} hr_device_kind;

typedef struct hr_plan hr_plan;
struct hr_plan {
  hr_key key;                 /* its own copy, with its hash; without words and numbers of buffers if there are .. */
  hr_key_changes key_changes; /* .. changes: those of the model's key */
  hr_folded_key folded;       /* .. or of a settled plan that was compiled: also the shapes; else both are none */
  hr_key model_key;           /* of such a plan if it is a model: with all lists, which .. */
  uint64_t *model_words;      /* .. begin here */
  void *key_block;            /* memory of the key's lists */
  hr_plan *model;             /* NULL, or the plan of which this one is a copy */
  hr_device_kind device_kind;
  hr_schedule schedule; /* after hr__plan_settle without kernel forms, and without steps, nodes and lists if it is .. */
  hr_packed_program *packed;      /* .. packed: the program, then read through .. */
  hr_packed_schedule compiled;    /* of a plan that was compiled: the packed schedule, which owns `packed` */
  hr_unpacked_schedule *unpacked; /* the same unpacked if it is a model; set before it is one */
  hr_bindings *bindings;          /* .. these; else both are NULL */
  hr_step_cost *costs;            /* of each step; after hr__plan_settle NULL until hr__plan_costs, and instead .. */
  uint8_t *packed_costs;          /* .. these (step_costs.h) */
  size_t packed_cost_bytes;
  hr_index_source *indices;  /* of each step that is a check; NULL after hr__plan_settle */
  const hr_narrow *writes;   /* see hr__plan_write */
  hr_narrow *own_writes;     /* that list, if it is not the model's */
  hr_narrow *args, *scalars; /* of a settled plan that was compiled: those of its steps (step_args.h) */
  int64_t bytes, flops;      /* of all steps: read and written; arithmetic */
  size_t footprint;          /* bytes of host memory, about */
  bool was_refused;          /* its structure is known, but a guard or a library refused it: it was compiled */
  bool is_general;           /* a copy of another one with other numbers (general_plan.h) */
  bool is_settled;           /* see hr__plan_settle */
  bool will_settle;          /* its only instance is being made; it is not found until it is settled */
  bool takes_memory;         /* a result takes over the memory of another buffer (growth.h) */
  /* plan.c's own */
  struct plans *owner;
  int reference_count;
  bool is_shared;
  bool is_waiting; /* to be learned from */
  uint64_t name;   /* under which it waits */
  hr_plan *next_same;
  bool is_compact; /* the schedule was made so: cells repeat in it */
};

/* The plan of a key for devices like this one: shared, or compiled now. The caller owns a reference. `arguments`: the
 * scalars, for a dump of the compiled program. */
HR_MUST_USE hr_status hr__plan_acquire(const hr_key *key, hr_device *device, const hr_scalar *arguments,
                                       hr_plan **out_plan, bool *out_is_new);
void hr__plan_release(hr_plan *plan); /* NULL: nothing */
/* Frees what no run reads, after the only instance of a general plan is prepared: kernel forms, costs, and those words
 * of the key that are the model's. Packs the program, which autotuning and descriptions read, unless it has calls of
 * functions. */
void hr__plan_settle(hr_plan *plan);
/* The same for a plan that was compiled, unless another instance is made of it or it is a model. `kernels`: of each
 * step of its instance, NULL if it is none. `args`, `scalars`: of its steps; a settled plan takes them over. */
void hr__plan_settle_compiled(hr_plan *plan, hr_cached_kernel *const *kernels, hr_narrow *args, hr_narrow *scalars);
/* The costs of the steps, for the thread that runs the plan's instance if it is settled; NULL: no memory. */
const hr_step_cost *hr__plan_costs(hr_plan *plan);
/* True if a key is the plan's, word for word. */
bool hr__plan_fits(const hr_plan *plan, const hr_key *key);
/* The plan's records as a program in stream form; *out_words, which the caller frees after it, may have its numbers. */
HR_MUST_USE hr_status hr__plan_decode_key(const hr_plan *plan, hr_program *out_program, uint64_t **out_words);

/* ---- plans of a known structure (general_plan.h) ---- */

/* The model and the numbers for a key of a known structure, if they are found; the caller owns a reference to the
 * model. `skipped`, `wants_all`: of hr__generals_find. */
hr_general_find hr__plan_find_model(hr_key *key, hr_device *device, int skipped, bool wants_all,
                                    hr_general_numbers *out_numbers, hr_plan **out_model);
/* A copy of the model with all of these numbers, which nothing shares; NULL: the key has to be compiled. `out_places`:
 * of the numbers that vary, or NULL. */
hr_plan *hr__plan_create_general(const hr_key *key, hr_device *device, hr_plan *model,
                                 const hr_general_numbers *numbers, hr_number_places *out_places);
/* Values of a general plan's polynomials, and the costs that are such values. */
typedef struct hr_plan_numbers {
  const int64_t *values;
  const bool *is_new;               /* each value: it differs from the last one */
  const hr_number_terms *estimates; /* the costs that vary: hr_general_numbers */
  const bool *is_counted;           /* each step: hr__plan_find_counted */
} hr_plan_numbers;

/* Replaces the key, and the numbers with new values, of such a copy, while nothing runs it. *out_changed: of each part
 * of the schedule (hr_schedule_part_count). Of changed library calls the caller makes sure that libraries still run
 * them. After a failure the plan is useless. */
HR_MUST_USE hr_status hr__plan_renumber(hr_plan *plan, const hr_key *key, hr_device *device, hr_number_places *places,
                                        const hr_plan_numbers *numbers, bool *out_changed);
/* Of each step whether its costs have to be counted, as they are no polynomials; the caller frees it. NULL: no memory.
 */
bool *hr__plan_find_counted(const hr_plan *plan, const hr_number_terms *estimates);

/* OK if a library still runs the node of a library call. */
HR_MUST_USE hr_status hr__plan_check_kept(const hr_plan *plan, int step, hr_device *device);

/* Plans that the current context makes from now on keep all nodes and each step's list of them, for tools that show
 * them. Each is compiled. */
void hr__plans_keep_nodes(void);

/* A buffer of the key that steps write, and the last one of them. */
typedef struct hr_plan_write {
  uint32_t local;
  int last_step;
} hr_plan_write;

/* Most of what a program of inference uses are weights, so each run goes through the written buffers alone. */
static inline size_t hr__plan_write_count(const hr_plan *plan) {
  return plan->writes->count / 2;
}
/* Number `i` of them, by their numbers in the key. */
static inline hr_plan_write hr__plan_write(const hr_plan *plan, size_t i) {
  return (hr_plan_write){hr_narrow_at(plan->writes, 2 * i), (int)hr_narrow_at(plan->writes, 2 * i + 1)};
}
/* True if steps write buffer `local` of the key. */
bool hr__plan_writes(const hr_plan *plan, uint32_t local);
/* The word of buffer `local` of the key (hr_shape_word). */
static inline uint64_t hr__plan_shape(const hr_plan *plan, size_t local) {
  return plan->folded.words != NULL ? hr__folded_words_at(plan->folded.shapes, local) : plan->key.shapes[local];
}
static inline hr_place_kind hr__plan_place(const hr_plan *plan, size_t local) {
  return plan->bindings != NULL ? hr__bindings_kind(plan->bindings, local) : plan->schedule.places[local].kind;
}
/* Buffer `local` as the program sees it: its room, layout and what it takes over. Its bytes, if there is any of these:
 * they may be more than the key's. */
static inline const hr_program_buffer *hr__plan_buffer(const hr_plan *plan, size_t local) {
  return plan->bindings != NULL ? hr__bindings_buffer(plan->bindings, local) : &plan->schedule.program.buffers[local];
}
/* True if buffer `local` of the key has to have memory. */
static inline bool hr__plan_needs(const hr_plan *plan, size_t local) {
  return hr__plan_place(plan, local) == HR_PLACE_BOUND;
}
/* True if buffer `local` of the key has to be in its default layout before anything can be scheduled. */
static inline bool hr__plan_refuses(const hr_plan *plan, size_t local) {
  return hr__plan_buffer(plan, local)->is_refused;
}
/* The layout of buffer `local` after a run. */
static inline uint64_t hr__plan_layout(const hr_plan *plan, size_t local) {
  const hr_program_buffer *buffer = hr__plan_buffer(plan, local);
  return buffer->rows != 0 ? buffer->rows : buffer->layout;
}
#endif
