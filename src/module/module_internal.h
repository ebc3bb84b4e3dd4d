/* module_internal.h: a module, for the files of this folder. */
#ifndef HEADRACE_MODULE_INTERNAL_H_
#define HEADRACE_MODULE_INTERNAL_H_

#include "base/dynlib.h"
#include "base/host_kernel.h"
#include "module/module_source.h"
#include "runtime/function_table.h"

enum { HR__MODULE_SYMBOL_BYTES = 112 };

/* A kernel, as programs call it. */
typedef struct hr__module_kernel {
  hr_function function;
  const char *output_names[HR_MODULE_PARAMETERS_MAX];
  char symbol[HR__MODULE_SYMBOL_BYTES];
  hr_text text; /* of a device */
} hr__module_kernel;

struct hr_module {
  hr_text source;      /* the user's */
  hr_dialect dialect;  /* of its devices */
  uint64_t hash;       /* of both */
  hr__module_source c; /* heads, and the source in C */
  hr__module_kernel *kernels;
  hr_dynlib library; /* on the host */
  hr_module *next;   /* with the same hash */
};

/* True if two of the views may share an element; these two. */
bool hr__views_share_memory(int count, const hr_view *views, int *out_first, int *out_second);

#endif
