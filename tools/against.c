/* against.c: see against.h. */
#include "against.h"

#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "headrace/package.h"
#include "model.h"

enum { TEXT_MAX = 1024, PATH_SIZE = 4096, OWN_WORDS = 7 };

/* ---- the command line ---- */

__attribute__((format(printf, 2, 3))) static hr_status add(against *runs, const char *format, ...) {
  char text[TEXT_MAX];
  va_list values;
  va_start(values, format);
  int length = vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (length >= TEXT_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "--against: a name of %d bytes is too long", length);
  }
  if (runs->count + 2 > runs->capacity) {
    size_t capacity = 2 * runs->capacity + 16;
    char **data = realloc(runs->data, capacity * sizeof *data);
    if (data == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "--against: no memory for arguments");
    }
    runs->data = data, runs->capacity = capacity;
  }
  runs->data[runs->count] = strdup(text);
  if (runs->data[runs->count] == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "--against: no memory for arguments");
  }
  runs->data[++runs->count] = NULL;
  return HR_OK;
}

static hr_status add_input(against *runs, const char *name, const hr_tensor *x) {
  char dims[TEXT_MAX] = "";
  size_t length = 0;
  for (int d = 0; d < x->rank; ++d) {
    length += (size_t)snprintf(dims + length, sizeof dims - length, "%s%lld", d > 0 ? "," : "", (long long)x->dims[d]);
  }
  HR_RETURN_IF_ERROR(add(runs, "--input"));
  HR_RETURN_IF_ERROR(add(runs, "%s", name));
  HR_RETURN_IF_ERROR(add(runs, "%s", hr_dtype_name(x->dtype)));
  return add(runs, "%s", dims);
}

hr_status against_add(against *runs, int64_t batch, const hr_graph *graph, int input_count, const hr_tensor *inputs) {
  HR_RETURN_IF_ERROR(add(runs, "--batch"));
  HR_RETURN_IF_ERROR(add(runs, "%lld", (long long)batch));
  for (int i = 0; i < input_count; ++i) {
    HR_RETURN_IF_ERROR(add_input(runs, hr_graph_value_name(graph, hr_graph_input_value(graph, i)), &inputs[i]));
  }
  return HR_OK;
}

void against_free(against *runs) {
  for (size_t i = 0; i < runs->count; ++i) {
    free(runs->data[i]);
  }
  free(runs->data);
  *runs = (against){0};
}

/* ---- processes ---- */

/* The interpreter beside this command, or that of the virtual environment; else the one of PATH. */
static const char *find_python(char *path) {
  ssize_t length = readlink("/proc/self/exe", path, PATH_SIZE - sizeof "python3");
  char *slash = length > 0 ? memrchr(path, '/', (size_t)length) : NULL;
  if (slash != NULL) {
    memcpy(slash + 1, "python3", sizeof "python3");
    if (access(path, X_OK) == 0) {
      return path;
    }
  }
  const char *environment = getenv("VIRTUAL_ENV");
  snprintf(path, PATH_SIZE, "%s/bin/python3", environment != NULL ? environment : "");
  return environment != NULL && access(path, X_OK) == 0 ? path : "python3";
}

static hr_status run_engine(const against *runs, const char *engine, char *path, double seconds, hr_dtype products) {
  extern char **environ;
  char python[PATH_SIZE], text[64], module[] = "headrace._engines", option[] = "-m";
  const char *program = find_python(python), *precision = products == HR_DTYPE_NONE ? "f32" : hr_dtype_name(products);
  snprintf(text, sizeof text, "%g", seconds);
  char **words = calloc(OWN_WORDS + runs->count + 1, sizeof *words);
  if (words == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "--against: no memory for arguments");
  }
  memcpy(words, (char *[]){(char *)program, option, module, (char *)engine, path, text, (char *)precision},
         OWN_WORDS * sizeof *words);
  memcpy(words + OWN_WORDS, runs->data, runs->count * sizeof *words);
  pid_t child;
  int outcome = 0, code = posix_spawnp(&child, program, NULL, NULL, words, environ);
  free(words);
  if (code != 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "--against: %s: %s", program, strerror(code));
  }
  return waitpid(child, &outcome, 0) == child && outcome == 0
             ? HR_OK
             : hr_status_make(HR_STATUS_ABORTED, "--against: %s failed; see the lines above", engine);
}

/* ---- the engines ---- */

static const char *const known_engines[] = {"onnxruntime", "openvino"};

/* The engine whose name begins a list; NULL: it is unknown. */
static const char *first_engine(const char *names) {
  size_t length = strcspn(names, ",");
  for (size_t i = 0; i < sizeof known_engines / sizeof *known_engines; ++i) {
    if (strlen(known_engines[i]) == length && strncmp(known_engines[i], names, length) == 0) {
      return known_engines[i];
    }
  }
  return NULL;
}

static const char *behind_first(const char *names) {
  const char *comma = strchr(names, ',');
  return comma != NULL ? comma + 1 : NULL;
}

hr_status against_check(const char *engines, const char *path) {
  for (const char *rest = engines; rest != NULL; rest = behind_first(rest)) {
    if (first_engine(rest) == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "--against: \"%.*s\" is unknown; expected %s or %s",
                            (int)strcspn(rest, ","), rest, known_engines[0], known_engines[1]);
    }
  }
  if (hr_package_is_file(path)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "--against: %s is no ONNX model; other engines read the file from which a package was made",
                          path);
  }
  return HR_OK;
}

hr_status against_run(const against *runs, const char *engines, const char *path, double seconds, hr_dtype products) {
  char *file = strdup(path);
  hr_status status =
      file != NULL ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "--against: no memory for arguments");
  for (const char *rest = engines; status == HR_OK && rest != NULL; rest = behind_first(rest)) {
    status = run_engine(runs, first_engine(rest), file, seconds, products);
  }
  free(file);
  return status;
}
