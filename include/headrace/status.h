/* status.h: the result of every function that can fail.
 *
 * An `hr_status` is a pointer. NULL means OK, so success costs a compare with zero. Anything else is an object with a
 * code and a message; callers put context in front of the message as the status moves up.
 *
 * Ownership: the caller owns a returned status. It passes the status on, or ends it with `hr_status_free` or
 * `hr_status_ignore`. `hr_status_annotate` consumes its argument. Compilers warn if a status is dropped.
 *
 * Memory: if there is no memory for the message, a static object with the right code takes its place. Making a status
 * never fails.
 *
 * Threads: a status belongs to one thread at a time; static objects are immutable.
 */
#ifndef HEADRACE_STATUS_H_
#define HEADRACE_STATUS_H_

#include <stddef.h>

#if defined(__GNUC__) || defined(__clang__)
/* Marks the symbols that the shared library exports; all others are hidden. */
#define HR_API __attribute__((visibility("default")))
/* The result must not be dropped. */
#define HR_MUST_USE __attribute__((warn_unused_result))
/* Argument number `at` is a printf format whose arguments start at number `first` (0: a va_list). */
#define HR_PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define HR_API
#define HR_MUST_USE
#define HR_PRINTF(at, first)
#endif

#ifdef __cplusplus
#define HR_EXTERN_C_BEGIN extern "C" {
#define HR_EXTERN_C_END }
#else
#define HR_EXTERN_C_BEGIN
#define HR_EXTERN_C_END
#endif

HR_EXTERN_C_BEGIN

/* The canonical codes, numbered as absl, PJRT and TensorFlow number them: plug-ins map by cast. */
typedef enum hr_status_code {
  HR_STATUS_OK = 0,
  HR_STATUS_CANCELLED = 1,           /* the caller gave up */
  HR_STATUS_UNKNOWN = 2,             /* a foreign error with no better code */
  HR_STATUS_INVALID_ARGUMENT = 3,    /* wrong in any state of the system: shapes, dtypes, NULL */
  HR_STATUS_DEADLINE_EXCEEDED = 4,   /* a wait ran out of time */
  HR_STATUS_NOT_FOUND = 5,           /* a name, file, symbol or device that isn't there */
  HR_STATUS_ALREADY_EXISTS = 6,      /* a name that is taken */
  HR_STATUS_PERMISSION_DENIED = 7,   /* the system refused */
  HR_STATUS_RESOURCE_EXHAUSTED = 8,  /* out of memory, of handles, of space */
  HR_STATUS_FAILED_PRECONDITION = 9, /* right call, wrong state */
  HR_STATUS_ABORTED = 10,            /* discarded because something before it failed */
  HR_STATUS_OUT_OF_RANGE = 11,       /* an index that data or a caller gave is past the end */
  HR_STATUS_UNIMPLEMENTED = 12,      /* not offered by this build, device or provider */
  HR_STATUS_INTERNAL = 13,           /* a bug in this library */
  HR_STATUS_UNAVAILABLE = 14,        /* a device or library that can't be reached now */
  HR_STATUS_DATA_LOSS = 15,          /* a file or message that is damaged */
  HR_STATUS_UNAUTHENTICATED = 16
} hr_status_code;

#define HR_STATUS_CODE_COUNT 17

typedef struct hr_status_s *hr_status;

/* OK, for return statements. */
#define HR_OK ((hr_status)NULL)

/* Creates a status from a code and a printf format. HR_STATUS_OK gives NULL; a number outside the table gives
 * HR_STATUS_UNKNOWN. Name the actual and the expected value: "matmul: inner sizes differ: 4 != 5". */
HR_API HR_MUST_USE hr_status hr_status_make(hr_status_code code, const char *format, ...) HR_PRINTF(2, 3);

/* The code; HR_STATUS_OK for NULL. */
HR_API hr_status_code hr_status_code_of(hr_status status);

/* The message, borrowed until the status ends; "OK" for NULL. Never NULL. */
HR_API const char *hr_status_message(hr_status status);

/* A second status with the same code and message, owned separately. */
HR_API HR_MUST_USE hr_status hr_status_clone(hr_status status);

/* Puts context in front of the message ("context: message"); consumes `status`. NULL stays NULL. If memory is short,
 * the message stays as it was. */
HR_API HR_MUST_USE hr_status hr_status_annotate(hr_status status, const char *format, ...) HR_PRINTF(2, 3);

/* Ends a status; NULL is fine. */
HR_API void hr_status_free(hr_status status);

/* The same, for a caller to whom the failure does not matter. */
HR_API void hr_status_ignore(hr_status status);

/* "INVALID_ARGUMENT" and so on, static; "UNKNOWN" for a number outside the table. */
HR_API const char *hr_status_code_name(hr_status_code code);

/* Leaves the enclosing function with the status of `expr` unless it is OK. */
#define HR_RETURN_IF_ERROR(expr)          \
  do {                                    \
    hr_status hr_return_status_ = (expr); \
    if (hr_return_status_ != HR_OK) {     \
      return hr_return_status_;           \
    }                                     \
  } while (0)

#define HR_CHECK_OK(expr) HR_RETURN_IF_ERROR(expr)

HR_EXTERN_C_END

#endif /* HEADRACE_STATUS_H_ */
