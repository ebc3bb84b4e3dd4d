/* Statuses: one heap block each, header and message together. See headrace/status.h for the contract.
 *
 * `hr_status_make` never fails: if the allocator has no memory, it returns a static object, of which each code has one.
 * They have no message of their own and are never freed. */
#include "headrace/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/text.h"

struct hr_status_s {
  hr_status_code code;
  bool heap;           /* false: one of the static objects below */
  const char *message; /* points past the struct, or at a literal */
};

static const char *const code_names[HR_STATUS_CODE_COUNT] = {
    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
};

#define BARE(status_code) \
  [status_code] = {.code = status_code, .message = "no memory was left for this error's message"}

static const struct hr_status_s bare_statuses[HR_STATUS_CODE_COUNT] = {
    BARE(HR_STATUS_CANCELLED),
    BARE(HR_STATUS_UNKNOWN),
    BARE(HR_STATUS_INVALID_ARGUMENT),
    BARE(HR_STATUS_DEADLINE_EXCEEDED),
    BARE(HR_STATUS_NOT_FOUND),
    BARE(HR_STATUS_ALREADY_EXISTS),
    BARE(HR_STATUS_PERMISSION_DENIED),
    [HR_STATUS_RESOURCE_EXHAUSTED] = {.code = HR_STATUS_RESOURCE_EXHAUSTED, .message = "out of memory"},
    BARE(HR_STATUS_FAILED_PRECONDITION),
    BARE(HR_STATUS_ABORTED),
    BARE(HR_STATUS_OUT_OF_RANGE),
    BARE(HR_STATUS_UNIMPLEMENTED),
    BARE(HR_STATUS_INTERNAL),
    BARE(HR_STATUS_UNAVAILABLE),
    BARE(HR_STATUS_DATA_LOSS),
    BARE(HR_STATUS_UNAUTHENTICATED),
};

/* A status with room for `length` characters and a terminator, or NULL. */
static hr_status status_alloc(hr_status_code code, size_t length, char **out_message) {
  hr_status status = hr_malloc(sizeof *status + length + 1);
  if (status == HR_OK) {
    return HR_OK;
  }
  char *message = (char *)(status + 1);
  message[length] = '\0';
  *status = (struct hr_status_s){.code = code, .heap = true, .message = message};
  *out_message = message;
  return status;
}

/* The length of the formatted text; a format that the C library rejects counts as empty. */
HR_PRINTF(1, 0) static size_t printed_length(const char *format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  int length = hr_text_format(NULL, 0, format, copy);
  va_end(copy);
  return length > 0 ? (size_t)length : 0;
}

hr_status hr_status_make(hr_status_code code, const char *format, ...) {
  if (code == HR_STATUS_OK) {
    return HR_OK;
  }
  if ((unsigned)code >= HR_STATUS_CODE_COUNT) {
    code = HR_STATUS_UNKNOWN;
  }
  va_list args;
  va_start(args, format);
  size_t length = printed_length(format, args);
  char *message = NULL;
  hr_status status = status_alloc(code, length, &message);
  if (status != HR_OK) {
    hr_text_format(message, length + 1, format, args);
  }
  va_end(args);
  return status != HR_OK ? status : (hr_status)&bare_statuses[code];
}

hr_status_code hr_status_code_of(hr_status status) {
  return status != HR_OK ? status->code : HR_STATUS_OK;
}

const char *hr_status_message(hr_status status) {
  return status != HR_OK ? status->message : "OK";
}

hr_status hr_status_clone(hr_status status) {
  if (status == HR_OK || !status->heap) {
    return status;
  }
  size_t length = strlen(status->message);
  char *message = NULL;
  hr_status clone = status_alloc(status->code, length, &message);
  if (clone == HR_OK) {
    return (hr_status)&bare_statuses[status->code];
  }
  memcpy(message, status->message, length);
  return clone;
}

hr_status hr_status_annotate(hr_status status, const char *format, ...) {
  if (status == HR_OK) {
    return HR_OK;
  }
  va_list args;
  va_start(args, format);
  size_t context = printed_length(format, args);
  size_t tail = strlen(status->message);
  char *message = NULL;
  hr_status longer = status_alloc(status->code, context + 2 + tail, &message);
  if (longer != HR_OK) {
    hr_text_format(message, context + 1, format, args);
    memcpy(message + context, ": ", 2);
    memcpy(message + context + 2, status->message, tail);
    hr_status_free(status);
  }
  va_end(args);
  return longer != HR_OK ? longer : status;
}

void hr_status_free(hr_status status) {
  if (status != HR_OK && status->heap) {
    hr_free(status);
  }
}

void hr_status_ignore(hr_status status) {
  hr_status_free(status);
}

const char *hr_status_code_name(hr_status_code code) {
  return (unsigned)code < HR_STATUS_CODE_COUNT ? code_names[code] : "UNKNOWN";
}
