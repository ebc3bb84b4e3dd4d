/* convert.c: `headrace convert`: a model of another format as a package. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "headrace/package.h"
#include "model.h"
#include "progress.h"
#include "target.h"

typedef struct conversion {
  const char *path, *output, *target; /* target: NULL: no kernels */
  int64_t minimum;                    /* the version that must read it; 0: any */
  named_values dims, sizes;
} conversion;

static bool take_value(conversion *c, const char *name, char *value) {
  if (strcmp(name, "-o") == 0 || strcmp(name, "--output") == 0) {
    c->output = value;
  } else if (strcmp(name, "--target") == 0) {
    c->target = value;
  } else if (strcmp(name, "--dim") == 0) {
    return add_named_size(&c->dims, value);
  } else if (strcmp(name, "--size") == 0) {
    return add_named_size(&c->sizes, value);
  } else {
    return strcmp(name, "--minimum") == 0 && parse_size(value, &c->minimum) && c->minimum >= 1 && c->minimum <= 2;
  }
  return true;
}

static bool parse_arguments(int argc, char **argv, conversion *c) {
  for (int i = 0; i < argc; ++i) {
    if (argv[i][0] != '-' && c->path == NULL) {
      c->path = argv[i];
    } else if (i + 1 < argc && take_value(c, argv[i], argv[i + 1])) {
      ++i;
    } else {
      headrace_bad_argument("convert", argv[i]);
      return false;
    }
  }
  if (c->path == NULL || c->output == NULL) {
    headrace_missing("convert", "a model and -o PACKAGE");
    return false;
  }
  return true;
}

static void show_written(void *arg, int64_t done, int64_t all) {
  show_progress(arg, all > 0 ? (double)done / (double)all : 1);
}

static hr_status write_package(const conversion *c, const hr_graph *graph) {
  const char *name = strrchr(c->path, '/') != NULL ? strrchr(c->path, '/') + 1 : c->path;
  const hr_package_note notes[2] = {{"source", name}, {"target", c->target}};
  hr_package_options options = {.note_count = 1 + (c->target != NULL),
                                .notes = notes,
                                .has_kernels = c->target != NULL,
                                .text_version_max = (int)c->minimum,
                                .progress = show_written,
                                .progress_arg = (void *)(uintptr_t)c->output};
  if (c->target != NULL) {
    HR_RETURN_IF_ERROR(check_symbols(graph, &c->sizes));
    HR_RETURN_IF_ERROR(make_kernels(graph, c->target, &c->sizes, &options.kernels_since_ns));
  }
  hr_status status = hr_package_write_with(graph, c->output, &options);
  clear_progress();
  return status;
}

static hr_status convert(const conversion *c) {
  hr_graph *graph = NULL, *simple = NULL;
  HR_RETURN_IF_ERROR(c->target != NULL ? begin_target(c->target) : HR_OK);
  HR_RETURN_IF_ERROR(open_model(c->path, &c->dims, &graph));
  hr_status status = hr_graph_simplify(graph, NULL, &simple);
  status = status == HR_OK ? write_package(c, simple) : status;
  if (status == HR_OK) {
    printf("%s: %d operations, %d constants of %lld bytes\n", c->output, hr_graph_operation_count(simple),
           hr_graph_constant_count(simple), (long long)hr_graph_constant_bytes(simple));
  }
  hr_graph_release(graph);
  hr_graph_release(simple);
  return status;
}

int headrace_convert(int argc, char **argv) {
  static conversion c;
  return parse_arguments(argc, argv, &c) ? headrace_fail(convert(&c)) : 2;
}
