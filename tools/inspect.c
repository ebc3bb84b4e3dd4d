/* inspect.c: `headrace inspect`: describes a package. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "graph/graph_node.h"
#include "graph_svg.h"
#include "headrace/package.h"
#include "model.h"

static void print_type(const hr_graph *graph, const char *name, hr_value value) {
  hr_text type = {0};
  hr__graph_print_type(graph, value, &type);
  printf("  %-24s %s\n", name, hr_text_chars(&type));
  hr_text_fini(&type);
}

typedef struct use {
  hr_functional function;
  int count;
} use;

static int by_count(const void *a, const void *b) {
  const use *x = a, *y = b;
  return x->count != y->count ? y->count - x->count : (int)x->function - (int)y->function;
}

static void count_uses(const hr_graph *graph, use *uses) {
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    uses[graph->nodes.data[n].function].count += graph->nodes.data[n].kind == HR__NODE_CALL;
  }
}

/* Counts of calls by function, in the graph and its inner graphs, most often first. */
static void print_functions(const hr_graph *graph) {
  use uses[HR_FUNCTIONAL_COUNT] = {{0}};
  int operations = hr_graph_operation_count(graph), inner = hr_graph_inner_count(graph);
  for (int i = 0; i < HR_FUNCTIONAL_COUNT; ++i) {
    uses[i].function = (hr_functional)i;
  }
  count_uses(graph, uses);
  for (int i = 0; i < inner; ++i) {
    count_uses(hr_graph_inner(graph, i), uses);
    operations += hr_graph_operation_count(hr_graph_inner(graph, i));
  }
  qsort(uses, HR_FUNCTIONAL_COUNT, sizeof *uses, by_count);
  printf("operations %d", operations);
  printf(inner > 0 ? ", also of %d graphs inside\n" : "\n", inner);
  for (int i = 0; i < HR_FUNCTIONAL_COUNT && uses[i].count > 0; ++i) {
    printf("  %-24s %d\n", hr_functional_name(uses[i].function), uses[i].count);
  }
}

/* Any file's text, without the control characters to which a terminal may react. */
static void print_printable(const char *text, int width) {
  int count = 0;
  for (; text[count] != '\0'; ++count) {
    unsigned char c = (unsigned char)text[count];
    bool is_control =
        c < ' ' || c == 127 || (c >= 0x80 && c < 0xa0 && count > 0 && (unsigned char)text[count - 1] == 0xc2);
    putchar(is_control ? '?' : c);
  }
  printf("%*s", count < width ? width - count : 0, "");
}

static void describe_package(const char *path, const hr_package *package) {
  long long kernels = (long long)hr_package_kernel_bytes(package);
  printf("%s: %lld bytes, %lld of text\n", path, (long long)hr_package_bytes(package),
         (long long)hr_package_text_bytes(package));
  if (kernels > 0) {
    printf("  %lld bytes of kernels, which are used with --trust alone\n", kernels);
  }
  for (int i = 0; i < hr_package_note_count(package); ++i) {
    const hr_package_note note = hr_package_note_at(package, i);
    printf("  ");
    print_printable(note.key, 24);
    printf(" ");
    print_printable(note.value, 0);
    printf("\n");
  }
}

static void describe(const hr_graph *graph) {
  printf("inputs\n");
  for (int i = 0; i < hr_graph_input_count(graph); ++i) {
    hr_value value = hr_graph_input_value(graph, i);
    print_type(graph, hr_graph_value_name(graph, value), value);
  }
  printf("outputs\n");
  for (int i = 0; i < hr_graph_output_count(graph); ++i) {
    print_type(graph, hr_graph_output_name(graph, i), hr_graph_output_value(graph, i));
  }
  for (int i = 0; i < hr_graph_variable_count(graph); ++i) {
    hr_value value = hr_graph_variable_value(graph, i);
    printf(i == 0 ? "variables\n" : "");
    print_type(graph, hr_graph_value_name(graph, value), value);
  }
  printf("symbols");
  for (int i = 0; i < hr_graph_symbol_count(graph); ++i) {
    printf(" %s", hr_graph_symbol_name(graph, i));
  }
  printf("\nconstants %d, %lld bytes\n", hr_graph_constant_count(graph), (long long)hr_graph_constant_bytes(graph));
  print_functions(graph);
}

static hr_status write_text(void *arg, const void *bytes, size_t count) {
  return fwrite(bytes, 1, count, arg) == count ? HR_OK
                                               : hr_status_make(HR_STATUS_UNAVAILABLE, "the text can't be written");
}

typedef struct inspection {
  const char *path, *picture; /* picture: NULL: none */
  bool prints, verifies;
  hr_package *package; /* NULL: the graph is that of another file */
  hr_graph *graph;
} inspection;

/* The graph as a picture in a file. */
static hr_status draw(const inspection *n) {
  hr_text text = {0};
  hr_status status = graph_svg(n->graph, &text);
  FILE *file = status == HR_OK ? fopen(n->picture, "wb") : NULL;
  bool is_written = file != NULL && fwrite(hr_text_chars(&text), 1, text.length, file) == text.length;
  is_written = (file == NULL || fclose(file) == 0) && is_written;
  if (status == HR_OK && !is_written) {
    status = hr_status_make(HR_STATUS_UNAVAILABLE, "%s can't be written", n->picture);
  }
  hr_text_fini(&text);
  return status;
}

static hr_status inspect(const inspection *n) {
  if (n->verifies && n->package != NULL) {
    HR_RETURN_IF_ERROR(hr_package_verify(n->package));
    printf("%s: all hashes are right\n", n->path);
  }
  if (n->picture != NULL) {
    return draw(n);
  }
  if (n->prints) {
    return hr_graph_print(n->graph, write_text, stdout);
  }
  if (n->package != NULL) {
    describe_package(n->path, n->package);
  }
  describe(n->graph);
  return HR_OK;
}

static bool parse_arguments(inspection *n, int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--graph") == 0) {
      n->prints = true;
    } else if (strcmp(argv[i], "--verify") == 0) {
      n->verifies = true;
    } else if (strcmp(argv[i], "--svg") == 0 && i + 1 < argc) {
      n->picture = argv[++i];
    } else if (argv[i][0] != '-' && n->path == NULL) {
      n->path = argv[i];
    } else {
      headrace_bad_argument("inspect", argv[i]);
      return false;
    }
  }
  if (n->path == NULL) {
    headrace_missing("inspect", "a file");
  }
  return n->path != NULL;
}

int headrace_inspect(int argc, char **argv) {
  inspection n = {.path = NULL};
  if (!parse_arguments(&n, argc, argv)) {
    return 2;
  }
  bool is_package = hr_package_is_file(n.path) || !is_model(n.path);
  hr_status status = is_package ? hr_package_open(n.path, &n.package) : open_model(n.path, NULL, &n.graph);
  status = status == HR_OK && n.package != NULL ? hr_package_graph(n.package, &n.graph) : status;
  status = status == HR_OK ? inspect(&n) : status;
  hr_graph_release(n.graph);
  hr_package_close(n.package);
  return headrace_fail(status);
}
