#include "engine/ways.h"

#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/dtype.h"
#include "core/op.h"

/* ---- providers ---- */

enum { DIALECTS = HR_DIALECT_CUDA + 1 };

static hr_mutex providers_mutex = HR_MUTEX_INITIALIZER;
static const hr_provider
    *open_providers[DIALECTS][HR_PROVIDERS_MAX + 1]; /* those that could be opened; NULL-terminated */
static bool are_open[DIALECTS];

const hr_provider *const *hr__ways_providers(hr_dialect dialect) {
  hr_mutex_lock(&providers_mutex);
  int count = 0;
  bool is_first = !are_open[dialect];
  for (int i = 0; is_first && hr_providers[i] != NULL; i++) {
    bool runs_rows = hr_providers[i]->dialect == HR_DIALECT_HOST && hr_providers[i]->has != NULL;
    if (hr_providers[i]->dialect != dialect && !runs_rows) {
      continue;
    }
    hr_status status = hr__provider_open(hr_providers[i]);
    if (status == NULL) {
      open_providers[dialect][count++] = hr_providers[i];
    }
    hr_log(HR_LOG_DEVICE, "provider %s: %s", hr_providers[i]->name, hr_status_message(status));
    hr_status_ignore(status);
  }
  are_open[dialect] = true;
  hr_mutex_unlock(&providers_mutex);
  if (is_first) {
    hr__contexts_stop_at_exit();
  }
  return open_providers[dialect];
}

/* A library has prepared an operation. What it makes for the first one of a kind (memory for generated code, say) is torn down at
 * exit before what it made when it was opened: the devices have to be closed before that, too. */
static void outlive_library(hr_op op) {
  static bool is_known[HR_OP_COUNT];
  hr_mutex_lock(&providers_mutex);
  bool is_first = !is_known[op];
  is_known[op] = true;
  hr_mutex_unlock(&providers_mutex);
  if (is_first) {
    hr__contexts_stop_at_exit();
  }
}

static void *queue_of(hr_device *device) {
  return device->driver->native != NULL ? device->driver->native(device->impl) : NULL;
}

bool hr__ways_keep(void *ctx, const hr_program *program, const hr_node *node) {
  hr_device *device = ctx;
  const hr_provider *const *providers = hr__ways_providers(device->driver->dialect);
  hr_node plain = *node;
  plain.post_count = 0;
  if (node->post_count > 0) {
    (void)queue_of(device); /* a library is asked about posts, with the device current on this thread */
  }
  for (int i = 0; providers[i] != NULL; i++) {
    if (providers[i]->supports(program, &plain)) {
      return node->post_count == 0 || providers[i]->supports(program, node);
    }
  }
  return false;
}

hr_status hr__library_check(const hr_device *device, hr_op op) {
  const hr_provider *const *providers = hr__ways_providers(device->driver->dialect);
  hr_status why = NULL;
  for (int i = 0; providers[i] != NULL; i++) {
    const hr_provider *provider = providers[i];
    hr_status status = provider->has != NULL ? provider->has(op) : NULL;
    if (provider->has != NULL && status == NULL) {
      hr_status_ignore(why);
      return HR_OK;
    }
    if (status != NULL && hr_status_code_of(status) != HR_STATUS_NOT_FOUND) {
      hr_status_ignore(why);
      why = status;
    } else {
      hr_status_ignore(status);
    }
  }
  why = why != NULL ? why : hr_status_make(HR_STATUS_UNIMPLEMENTED, "no library of this device does it");
  return hr_status_annotate(why, "%s", hr_op_table(op)->name);
}

void hr__ways_layouts(hr_dialect dialect, hr_target *target) {
  const hr_provider *const *providers = hr__ways_providers(dialect);
  for (int i = 0; providers[i] != NULL; i++) {
    size_t alignment = providers[i]->row_alignment;
    target->channels_last |= providers[i]->channels_last;
    target->one_format |= providers[i]->one_format;
    target->folds_scales |= providers[i]->folds_scales;
    target->row_alignment = alignment > target->row_alignment ? alignment : target->row_alignment;
  }
}

/* ---- ways ---- */

static int add_way(hr_way *ways, int count, const hr_provider *provider, int number) {
  if (count < HR_WAYS_MAX) {
    ways[count++] = (hr_way){provider, number};
  }
  return count;
}

int hr__ways_list(const hr_provider *const *providers, const hr_program *program, const hr_node *node,
                  hr_way ways[HR_WAYS_MAX]) {
  int count = 0;
  for (int i = 0; providers[i] != NULL; i++) {
    if (providers[i]->write == NULL && providers[i]->supports(program, node)) {
      count = add_way(ways, count, providers[i], HR_WAY_OWN);
    }
  }
  for (int i = 0; providers[i] != NULL; i++) {
    for (int way = 0; providers[i]->ways != NULL && providers[i]->ways[way] != NULL; way++) {
      count = add_way(ways, count, providers[i], way);
    }
  }
  return count;
}

void hr__way_name(const hr_way *way, hr_text *out_name) {
  hr_text_append(out_name, way->provider->name);
  if (way->number >= 0) {
    hr_text_printf(out_name, " %s", way->provider->ways[way->number]);
  }
}

static bool is_written(const hr_program *program, const hr_node *but, uint32_t buffer) {
  for (int n = 0; n < program->node_count; ++n) {
    const hr_node *node = &program->nodes[n];
    for (int i = 0; node != but && i < node->output_count; ++i) {
      if (node->outputs[i].kind == HR_OPERAND_VALUE && node->outputs[i].index == buffer) {
        return true;
      }
    }
  }
  return false;
}

/* " f32[8,64]{64,1}". */
static void add_operand(const hr_operand *x, hr_text *key) {
  if (x->kind != HR_OPERAND_VALUE) {
    hr_text_append(key, x->kind == HR_OPERAND_NONE ? " _" : " $");
    return;
  }
  hr_text_printf(key, " %s[", hr_dtype_name(x->dtype));
  for (int d = 0; d < x->rank; ++d) {
    hr_text_printf(key, d > 0 ? ",%lld" : "%lld", (long long)x->dims[d]);
  }
  hr_text_append(key, "]{");
  for (int d = 0; d < x->rank; ++d) {
    hr_text_printf(key, d > 0 ? ",%lld" : "%lld", (long long)x->strides[d]);
  }
  hr_text_append(key, "}");
}

/* What dies, or is written elsewhere in the program, can't be kept in another layout, and says so. */
static const char *mark_of(const hr_program *program, const hr_node *node, const hr_operand *x) {
  return x->kind != HR_OPERAND_VALUE           ? ""
         : program->buffers[x->index].is_dead  ? "-"
         : is_written(program, node, x->index) ? "!"
                                               : "";
}

void hr__ways_key(const hr_provider *const *providers, const hr_device *device, const hr_program *program,
                  const hr_node *node, hr_text *out_key) {
  enum { OWN_INPUTS = 3 }; /* what follows is of posts */
  int count = node->post_count > 0 ? OWN_INPUTS : node->input_count;
  while (count > 0 && node->inputs[count - 1].kind == HR_OPERAND_NONE) {
    --count;
  }
  bool marks = device->properties.is_host; /* nothing is kept elsewhere */
  hr_text_append(out_key, hr_op_table(node->op)->name);
  for (int i = 0; i < count; ++i) {
    add_operand(&node->inputs[i], out_key);
    hr_text_append(out_key, marks ? mark_of(program, node, &node->inputs[i]) : "");
  }
  hr_text_append(out_key, " ->");
  for (int i = 0; i < node->output_count; ++i) {
    add_operand(&node->outputs[i], out_key);
    hr_text_append(out_key, marks ? mark_of(program, node, &node->outputs[i]) : "");
  }
  for (int i = 0; i < node->int_count; ++i) {
    hr_text_printf(out_key, " %lld", (long long)node->ints[i]);
  }
  for (int i = 0; i < node->post_count && !marks; ++i) { /* on hosts they change nothing about which way is fastest */
    hr_text_printf(out_key, " then %s", hr_op_table(node->posts[i].op)->name);
  }
  hr_text_printf(out_key, "\non %s, %s, %d workers\nby", device->driver->name, device->properties.description,
                 device->properties.workers);
  for (int i = 0; providers[i] != NULL; i++) {
    hr_text_printf(out_key, " %s%s%s", providers[i]->name, providers[i]->version != NULL ? " " : "",
                   providers[i]->version != NULL ? providers[i]->version() : "");
  }
  if (!device->properties.is_host) {
    hr_text_printf(out_key, ", TF32 %d", (int)hr_env_choice(HR_ENV_TF32));
  }
  hr_text_append(out_key, "\n");
}

hr_status hr__way_prepare(hr_device *device, const hr_program *program, const hr_node *node, const hr_way *way,
                          hr_ready *out_ready) {
  hr_ready made = {.way = *way};
  bool is_own = way->provider->dialect == device->driver->dialect;
  void *queue = is_own ? queue_of(device) : NULL;
  HR_RETURN_IF_ERROR(way->provider->prepare(program, node, way->number, queue, &made.prepared, &made.workspace_bytes));
  outlive_library(node->op);
  hr_status status = HR_OK;
  if (!is_own) {
    status = hr__hosted_create(node, made.workspace_bytes, &made.hosted);
    made.workspace_bytes = 0;
  }
  if (status != NULL) {
    hr__ready_fini(&made);
    return status;
  }
  *out_ready = made;
  return HR_OK;
}

bool hr__way_is_called(const hr_way *way, const char *name) {
  hr_text text = {0};
  hr__way_name(way, &text);
  bool is_same = strcmp(hr_text_chars(&text), name) == 0;
  hr_text_fini(&text);
  return is_same;
}

bool hr__ways_prepare_called(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                             const hr_node *node, const char *name, hr_ready *out_ready) {
  for (int i = 0; providers[i] != NULL; i++) {
    for (int number = HR_WAY_OWN; number < 0 || (providers[i]->ways != NULL && providers[i]->ways[number] != NULL);
         number++) {
      const hr_way way = {providers[i], number};
      if (hr__way_is_called(&way, name) &&
          (number >= 0 || (providers[i]->write == NULL && providers[i]->supports(program, node)))) {
        hr_status status = hr__way_prepare(device, program, node, &way, out_ready);
        bool is_prepared = status == NULL;
        hr_status_ignore(status);
        return is_prepared;
      }
    }
  }
  return false;
}

hr_status hr__ways_prepare(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                           const hr_node *node, const hr_choice *choice, hr_ready *out_ready) {
  const char *name = choice != NULL ? hr__choice_way(choice) : "";
  if (name[0] != 0 && hr__ways_prepare_called(device, providers, program, node, name, out_ready)) {
    return HR_OK;
  }
  hr_status status = hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: no provider answers", hr_op_table(node->op)->name);
  for (int i = 0; status != NULL && providers[i] != NULL; i++) {
    if (providers[i]->supports(program, node)) {
      hr_status_free(status);
      if (providers[i]->write != NULL) {
        *out_ready = (hr_ready){.way = {providers[i], HR_WAY_OWN}};
        return HR_OK;
      }
      status = hr__way_prepare(device, program, node, &(const hr_way){providers[i], HR_WAY_OWN}, out_ready);
    }
  }
  return status;
}

/* ---- running ---- */

typedef struct library_call {
  const hr_ready *ready;
  void *const *args;
  void *workspace, *queue;
} library_call;

static hr_status call_library(void *arg) {
  const library_call *call = arg;
  return call->ready->way.provider->run(call->ready->prepared, call->args, call->workspace, call->queue);
}

hr_status hr__ready_run(hr_device *device, const hr_ready *ready, void *const *args, const uint64_t *stamps,
                        void *workspace, void *queue) {
  if (ready->way.provider->stamp != NULL) {
    ready->way.provider->stamp(ready->prepared, stamps);
  }
  if (ready->hosted != NULL) {
    return hr__hosted_run(ready->hosted, device, ready->way.provider, ready->prepared, args);
  }
  library_call call = {ready, args, workspace, queue};
  return device->driver->call != NULL ? device->driver->call(device->impl, call_library, &call) : call_library(&call);
}

void hr__ready_fini(hr_ready *ready) {
  if (ready->prepared != NULL) {
    ready->way.provider->release(ready->prepared);
  }
  hr__hosted_destroy(ready->hosted);
  *ready = (hr_ready){.way = {NULL, HR_WAY_OWN}};
}
