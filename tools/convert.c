/* convert.c: `headrace convert`: a model of another format as a package. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "headrace/importer.h"
#include "headrace/package.h"
#include "model.h"

static bool parse_arguments(int argc, char **argv, const char **out_path, const char **out_target, named_values *dims) {
  for (int i = 0; i < argc; ++i) {
    bool has_value = i + 1 < argc;
    if (has_value && (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0)) {
      *out_target = argv[++i];
    } else if (has_value && strcmp(argv[i], "--dim") == 0 && add_named_size(dims, argv[i + 1])) {
      ++i;
    } else if (argv[i][0] != '-' && *out_path == NULL) {
      *out_path = argv[i];
    } else {
      fprintf(stderr,
              "headrace convert: argument \"%s\" is unknown, or has no right value; see `headrace convert --help`\n",
              argv[i]);
      return false;
    }
  }
  if (*out_path == NULL || *out_target == NULL) {
    fprintf(stderr, "headrace convert: a model and -o PACKAGE expected; see `headrace convert --help`\n");
    return false;
  }
  return true;
}

static hr_status convert(const char *path, const char *target, const named_values *dims) {
  hr_graph *graph = NULL, *simple = NULL;
  const char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
  const hr_package_note notes[1] = {{"source", name}};
  HR_RETURN_IF_ERROR(open_model(path, dims, &graph));
  hr_status status = hr_graph_simplify(graph, NULL, &simple);
  status = status == HR_OK ? hr_package_write(simple, target, 1, notes) : status;
  if (status == HR_OK) {
    printf("%s: %d operations, %d constants of %lld bytes\n", target, hr_graph_operation_count(simple),
           hr_graph_constant_count(simple), (long long)hr_graph_constant_bytes(simple));
  }
  hr_graph_release(graph);
  hr_graph_release(simple);
  return status;
}

int headrace_convert(int argc, char **argv) {
  const char *path = NULL, *target = NULL;
  named_values dims = {.count = 0};
  return parse_arguments(argc, argv, &path, &target, &dims) ? headrace_fail(convert(path, target, &dims)) : 2;
}
