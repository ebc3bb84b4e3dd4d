/* ranges.c: see ranges.h. The interfaces are those that NVTX and ITT document for their clients. */
#include "base/ranges.h"

#include <stdint.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"
#include "headrace/profile.h"

/* ---- NVTX ---- */

/* Callbacks of NVTX's module "core", by their numbers. */
enum { NVTX_PUSH = 9, NVTX_POP = 11, NVTX_CORE_SLOTS = 16, NVTX_MODULE_CORE = 1, NVTX_CALLBACKS = 1 };

typedef void (*any_function)(void);
typedef int (*nvtx_push)(const char *name);
typedef int (*nvtx_pop)(void);

/* The table that the profiler asks for as NVTX_CALLBACKS. */
typedef struct nvtx_callbacks {
  size_t size;
  int (*get_module)(int module, any_function ***out_table, unsigned *out_slots);
} nvtx_callbacks;

typedef const void *(*nvtx_get_table)(uint32_t kind);

/* ---- ITT ---- */

typedef struct itt_id {
  uint64_t words[3];
} itt_id;

typedef void *(*itt_create)(const char *name);
typedef void (*itt_begin)(const void *domain, itt_id task, itt_id parent, void *name);
typedef void (*itt_end)(const void *domain);

typedef struct part {
  hr_ranges head;
  hr_mutex mutex; /* held while the libraries are opened */
  bool was_opened;
  any_function nvtx[NVTX_CORE_SLOTS]; /* the profiler stores into these, by the pointers of `slots` */
  any_function *slots[NVTX_CORE_SLOTS + 1];
  void *domain; /* ITT's */
  itt_create name;
  itt_begin begin;
  itt_end end;
} part;

static part *own(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_RANGES, &hr__ranges_part);
}

/* Of a symbol's address, since ISO C has no cast from one to the other. */
#define SET_FUNCTION(function, address) memcpy(&(function), &(address), sizeof(function))

static int get_module(int module, any_function ***out_table, unsigned *out_slots) {
  part *p = own();
  if (module != NVTX_MODULE_CORE) {
    return 0;
  }
  for (int i = 1; i < NVTX_CORE_SLOTS; ++i) {
    p->slots[i] = &p->nvtx[i];
  }
  *out_table = p->slots;
  *out_slots = NVTX_CORE_SLOTS;
  return 1;
}

static const void *get_table(uint32_t kind) {
  static const nvtx_callbacks callbacks = {sizeof callbacks, get_module};
  return kind == NVTX_CALLBACKS ? &callbacks : NULL;
}

/* ---- opening ---- */

static hr_status open_nvtx(const char *path) {
  hr_dynlib library = {0};
  void *address;
  int (*initialize)(nvtx_get_table) = NULL;
  HR_RETURN_IF_ERROR(hr_dynlib_open(path, &library)); /* stays open: the profiler may have started threads */
  HR_RETURN_IF_ERROR(hr_dynlib_symbol(&library, "InitializeInjectionNvtx2", &address));
  SET_FUNCTION(initialize, address);
  return initialize(get_table) != 0 ? HR_OK : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "it refused");
}

static hr_status open_itt(const char *path) {
  static const char *const names[] = {"__itt_domain_create", "__itt_string_handle_create", "__itt_task_begin",
                                      "__itt_task_end"};
  part *p = own();
  hr_dynlib library = {0};
  void *found[4];
  itt_create create_domain;
  HR_RETURN_IF_ERROR(hr_dynlib_open(path, &library));
  HR_RETURN_IF_ERROR(hr_dynlib_symbols(&library, 4, names, found));
  SET_FUNCTION(create_domain, found[0]);
  SET_FUNCTION(p->name, found[1]);
  SET_FUNCTION(p->begin, found[2]);
  SET_FUNCTION(p->end, found[3]);
  p->domain = create_domain("headrace");
  return p->domain != NULL ? HR_OK : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "it made no domain");
}

static void try_open(const char *variable, hr_status (*open)(const char *path)) {
  const char *path = hr_env_system(variable);
  hr_status status = path[0] != '\0' ? open(path) : HR_OK;
  if (status != HR_OK) {
    hr_log(HR_LOG_DEVICE, "no ranges for %s: %s", variable, hr_status_message(status));
    hr_status_free(status);
  }
}

/* True if a profiler takes ranges. */
static bool is_open(part *p) {
  hr_mutex_lock(&p->mutex);
  if (!p->was_opened) {
    p->was_opened = true;
    try_open("NVTX_INJECTION64_PATH", open_nvtx);
    try_open("INTEL_LIBITTNOTIFY64", open_itt);
  }
  bool is_on = (p->nvtx[NVTX_PUSH] != NULL && p->nvtx[NVTX_POP] != NULL) || p->domain != NULL;
  atomic_store_explicit(&p->head.is_off, !is_on, memory_order_relaxed);
  hr_mutex_unlock(&p->mutex);
  return is_on;
}

static void init(void *memory) {
  hr_mutex_init(&((part *)memory)->mutex);
}

const hr_context_part hr__ranges_part = {.bytes = sizeof(part), .init = init};

bool hr_range_is_on(void) {
  return hr__ranges_are_on() && is_open(own());
}

/* ---- ranges ---- */

void hr__range_push(const char *name) {
  part *p = own();
  if (!is_open(p)) {
    return;
  }
  if (p->nvtx[NVTX_PUSH] != NULL && p->nvtx[NVTX_POP] != NULL) {
    nvtx_push push = (nvtx_push)p->nvtx[NVTX_PUSH];
    push(name);
  }
  if (p->domain != NULL) {
    p->begin(p->domain, (itt_id){{0}}, (itt_id){{0}}, p->name(name));
  }
}

void hr__range_pop(void) {
  part *p = own();
  if (p->nvtx[NVTX_PUSH] != NULL && p->nvtx[NVTX_POP] != NULL) {
    nvtx_pop pop = (nvtx_pop)p->nvtx[NVTX_POP];
    pop();
  }
  if (p->domain != NULL) {
    p->end(p->domain);
  }
}

void hr_range_push(const char *name) {
  HR_RANGE_BEGIN(name);
}

void hr_range_pop(void) {
  HR_RANGE_END();
}
