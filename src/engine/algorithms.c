#include "engine/algorithms.h"

#include <stdatomic.h>
#include <string.h>

#include "base/arena.h"
#include "base/context.h"
#include "base/env.h"
#include "base/gpu_model.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "core/ops/op.h"

/* ---- providers ---- */

enum { DIALECTS = HR_DIALECT_CUDA + 1 };
enum { PARTS_SHARE = 160 /* of a device's memory for parts of a product at a time */ };

/* A context's. */
typedef struct provider_lists {
  hr_mutex mutex;
  const hr_provider *open[DIALECTS][HR_PROVIDERS_MAX + 1];     /* the available ones; NULL-terminated */
  atomic_bool are_open[DIALECTS];                              /* set when its list is complete */
  const hr_provider *const *_Atomic of[DIALECTS][HR_OP_COUNT]; /* those that may run a row; NULL: not listed yet */
  hr_arena arena;                                              /* of these lists */
  bool is_known[HR_OP_COUNT];                                  /* a library has prepared such an operation */
  hr_thread opener;                                            /* opens the host's before they are needed */
  bool opens_early;
  hr_thread generator; /* makes code of libraries before it is needed */
  hr_mutex generating; /* held meanwhile */
  bool has_generated, is_stopped;
} provider_lists;

static void init_lists(void *part) {
  provider_lists *lists = part;
  hr_mutex_init(&lists->mutex);
  hr_mutex_init(&lists->generating);
}

/* Two may wait: only one of them takes the threads. */
static void stop_lists(void *part) {
  provider_lists *lists = part;
  hr_mutex_lock(&lists->mutex);
  hr_thread opener = lists->opener, generator = lists->generator;
  lists->opener = lists->generator = (hr_thread){0};
  lists->is_stopped = true;
  hr_mutex_unlock(&lists->mutex);
  hr_thread_join(&opener);
  hr_thread_join(&generator);
}

static void fini_lists(void *part) {
  provider_lists *lists = part;
  hr_arena_fini(&lists->arena);
  hr_mutex_fini(&lists->mutex);
  hr_mutex_fini(&lists->generating);
}

/* A child of fork gets no half-opened library and no half-made code, and has no such thread. */
static void begin_fork(void *part) {
  provider_lists *lists = part;
  hr_mutex_lock(&lists->mutex);
  hr_mutex_lock(&lists->generating);
}

static void end_fork(void *part, bool is_child) {
  provider_lists *lists = part;
  if (is_child) {
    lists->opener = lists->generator = (hr_thread){0};
  }
  hr_mutex_unlock(&lists->generating);
  hr_mutex_unlock(&lists->mutex);
}

static provider_lists *lists_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(provider_lists),
                                       .init = init_lists,
                                       .stop = stop_lists,
                                       .fini = fini_lists,
                                       .begin_fork = begin_fork,
                                       .end_fork = end_fork};
  return hr__context_part(context, HR_CONTEXT_PROVIDERS, &kind);
}

static provider_lists *own_lists(void) {
  return lists_of(hr__context());
}

const hr_provider *const *hr__algorithms_providers(hr_dialect dialect) {
  provider_lists *lists = own_lists();
  if (atomic_load_explicit(&lists->are_open[dialect], memory_order_acquire)) {
    return lists->open[dialect];
  }
  hr_mutex_lock(&lists->mutex);
  int count = 0;
  bool is_first = !lists->are_open[dialect];
  for (int i = 0; is_first && hr_providers()[i] != NULL; ++i) {
    bool runs_rows = hr_providers()[i]->dialect == HR_DIALECT_HOST && hr_providers()[i]->has != NULL;
    if (hr_providers()[i]->dialect != dialect && !runs_rows) {
      continue;
    }
    hr_status status = hr__provider_open(hr_providers()[i]);
    if (status == HR_OK) {
      lists->open[dialect][count++] = hr_providers()[i];
    }
    hr_log(HR_LOG_DEVICE, "provider %s: %s", hr_providers()[i]->name, hr_status_message(status));
    hr_status_ignore(status);
  }
  atomic_store_explicit(&lists->are_open[dialect], true, memory_order_release);
  hr_mutex_unlock(&lists->mutex);
  if (is_first) {
    hr__contexts_stop_at_exit();
  }
  return lists->open[dialect];
}

static bool may_run(const hr_provider *provider, hr_op op) {
  return provider->runs == NULL || provider->runs(op);
}

/* NULL: there is no memory for the list. The lists are locked. */
static const hr_provider *const *list_of(provider_lists *lists, const hr_provider *const *all, hr_op op) {
  size_t count = 0;
  for (int i = 0; all[i] != NULL; ++i) {
    count += may_run(all[i], op);
  }
  const hr_provider **list = hr_arena_alloc(&lists->arena, (count + 1) * sizeof(hr_provider *));
  const hr_provider **end = list;
  for (int i = 0; list != NULL && all[i] != NULL; ++i) {
    if (may_run(all[i], op)) {
      *end++ = all[i];
    }
  }
  if (list != NULL) {
    *end = NULL;
  }
  return list;
}

const hr_provider *const *hr__algorithms_providers_of(hr_dialect dialect, hr_op op) {
  provider_lists *lists = own_lists();
  const hr_provider *const *list = atomic_load_explicit(&lists->of[dialect][op], memory_order_acquire);
  if (list != NULL) {
    return list;
  }
  const hr_provider *const *all = hr__algorithms_providers(dialect);
  hr_mutex_lock(&lists->mutex);
  list = atomic_load_explicit(&lists->of[dialect][op], memory_order_relaxed);
  if (list == NULL) {
    list = list_of(lists, all, op);
    atomic_store_explicit(&lists->of[dialect][op], list, memory_order_release);
  }
  hr_mutex_unlock(&lists->mutex);
  return list != NULL ? list : all;
}

/* ---- opening them early ---- */

/* A process whose work has one thread starts no other one: while it has a single thread, the C library's locks and
 * memory need no atomic operations. */
static bool may_have_threads(void) {
  return hr_core_count() > 1 && hr_thread_count() > 1;
}

static void open_host_providers(void *arg) {
  (void)arg;
  (void)hr__algorithms_providers(HR_DIALECT_HOST);
}

void hr__algorithms_open_early(const hr_device *device) {
  provider_lists *lists = own_lists();
  hr_mutex_lock(&lists->mutex);
  bool is_wanted = !lists->opens_early && !lists->are_open[HR_DIALECT_HOST] && device->properties.is_host &&
                   device->properties.has_contents && hr__context() == &hr__context_first;
  lists->opens_early |= is_wanted;
  hr_mutex_unlock(&lists->mutex);
  if (is_wanted && !may_have_threads()) {
    open_host_providers(NULL);
  } else if (is_wanted) {
    hr__contexts_stop_at_exit();
    hr_mutex_lock(&lists->mutex);
    hr_status_ignore(hr_thread_start("headrace-open", open_host_providers, NULL, &lists->opener));
    hr_mutex_unlock(&lists->mutex);
  }
}

/* ---- code that libraries generate once ---- */

static void generate(void *arg) {
  const hr_provider *provider = arg;
  const hr_provider *const *open = hr__algorithms_providers(HR_DIALECT_HOST);
  while (*open != NULL && *open != provider) {
    ++open;
  }
  if (*open != NULL) {
    hr_mutex_lock(&own_lists()->generating);
    provider->generate();
    hr_mutex_unlock(&own_lists()->generating);
  }
}

/* The code takes tens of milliseconds. The thread needs a core of its own, and a caller that waits for it before exit:
 * those that open libraries early. If work has one thread, that one generates the code. */
static void begin_generating(const hr_provider *provider) {
  provider_lists *lists = own_lists();
  hr_mutex_lock(&lists->mutex);
  bool begins = !lists->has_generated && !lists->is_stopped && lists->opens_early && hr_core_count() > 1;
  bool has_thread = begins && may_have_threads();
  lists->has_generated |= begins;
  if (has_thread) {
    hr_status_ignore(hr_thread_start("headrace-code", generate, (void *)provider, &lists->generator));
  }
  hr_mutex_unlock(&lists->mutex);
  if (begins && !has_thread) {
    generate((void *)provider);
  }
}

bool hr__algorithms_expect(const hr_device *device, hr_op op, const hr_view *inputs, const hr_view *output) {
  if (!device->properties.is_host || !device->properties.has_contents || hr__context() != &hr__context_first) {
    return true;
  }
  for (const hr_provider *const *p = hr_providers(); *p != NULL; ++p) {
    if ((*p)->expects != NULL && (*p)->expects(op, inputs, output)) {
      begin_generating(*p);
      return true;
    }
  }
  return false;
}

void hr__algorithms_wait(void) {
  stop_lists(lists_of(&hr__context_first));
}

/* ---- libraries and exit ---- */

/* Called when a library has prepared an operation. At exit the library frees its objects for the first operation of a
 * kind (memory for generated code, for example) before those made when it was opened. The devices must be closed before
 * that. */
static void outlive_library(hr_op op) {
  provider_lists *lists = own_lists();
  hr_mutex_lock(&lists->mutex);
  bool is_first = !lists->is_known[op];
  lists->is_known[op] = true;
  hr_mutex_unlock(&lists->mutex);
  if (is_first) {
    hr__contexts_stop_at_exit();
  }
}

/* True if a library runs the node with its epilogues; the device is current on this thread. */
static bool asks_library(hr_device *device, const hr_provider *provider, const hr_program *program,
                         const hr_node *node) {
  hr_status entered = hr__device_enter(device);
  if (entered != HR_OK) {
    hr_status_ignore(entered);
    return false;
  }
  bool supports = provider->supports(program, node);
  hr__device_leave(device);
  return supports;
}

bool hr__algorithms_keep(void *ctx, const hr_program *program, const hr_node *node) {
  hr_device *device = ctx;
  const hr_provider *const *providers = hr__algorithms_providers_of(device->driver->dialect, node->op);
  hr_node plain = *node;
  plain.epilogue_count = 0;
  for (int i = 0; providers[i] != NULL; ++i) {
    if (providers[i]->supports(program, &plain)) {
      return node->epilogue_count == 0 || asks_library(device, providers[i], program, node);
    }
  }
  return false;
}

bool hr__algorithms_may_keep(void *ctx, hr_op op) {
  const hr_device *device = ctx;
  return hr__algorithms_providers_of(device->driver->dialect, op)[0] != NULL;
}

hr_status hr__library_check(const hr_device *device, hr_op op) {
  const hr_provider *const *providers = hr__algorithms_providers(device->driver->dialect);
  hr_status why = HR_OK;
  for (int i = 0; providers[i] != NULL; ++i) {
    const hr_provider *provider = providers[i];
    hr_status status = provider->has != NULL ? provider->has(op) : HR_OK;
    if (provider->has != NULL && status == HR_OK) {
      hr_status_ignore(why);
      return HR_OK;
    }
    if (status != HR_OK && hr_status_code_of(status) != HR_STATUS_NOT_FOUND) {
      hr_status_ignore(why);
      why = status;
    } else {
      hr_status_ignore(status);
    }
  }
  why = why != HR_OK ? why : hr_status_make(HR_STATUS_UNIMPLEMENTED, "no library of this device does it");
  return hr_status_annotate(why, "%s", hr_op_table(op)->name);
}

void hr__algorithms_layouts(const hr_device *device, hr_target *target) {
  const hr_provider *const *providers = hr__algorithms_providers(device->driver->dialect);
  bool prefers_parts = false;
  for (int i = 0; providers[i] != NULL; ++i) {
    size_t alignment = providers[i]->row_alignment;
    target->channels_last |= providers[i]->channels_last;
    target->one_format |= providers[i]->one_format;
    target->folds_scales |= providers[i]->folds_scales;
    target->row_alignment = alignment > target->row_alignment ? alignment : target->row_alignment;
    prefers_parts |= providers[i]->prefers_parts != NULL && providers[i]->prefers_parts();
  }
  if (prefers_parts) {
    hr_device_info info;
    hr_device_describe(device, &info);
    target->split_bytes = info.total_bytes / PARTS_SHARE;
  }
}

/* ---- algorithms ---- */

static int add_algorithm(hr_algorithm *algorithms, int count, const hr_provider *provider, int number) {
  if (count < HR_ALGORITHMS_MAX) {
    algorithms[count++] = (hr_algorithm){provider, number};
  }
  return count;
}

int hr__algorithms_list(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                        const hr_node *node, hr_algorithm algorithms[HR_ALGORITHMS_MAX]) {
  int count = 0;
  for (int i = 0; providers[i] != NULL; ++i) {
    if (providers[i]->write == NULL && asks_library(device, providers[i], program, node)) {
      count = add_algorithm(algorithms, count, providers[i], HR_ALGORITHM_OWN);
    }
  }
  for (int i = 0; providers[i] != NULL; ++i) {
    for (int algorithm = 0; providers[i]->algorithms != NULL && providers[i]->algorithms[algorithm] != NULL;
         ++algorithm) {
      count = add_algorithm(algorithms, count, providers[i], algorithm);
    }
  }
  return count;
}

void hr__algorithm_name(const hr_algorithm *algorithm, hr_text *out_name) {
  hr_text_append(out_name, algorithm->provider->name);
  if (algorithm->number >= 0) {
    hr_text_printf(out_name, " %s", algorithm->provider->algorithms[algorithm->number]);
  }
}

/* True if another node of the program writes the buffer. */
static bool is_written(const hr_program *program, const hr_node *but, uint32_t buffer) {
  uint32_t own = 0;
  for (int i = 0; i < but->output_count; ++i) {
    own += but->outputs[i].kind == HR_OPERAND_VALUE && but->outputs[i].index == buffer;
  }
  return hr_program_writes(program, buffer) > own;
}

/* The size class of a dim or a stride: four classes between powers of two, named by their largest. */
static int64_t class_of(int64_t size) {
  enum { EXACT = 8, BITS = 3 };
  if (size < EXACT) {
    return size;
  }
  int shift = 64 - BITS - __builtin_clzll((unsigned long long)size);
  return ((size - 1) >> shift << shift) + ((int64_t)1 << shift);
}

/* " f32[8,64]{64,1}". */
static void add_operand(const hr_operand *x, bool by_class, hr_text *key) {
  if (x->kind != HR_OPERAND_VALUE) {
    hr_text_append(key, x->kind == HR_OPERAND_NONE ? " _" : " $");
    return;
  }
  hr_text_append_all(key, 3, (const char *const[]){" ", hr_dtype_name(x->dtype), "["});
  for (int d = 0; d < x->rank; ++d) {
    hr_text_append(key, d > 0 ? "," : "");
    hr_text_int(key, by_class ? class_of(x->dims[d]) : x->dims[d]);
  }
  hr_text_append(key, "]{");
  for (int d = 0; d < x->rank; ++d) {
    hr_text_append(key, d > 0 ? "," : "");
    hr_text_int(key, by_class ? class_of(x->strides[d]) : x->strides[d]);
  }
  hr_text_append(key, "}");
}

/* The mark of operands that can't be cached in another layout: those that die, or are written elsewhere in the
 * program. */
static const char *mark_of(const hr_program *program, const hr_node *node, const hr_operand *x) {
  return x->kind != HR_OPERAND_VALUE           ? ""
         : program->buffers[x->index].is_dead  ? "-"
         : is_written(program, node, x->index) ? "!"
                                               : "";
}

/* Adds the libraries among whose algorithms is chosen, with their versions: those of another list are timed anew. */
static void add_choices(const hr_provider *const *providers, const hr_program *program, const hr_node *node,
                        hr_text *key) {
  hr_node plain = *node;
  plain.epilogue_count = 0;
  hr_text_append(key, "\nby");
  for (int i = 0; providers[i] != NULL; ++i) {
    if (providers[i]->algorithms != NULL || providers[i]->supports(program, &plain)) {
      bool has_version = providers[i]->version != NULL;
      hr_text_append_all(key, 4,
                         (const char *const[]){" ", providers[i]->name, has_version ? " " : "",
                                               has_version ? providers[i]->version() : ""});
    }
  }
}

void hr__algorithms_key(const hr_provider *const *providers, const hr_device *device, const hr_program *program,
                        const hr_node *node, hr_text *out_key) {
  enum { OWN_INPUTS = 3 }; /* further inputs belong to epilogues */
  int count = node->epilogue_count > 0 ? OWN_INPUTS : node->input_count;
  while (count > 0 && node->inputs[count - 1].kind == HR_OPERAND_NONE) {
    --count;
  }
  bool is_host = device->properties.is_host; /* only hosts cache operands; devices prefer exact sizes to others */
  hr_text_append(out_key, hr_op_table(node->op)->name);
  for (int i = 0; i < count; ++i) {
    add_operand(&node->inputs[i], is_host, out_key);
    hr_text_append(out_key, is_host ? mark_of(program, node, &node->inputs[i]) : "");
  }
  hr_text_append(out_key, " ->");
  for (int i = 0; i < node->output_count; ++i) {
    add_operand(&node->outputs[i], is_host, out_key);
    hr_text_append(out_key, is_host ? mark_of(program, node, &node->outputs[i]) : "");
  }
  for (int i = 0; i < node->int_count; ++i) {
    hr_text_char(out_key, ' ');
    hr_text_int(out_key, node->ints[i]);
  }
  for (int i = 0; i < node->epilogue_count && !is_host;
       ++i) { /* on hosts they don't change which algorithm is fastest */
    hr_text_printf(out_key, " then %s", hr_op_table(node->epilogues[i].op)->name);
  }
  hr_text_append_all(out_key, 5,
                     (const char *const[]){"\non ", device->driver->name, ", ", device->properties.description, ", "});
  hr_text_int(out_key, device->properties.workers);
  hr_text_append(out_key, " workers");
  add_choices(providers, program, node, out_key);
  if (!is_host) {
    hr_text_printf(out_key, ", TF32 %d", (int)hr_env_choice(HR_ENV_TF32));
  }
  hr_text_append(out_key, "\n");
}

static uint64_t hash_operand(uint64_t hash, const hr_program *program, const hr_node *node, const hr_operand *x,
                             bool is_host) {
  if (x->kind != HR_OPERAND_VALUE) {
    return hr_hash_mix(hash, (uint64_t)x->kind);
  }
  const char *mark = is_host ? mark_of(program, node, x) : "";
  hash = hr_hash_mix(hash, (uint64_t)(unsigned char)mark[0] << 32 | (uint64_t)x->dtype << 8 | (uint64_t)x->rank);
  for (int d = 0; d < x->rank; ++d) {
    uint64_t dim = (uint64_t)(is_host ? class_of(x->dims[d]) : x->dims[d]);
    uint64_t stride = (uint64_t)(is_host ? class_of(x->strides[d]) : x->strides[d]);
    hash = hr_hash_mix(hr_hash_mix(hash, dim), stride);
  }
  return hash;
}

/* A hash of the key's contents. */
static uint64_t hash_key(const hr_device *device, const hr_program *program, const hr_node *node) {
  bool is_host = device->properties.is_host;
  uint64_t hash = hr_hash_mix(hr_hash_mix(HR_HASH_SEED, (uint64_t)(uintptr_t)device->driver), (uint64_t)node->op);
  hash = hr_hash_bytes(hash, device->properties.description, strlen(device->properties.description));
  hash = hr_hash_mix(hash, (uint64_t)device->properties.workers << 8 | (uint64_t)hr_env_choice(HR_ENV_TF32));
  hash = hr_hash_mix(hash, (uint64_t)node->input_count << 32 | (uint64_t)node->epilogue_count);
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    hash = hash_operand(hash, program, node, hr_node_operand(node, i), is_host);
  }
  for (int i = 0; i < node->int_count; ++i) {
    hash = hr_hash_mix(hash, (uint64_t)node->ints[i]);
  }
  for (int i = 0; i < node->epilogue_count && !is_host; ++i) {
    hash = hr_hash_mix(hash, (uint64_t)node->epilogues[i].op);
  }
  return hash;
}

hr_tuning_entry *hr__algorithms_find_entry(const hr_provider *const *providers, const hr_device *device,
                                           const hr_program *program, const hr_node *node) {
  uint64_t hash = hash_key(device, program, node);
  hr_tuning_entry *entry = hr__tuning_entry_find_named(hash);
  if (entry == NULL) {
    hr_text key = {0};
    hr__algorithms_key(providers, device, program, node, &key);
    entry = hr_text_chars(&key)[0] != 0 ? hr__tuning_entry_find(key.data, key.length) : NULL;
    hr__tuning_entry_name(entry, hash);
    hr_text_fini(&key);
  }
  return entry;
}

static hr_status copy_node(const hr_node *node, hr_node **out_copy) {
  hr_node *copy = hr_malloc(sizeof *copy + hr_node_copy_bytes(node));
  if (copy == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a node of %d operands",
                          node->input_count + node->output_count);
  }
  hr_node_copy_to(node, copy + 1, copy);
  *out_copy = copy;
  return HR_OK;
}

/* True for a model of a GPU: nothing will run, and its libraries are not loaded. */
static bool is_model(const hr_driver *driver) {
  return driver->dialect != HR_DIALECT_HOST && hr__gpu_model() != NULL;
}

/* With the device current on this thread. */
static hr_status prepare(hr_device *device, const hr_program *program, const hr_node *node,
                         const hr_algorithm *algorithm, bool is_own, hr_ready *out_made) {
  if (is_own && is_model(device->driver)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__device_enter(device));
  hr_status status =
      algorithm->provider->prepare(program, node, algorithm->number, is_own ? hr_device_queue(device) : NULL,
                                   &out_made->prepared, &out_made->workspace_bytes);
  hr__device_leave(device);
  return status;
}

hr_status hr__algorithm_prepare(hr_device *device, const hr_program *program, const hr_node *node,
                                const hr_algorithm *algorithm, hr_ready *out_ready) {
  hr_ready made = {.algorithm = *algorithm};
  bool is_own = algorithm->provider->dialect == device->driver->dialect;
  if (!algorithm->provider->is_apart) {
    HR_RETURN_IF_ERROR(copy_node(node, &made.node));
    node = made.node;
  }
  hr_status status = prepare(device, program, node, algorithm, is_own, &made);
  if (status == HR_OK) {
    outlive_library(node->op);
  }
  if (status == HR_OK && !is_own) {
    status = hr__host_fallback_create(node, made.workspace_bytes, &made.fallback);
    made.workspace_bytes = 0;
  }
  if (status != HR_OK) {
    hr__ready_fini(&made);
    return status;
  }
  *out_ready = made;
  return HR_OK;
}

bool hr__algorithm_is_called(const hr_algorithm *algorithm, const char *name) {
  const hr_provider *provider = algorithm->provider;
  size_t length = strlen(provider->name);
  if (strncmp(name, provider->name, length) != 0) {
    return false;
  }
  return algorithm->number < 0
             ? name[length] == 0
             : name[length] == ' ' && strcmp(name + length + 1, provider->algorithms[algorithm->number]) == 0;
}

bool hr__algorithms_prepare_called(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                                   const hr_node *node, const char *name, hr_ready *out_ready) {
  for (int i = 0; providers[i] != NULL; ++i) {
    for (int number = HR_ALGORITHM_OWN;
         number < 0 || (providers[i]->algorithms != NULL && providers[i]->algorithms[number] != NULL); ++number) {
      const hr_algorithm algorithm = {providers[i], number};
      if (hr__algorithm_is_called(&algorithm, name) &&
          (number >= 0 || (providers[i]->write == NULL && asks_library(device, providers[i], program, node)))) {
        hr_status status = hr__algorithm_prepare(device, program, node, &algorithm, out_ready);
        bool is_prepared = status == HR_OK;
        hr_status_ignore(status);
        return is_prepared;
      }
    }
  }
  return false;
}

hr_status hr__algorithms_prepare(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                                 const hr_node *node, const hr_tuning_entry *tuning_entry, hr_ready *out_ready) {
  const char *name = tuning_entry != NULL ? hr__tuning_entry_algorithm(tuning_entry) : "";
  if (name[0] != 0 && hr__algorithms_prepare_called(device, providers, program, node, name, out_ready)) {
    return HR_OK;
  }
  hr_status refused = HR_OK; /* by the last provider that was called */
  for (int i = 0; providers[i] != NULL; ++i) {
    if (asks_library(device, providers[i], program, node)) {
      const hr_algorithm algorithm = {providers[i], HR_ALGORITHM_OWN};
      hr_status_free(refused);
      if (providers[i]->write != NULL) {
        *out_ready = (hr_ready){.algorithm = algorithm};
        return HR_OK;
      }
      refused = hr__algorithm_prepare(device, program, node, &algorithm, out_ready);
      if (refused == HR_OK) {
        return HR_OK;
      }
    }
  }
  return refused != HR_OK
             ? refused
             : hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: no provider answers", hr_op_table(node->op)->name);
}

/* True if a provider before `own` is the first to run the contraction itself. */
static bool has_better(const hr_provider *const *providers, const hr_provider *own, const hr_program *program,
                       const hr_node *node) {
  hr_node plain = *node;
  plain.epilogue_count = 0;
  int i = 0;
  while (providers[i] != own && !providers[i]->supports(program, &plain)) {
    ++i;
  }
  return providers[i] != own;
}

/* Renews the copy that the prepared object refers to. */
static bool renew_copy(const hr_node *node, hr_node *copy) {
  bool fits = hr_node_copy_bytes(copy) == hr_node_copy_bytes(node);
  if (fits) {
    hr_node_copy_to(node, copy + 1, copy);
  }
  return fits;
}

bool hr__ready_renumber(const hr_provider *const *providers, const hr_program *program, const hr_node *node,
                        const hr_tuning_entry *tuning_entry, hr_ready *ready) {
  const hr_provider *own = ready->algorithm.provider;
  const char *name = tuning_entry != NULL ? hr__tuning_entry_algorithm(tuning_entry) : "";
  return own->renumber != NULL && ready->algorithm.number == HR_ALGORITHM_OWN && ready->fallback == NULL &&
         (name[0] == 0 || hr__algorithm_is_called(&ready->algorithm, name)) &&
         !has_better(providers, own, program, node) && (ready->node == NULL || renew_copy(node, ready->node)) &&
         own->renumber(ready->prepared, program, ready->node != NULL ? ready->node : node, &ready->workspace_bytes);
}

/* ---- running ---- */

typedef struct library_call {
  const hr_ready *ready;
  void *const *args;
  void *workspace, *queue;
} library_call;

static hr_status call_library(void *arg) {
  const library_call *call = arg;
  return call->ready->algorithm.provider->run(call->ready->prepared, call->args, call->workspace, call->queue);
}

hr_status hr__ready_run(const hr_driver *driver, void *impl, const hr_ready *ready, void *const *args,
                        const uint64_t *stamps, void *workspace, void *queue) {
  if (is_model(driver)) {
    return HR_OK;
  }
  if (ready->algorithm.provider->stamp != NULL) {
    ready->algorithm.provider->stamp(ready->prepared, stamps);
  }
  if (ready->fallback != NULL) {
    return hr__host_fallback_run(ready->fallback, driver, impl, ready->algorithm.provider, ready->prepared, args);
  }
  library_call call = {ready, args, workspace, queue};
  return driver->call != NULL ? driver->call(impl, call_library, &call) : call_library(&call);
}

void hr__ready_fini(hr_ready *ready) {
  if (ready->prepared != NULL) {
    ready->algorithm.provider->release(ready->prepared);
  }
  hr__host_fallback_destroy(ready->fallback);
  hr_free(ready->node);
  *ready = (hr_ready){.algorithm = {NULL, HR_ALGORITHM_OWN}};
}
