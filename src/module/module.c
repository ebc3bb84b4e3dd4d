/* module.c: modules of a context, by source; see headrace/module.h. */
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/hash.h"
#include "base/table.h"
#include "base/thread.h"
#include "engine/device_code.h"
#include "module/module_compile.h"
#include "module/module_internal.h"
#include "module/module_text.h"
#include "runtime/device.h"

/* A context's. */
typedef struct module_table {
  hr_mutex mutex; /* held while a module is compiled */
  hr_table modules;
  hr__module_compiler compiler;
} module_table;

/* ---- modules ---- */

static void destroy(hr_module *module) {
  for (size_t k = 0; module->kernels != NULL && k < module->c.heads.count; ++k) {
    hr_text_fini(&module->kernels[k].text);
  }
  hr_free(module->kernels);
  hr_text_fini(&module->source);
  hr__module_source_fini(&module->c);
  hr_dynlib_close(&module->library);
  hr_free(module);
}

static void init_table(void *part) {
  module_table *table = part;
  hr_mutex_init(&table->mutex);
}

/* Programs are gone: their context has stopped, and no work is left. */
static void fini_table(void *part) {
  module_table *table = part;
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&table->modules, &cursor)) != NULL;) {
    for (hr_module *module = entry->value, *next; module != NULL; module = next) {
      next = module->next;
      destroy(module);
    }
  }
  hr_table_fini(&table->modules);
  hr__module_compiler_fini(&table->compiler);
  hr_mutex_fini(&table->mutex);
}

static module_table *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(module_table), .init = init_table, .fini = fini_table};
  return hr__context_part(hr__context(), HR_CONTEXT_MODULES, &kind);
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a module");
}

/* ---- kernels ---- */

static void describe_kernel(const hr__module_head *head, hr__module_kernel *kernel) {
  hr_function *f = &kernel->function;
  f->name = head->name;
  f->output_names = kernel->output_names;
  for (int updated = 1; updated >= 0; --updated) { /* updated outputs come first */
    for (int p = 0; p < head->parameter_count; ++p) {
      const hr__module_parameter *x = &head->parameters[p];
      if (x->kind == (updated != 0 ? HR_PARAMETER_INOUT : HR_PARAMETER_OUT)) {
        kernel->output_names[f->output_count++] = x->name;
      }
    }
  }
  for (int p = 0; p < head->parameter_count; ++p) {
    hr_parameter_kind kind = head->parameters[p].kind;
    f->input_count += kind == HR_PARAMETER_IN || kind == HR_PARAMETER_INOUT;
    f->scalar_count += kind == HR_PARAMETER_NUMBER;
  }
}

/* ---- on the host ---- */

static hr_status find_symbol(const hr_module *module, hr__module_kernel *kernel) {
  void *address;
  snprintf(kernel->symbol, sizeof kernel->symbol, "hr__r_%s", kernel->function.name);
  HR_RETURN_IF_ERROR(hr_dynlib_symbol(&module->library, kernel->symbol, &address));
  memcpy(&kernel->function.run, &address, sizeof address);
  return HR_OK;
}

static hr_status compile_for_host(module_table *table, hr_module *module) {
  hr_text text = {0};
  hr__module_host_text(&module->c, &text);
  hr_status status = hr_text_status(&text);
  if (status == HR_OK) {
    status = hr__module_compile(&table->compiler, &text, &module->library);
  }
  for (size_t k = 0; status == HR_OK && k < module->c.heads.count; ++k) {
    status = find_symbol(module, &module->kernels[k]);
  }
  hr_text_fini(&text);
  return status;
}

/* ---- on a device with a compiler of its own ---- */

/* Compiles the text as the first program with the kernel will, and leaves the code on disk. */
static hr_status try_text(hr_device *device, const hr__module_kernel *kernel) {
  hr_device_source source = {.name = kernel->symbol, .pass_count = 1};
  const hr_function *f = &kernel->function;
  hr_host_kernel *made = NULL;
  hr_text_append_bytes(&source.text, kernel->text.data, kernel->text.length);
  hr_status status = hr__device_kernel_create_written(&source, device, f->name, f->input_count + f->output_count,
                                                      f->scalar_count, &made);
  if (status == HR_OK) {
    const hr_host_kernel *const kernels[] = {made};
    status = hr__device_kernels_load(device, 1, kernels);
    made->destroy(made);
  }
  hr_text_fini(&source.text);
  if (hr_status_code_of(status) != HR_STATUS_INTERNAL) {
    return status;
  }
  hr_status refused =
      hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the kernel source does not compile:\n%s", hr_status_message(status));
  hr_status_free(status);
  return refused;
}

static hr_status compile_for_device(hr_device *device, hr_module *module) {
  for (size_t k = 0; k < module->c.heads.count; ++k) {
    hr__module_kernel *kernel = &module->kernels[k];
    snprintf(kernel->symbol, sizeof kernel->symbol, "hr_module_%016llx_%zu", (unsigned long long)module->hash, k);
    hr__module_device_text(&module->c, &module->c.heads.data[k], kernel->symbol, &kernel->text);
    HR_RETURN_IF_ERROR(hr_text_status(&kernel->text));
    kernel->function.text = hr_text_chars(&kernel->text);
    kernel->function.symbol = kernel->symbol;
    HR_RETURN_IF_ERROR(try_text(device, kernel));
  }
  return HR_OK;
}

/* ---- one for each source ---- */

static hr_status make(module_table *table, hr_device *device, hr_module *module) {
  HR_RETURN_IF_ERROR(hr_text_status(&module->source));
  HR_RETURN_IF_ERROR(hr__module_parse(hr_text_chars(&module->source), module->source.length, &module->c));
  module->kernels = hr_calloc(module->c.heads.count, sizeof *module->kernels);
  if (module->kernels == NULL) {
    return no_memory();
  }
  for (size_t k = 0; k < module->c.heads.count; ++k) {
    describe_kernel(&module->c.heads.data[k], &module->kernels[k]);
  }
  return module->dialect == HR_DIALECT_HOST ? compile_for_host(table, module) : compile_for_device(device, module);
}

static hr_module *find(const module_table *table, const hr_module *like) {
  hr_module *m = hr_table_get(&table->modules, like->hash);
  while (m != NULL && (m->dialect != like->dialect || m->source.length != like->source.length ||
                       memcmp(hr_text_chars(&m->source), hr_text_chars(&like->source), m->source.length) != 0)) {
    m = m->next;
  }
  return m;
}

/* From here on the module lives until its context ends. */
static hr_status add(module_table *table, hr_module *module) {
  module->next = hr_table_get(&table->modules, module->hash);
  if (!hr_table_put(&table->modules, module->hash, module)) {
    destroy(module);
    return no_memory();
  }
  for (size_t k = 0; k < module->c.heads.count; ++k) {
    HR_RETURN_IF_ERROR(hr__function_add(&module->kernels[k].function));
  }
  return HR_OK;
}

static hr_status find_or_make(module_table *table, hr_device *device, const char *source, size_t length,
                              hr_module **out_module) {
  hr_module *module = hr_calloc(1, sizeof *module);
  if (module == NULL) {
    return no_memory();
  }
  module->dialect = device->driver->dialect;
  module->hash = hr_hash_bytes(HR_HASH_SEED ^ (uint64_t)module->dialect, source, length);
  hr_text_append_bytes(&module->source, source, length);
  *out_module = find(table, module);
  hr_status status = *out_module == NULL ? make(table, device, module) : HR_OK;
  if (status != HR_OK || *out_module != NULL) {
    destroy(module);
    return status;
  }
  *out_module = module;
  return add(table, module);
}

hr_status hr_module_create(hr_device *device, const char *source, size_t length, const hr_module **out_module) {
  if (device == NULL || source == NULL || out_module == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_module_create: NULL argument");
  }
  hr_module *module = NULL;
  hr_context *before = hr__context_enter(device->context);
  module_table *table = own();
  hr_mutex_lock(&table->mutex);
  hr_status status = find_or_make(table, device, source, length, &module);
  hr_mutex_unlock(&table->mutex);
  (void)hr__context_enter(before);
  if (status == HR_OK) {
    *out_module = module;
  }
  return status;
}

/* ---- what it has ---- */

int hr_module_kernel_count(const hr_module *module) {
  return (int)module->c.heads.count;
}

const char *hr_module_kernel_name(const hr_module *module, int kernel) {
  return module->c.heads.data[kernel].name;
}

int hr_module_parameter_count(const hr_module *module, int kernel) {
  return module->c.heads.data[kernel].parameter_count;
}

hr_parameter hr_module_parameter(const hr_module *module, int kernel, int parameter) {
  const hr__module_parameter *p = &module->c.heads.data[kernel].parameters[parameter];
  return (hr_parameter){.name = p->name, .kind = p->kind, .dtype = p->dtype};
}
