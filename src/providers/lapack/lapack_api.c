/* lapack_api.c: finds LAPACK at run time. See lapack_api.h. */
#include "providers/lapack/lapack_api.h"

#include <stdio.h>
#include <string.h>

#include "base/dynlib.h"
#include "base/log.h"
#include "base/places.h"
#include "base/team.h"
#include "base/thread.h"

static void init_library(void *part) {
  hr__lapack_library *library = part;
  hr__vendor_init(&library->vendor);
  hr_mutex_init(&library->threads_mutex);
}

const hr_context_part hr__lapack_library_kind = {.bytes = sizeof(hr__lapack_library), .init = init_library};

static hr__lapack_library *opened(void) {
  return hr__context_part(&hr__context_first, HR_CONTEXT_LAPACK, &hr__lapack_library_kind);
}

typedef struct symbol {
  const char *name, *letters; /* of the element types that it exists for */
} symbol;

static const symbol symbols[] = {
#define ALL "sdcz"
#define REAL "sd"
#define COMPLEX "cz"
#define LAPACK_SYMBOL(kinds, name, args) {#name, kinds},
#include "providers/lapack/lapack_symbols.def"
#undef LAPACK_SYMBOL
#undef ALL
#undef REAL
#undef COMPLEX
};

enum { SYMBOLS = sizeof symbols / sizeof *symbols, NAME_BYTES = 48 };

static hr_status find_symbol(const hr_dynlib *library, const char *prefix, char letter, const char *name, void **out) {
  char full[NAME_BYTES];
  snprintf(full, sizeof full, "%s%c%s_", prefix, letter, name);
  return hr_dynlib_symbol(library, full, out);
}

/* Fills the table, whose pointers are in the order of the list. */
static hr_status find_symbols(const hr_dynlib *library, const char *prefix) {
  void *addresses[sizeof(hr__lapack_table) / sizeof(void *)];
  size_t at = 0;
  for (size_t i = 0; i < SYMBOLS; ++i) {
    for (const char *letter = symbols[i].letters; *letter != '\0'; ++letter) {
      HR_RETURN_IF_ERROR(find_symbol(library, prefix, *letter, symbols[i].name, &addresses[at]));
      ++at;
    }
  }
  memcpy(&opened()->table, addresses, sizeof addresses);
  return HR_OK;
}

static void *find_optional(const hr_dynlib *library, const char *prefix, const char *name) {
  char full[NAME_BYTES];
  void *address = NULL;
  snprintf(full, sizeof full, "%s%s", prefix, name);
  hr_status_ignore(hr_dynlib_symbol(library, full, &address));
  return address;
}

static void find_threads(const hr_dynlib *library, const char *prefix) {
  enum { OPENMP = 2 }; /* openblas_get_parallel's value in that case */
  int (*kind)(void) = NULL;
  void *setter = find_optional(library, prefix, "openblas_set_num_threads");
  void *getter = find_optional(library, prefix, "openblas_get_parallel");
  memcpy(&opened()->set_threads, &setter, sizeof setter);
  memcpy(&kind, &getter, sizeof getter);
  opened()->has_openmp = kind != NULL && kind() == OPENMP;
}

/* OpenBLAS in Python wheels prefixes all names with scipy_. */
static hr_status find_all(const hr_dynlib *library) {
  static const char *const prefixes[] = {"scipy_", ""};
  hr_status status = HR_OK;
  for (int i = 0; i < 2; ++i) {
    hr_status_ignore(status);
    status = find_symbols(library, prefixes[i]);
    if (status == HR_OK) {
      find_threads(library, prefixes[i]);
      return HR_OK;
    }
  }
  return status;
}

static hr_status open_library(void) {
  hr_dynlib library = {0};
  hr_text path = {0};
  hr_status status = hr_places_open(&hr_place_lapack, &path, &library);
  hr_log(HR_LOG_DEVICE, "LAPACK: %s", status == HR_OK ? hr_text_chars(&path) : hr_status_message(status));
  hr_text_fini(&path);
  HR_RETURN_IF_ERROR(status);
  status = find_all(&library);
  if (status != HR_OK) {
    hr_dynlib_close(&library);
  }
  return status;
}

static hr_status open_and_report(void) {
  hr_status status = open_library();
  hr_log(HR_LOG_DEVICE, "LAPACK: %s", hr_status_message(status));
  if (status == HR_OK) {
    if (opened()->set_threads != NULL) {
      opened()->set_threads(1);
    }
    return HR_OK;
  }
  hr_status missing = hr_status_make(
      HR_STATUS_UNIMPLEMENTED, "needs OpenBLAS (`pip install scipy-openblas32`, or HEADRACE_LAPACK with a path): %s",
      hr_status_message(status));
  hr_status_free(status);
  return missing;
}

hr_status hr__lapack_open(void) {
  return hr__vendor_open(&opened()->vendor, open_and_report);
}

/* The library's own threads would stay beside our team's; OpenMP loops would add a third set to the same cores. */
static void leave_cores(int threads) {
  if (opened()->has_openmp) {
    hr_library_enters(threads);
  } else {
    hr__team_rest();
  }
}

void hr__lapack_threads_begin(int count) {
  hr__lapack_library *library = opened();
  hr_mutex_lock(&library->threads_mutex);
  if (library->set_threads != NULL) {
    leave_cores(count);
    library->set_threads(count);
  }
}

void hr__lapack_threads_end(void) {
  hr__lapack_library *library = opened();
  if (library->set_threads != NULL) {
    library->set_threads(1);
  }
  hr_mutex_unlock(&library->threads_mutex);
}
