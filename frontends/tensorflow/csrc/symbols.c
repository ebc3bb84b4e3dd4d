/* symbols.c: finds TensorFlow's functions in the libraries that the process has loaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tf.h"

tf_symbols tf;

typedef struct libraries {
  void *handles[3];
} libraries;

static libraries open_loaded(void) {
  libraries found = {.handles = {RTLD_DEFAULT, dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD),
                                 dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD)}};
  return found;
}

static void *find(const libraries *loaded, const char *name) {
  void *symbol = dlsym(loaded->handles[0], name);
  for (int i = 1; i < 3 && symbol == NULL; ++i) {
    symbol = loaded->handles[i] != NULL ? dlsym(loaded->handles[i], name) : NULL;
  }
  return symbol;
}

/* A function of TensorFlow's own C++, without a C interface. */
bool tf_is_deterministic(void) {
  libraries loaded = open_loaded();
  bool (*is_required)(void) = (bool (*)(void))find(&loaded, "_ZN3tsl21OpDeterminismRequiredEv");
  return is_required != NULL && is_required();
}

bool tf_resolve(size_t bytes, char *text) {
  libraries loaded = open_loaded();
  const char *missing = NULL;
#define RESOLVE(prefix, name)                            \
  if ((tf.name = find(&loaded, prefix #name)) == NULL) { \
    missing = missing != NULL ? missing : prefix #name;  \
  }
#define SYMBOL(result, name, arguments) RESOLVE("TF_", name)
#include "symbols.def"
#undef SYMBOL
#define SYMBOL(result, name, arguments) RESOLVE("TFE_", name)
#include "eager.def"
#undef SYMBOL
  if (tf.Version == NULL) {
    snprintf(text, bytes, "the process has no TensorFlow");
    return false;
  }
  if (strcmp(tf.Version(), TF_TESTED_VERSION) != 0) {
    snprintf(text, bytes, "this is tensorflow %s; the device needs " TF_TESTED_VERSION, tf.Version());
    return false;
  }
  if (missing != NULL) {
    snprintf(text, bytes, "this tensorflow lacks %s; the device needs the full wheel, not tensorflow-cpu", missing);
    return false;
  }
  return true;
}
