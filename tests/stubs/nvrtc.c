/* A library that stands in for libnvrtc.so, for tests without it: the image of a text is a head and the text. */
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 1 };

static const char head[] = "an image of the stub\n";

typedef struct program {
  size_t length;
  char text[];
} program;

int nvrtcStubCompilations; /* since the test set it */

const char *nvrtcGetErrorString(int error) {
  return error == SUCCESS ? "no error" : "an error of the stub";
}

int nvrtcVersion(int *major, int *minor) {
  *major = 99, *minor = 1;
  return SUCCESS;
}

int nvrtcCreateProgram(program **out, const char *text, const char *name, int header_count, const char *const *headers,
                       const char *const *include_names) {
  size_t length = strlen(text);
  (void)name, (void)header_count, (void)headers, (void)include_names;
  *out = malloc(sizeof **out + length);
  if (*out == NULL) {
    return OUT_OF_MEMORY;
  }
  (*out)->length = length;
  memcpy((*out)->text, text, length);
  return SUCCESS;
}

int nvrtcCompileProgram(program *p, int option_count, const char *const *options) {
  (void)p, (void)option_count, (void)options;
  __atomic_add_fetch(&nvrtcStubCompilations, 1, __ATOMIC_RELAXED);
  return SUCCESS;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes) {
  *bytes = sizeof head - 1 + p->length;
  return SUCCESS;
}

int nvrtcGetCUBIN(program *p, char *image) {
  memcpy(image, head, sizeof head - 1);
  memcpy(image + sizeof head - 1, p->text, p->length);
  return SUCCESS;
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes) {
  (void)p;
  *bytes = 0;
  return SUCCESS;
}

int nvrtcGetProgramLog(program *p, char *text) {
  (void)p, (void)text;
  return SUCCESS;
}

int nvrtcDestroyProgram(program **p) {
  free(*p);
  *p = NULL;
  return SUCCESS;
}
