/* error.c: errors of the ABI: a status behind a table of functions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

struct pjrt_error {
  const pjrt_error_table *table; /* first, as the ABI demands */
  hr_status status;
};

static void destroy(pjrt_error *error);
static void message(const pjrt_error *error, const char **out_text, size_t *out_size);
static pjrt_error_code get_code(const pjrt_error *error);
static void for_each_payload(const pjrt_error *error, pjrt_payload_visitor visitor, void *arg) {
  (void)error, (void)visitor, (void)arg; /* there are none */
}

static const pjrt_error_table table = {.struct_size = sizeof table,
                                       .instance_size = sizeof(pjrt_error),
                                       .destroy = destroy,
                                       .message = message,
                                       .get_code = get_code,
                                       .for_each_payload = for_each_payload};
/* Its status is NULL, which no other error has. */
static pjrt_error no_memory = {.table = &table};

static void destroy(pjrt_error *error) {
  if (error != NULL && error != &no_memory) {
    hr_status_free(error->status);
    free(error);
  }
}

static void message(const pjrt_error *error, const char **out_text, size_t *out_size) {
  *out_text = error->status != NULL ? hr_status_message(error->status) : HRJ_PLATFORM ": no host memory for an error";
  *out_size = strlen(*out_text);
}

static pjrt_error_code get_code(const pjrt_error *error) {
  return error->status != NULL ? (pjrt_error_code)hr_status_code_of(error->status) : HR_STATUS_RESOURCE_EXHAUSTED;
}

pjrt_error *hrj_error(hr_status status) {
  if (status == HR_OK) {
    return NULL;
  }
  pjrt_error *error = malloc(sizeof *error);
  if (error == NULL) {
    hr_status_free(status);
    return &no_memory;
  }
  error->table = &table, error->status = status;
  return error;
}

pjrt_error *hrj_error_make(hr_status_code code, const char *format, ...) {
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return hrj_error(hr_status_make(code, "%s", text));
}

pjrt_error *hrj_Error_Destroy(pjrt_args_self *args) {
  destroy(args->self);
  return NULL;
}

pjrt_error *hrj_Error_Message(pjrt_args_text *args) {
  message(args->self, &args->text, &args->text_size);
  return NULL;
}

pjrt_error *hrj_Error_GetCode(pjrt_args_int *args) {
  args->number = get_code(args->self);
  return NULL;
}

/* An error from here would be read the same way, without an end. */
pjrt_error *hrj_Error_ForEachPayload(pjrt_args_payload *args) {
  (void)args;
  return NULL;
}
