/* A test runner in one header, so that the C tests need only a C compiler.
 *
 *   #include "hr_test.h"
 *
 *   HR_TEST(addition_adds) {
 *     HR_ASSERT_EQ(1 + 1, 2);
 *   }
 *
 * Each file that includes it is one executable: the header defines `main`, which runs the tests in the order of the
 * file and prints a summary in cmocka's form. An argument runs only the tests whose name contains it; `--list` lists
 * them. A failed assertion ends its test at once, also from a helper function, but only on the test's own thread.
 */
#ifndef HEADRACE_TESTS_HR_TEST_H_
#define HEADRACE_TESTS_HR_TEST_H_

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "headrace/status.h"

typedef struct hr_test_case {
  const char *name;
  void (*run)(void);
  struct hr_test_case *next;
} hr_test_case;

/* Under a sanitizer, which makes the core some ten times slower, this share of the work is done; see hr_test_count. */
#ifndef HR_TEST_SHARE
#define HR_TEST_SHARE 1
#endif

static hr_test_case *hr_test_first, **hr_test_end = &hr_test_first;
static jmp_buf hr_test_exit;
enum { HR_TEST_FAILED = 1, HR_TEST_SKIPPED = 2 };

/* Defines a test and adds it to the list before `main` starts. */
#define HR_TEST(test_name)                                                                \
  static void test_name(void);                                                            \
  __attribute__((constructor)) static void hr_test_register_##test_name(void) {           \
    static hr_test_case test_case = {.name = #test_name, .run = test_name, .next = NULL}; \
    *hr_test_end = &test_case;                                                            \
    hr_test_end = &test_case.next;                                                        \
  }                                                                                       \
  static void test_name(void)

__attribute__((noreturn, format(printf, 3, 4))) static inline void hr_test_fail(const char *file, int line,
                                                                                const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s:%d: error: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  longjmp(hr_test_exit, HR_TEST_FAILED);
}

#define HR_FAIL(...) hr_test_fail(__FILE__, __LINE__, __VA_ARGS__)

/* Ends the test as skipped, with a reason. */
#define HR_SKIP(reason)                         \
  do {                                          \
    fprintf(stderr, "skipped: %s\n", (reason)); \
    longjmp(hr_test_exit, HR_TEST_SKIPPED);     \
  } while (0)

#define HR_ASSERT(condition)               \
  do {                                     \
    if (!(condition)) {                    \
      HR_FAIL("not true: %s", #condition); \
    }                                      \
  } while (0)

#define HR_ASSERT_NULL(pointer) HR_ASSERT((pointer) == NULL)
#define HR_ASSERT_NOT_NULL(pointer) HR_ASSERT((pointer) != NULL)

/* Integers, enums and booleans. */
#define HR_ASSERT_EQ(actual, expected)                                                                   \
  do {                                                                                                   \
    long long hr_test_actual_ = (long long)(actual), hr_test_expected_ = (long long)(expected);          \
    if (hr_test_actual_ != hr_test_expected_) {                                                          \
      HR_FAIL("%s is %lld, expected %s = %lld", #actual, hr_test_actual_, #expected, hr_test_expected_); \
    }                                                                                                    \
  } while (0)

#define HR_ASSERT_STR_EQ(actual, expected)                                                              \
  do {                                                                                                  \
    const char *hr_test_actual_ = (actual), *hr_test_expected_ = (expected);                            \
    if (hr_test_actual_ == NULL || strcmp(hr_test_actual_, hr_test_expected_) != 0) {                   \
      HR_FAIL("%s is\n%s\nexpected\n%s", #actual, hr_test_actual_ != NULL ? hr_test_actual_ : "(null)", \
              hr_test_expected_);                                                                       \
    }                                                                                                   \
  } while (0)

/* `part` occurs in `text`. */
#define HR_ASSERT_CONTAINS(text, part)                                                                          \
  do {                                                                                                          \
    const char *hr_test_text_ = (text);                                                                         \
    if (hr_test_text_ == NULL || strstr(hr_test_text_, (part)) == NULL) {                                       \
      HR_FAIL("%s is\n%s\nexpected it to contain\n%s", #text, hr_test_text_ != NULL ? hr_test_text_ : "(null)", \
              (part));                                                                                          \
    }                                                                                                           \
  } while (0)

#define HR_ASSERT_BYTES_EQ(actual, expected, count)                                                     \
  do {                                                                                                  \
    const unsigned char *hr_test_a_ = (const void *)(actual), *hr_test_e_ = (const void *)(expected);   \
    for (size_t hr_test_i_ = 0; hr_test_i_ < (size_t)(count); ++hr_test_i_) {                           \
      if (hr_test_a_[hr_test_i_] != hr_test_e_[hr_test_i_]) {                                           \
        HR_FAIL("%s: byte %zu is 0x%02x, expected 0x%02x", #actual, hr_test_i_, hr_test_a_[hr_test_i_], \
                hr_test_e_[hr_test_i_]);                                                                \
      }                                                                                                 \
    }                                                                                                   \
  } while (0)

/* |actual - expected| <= tolerance, or both NaN, or the same infinity. */
#define HR_ASSERT_NEAR(actual, expected, tolerance)                                                                    \
  do {                                                                                                                 \
    double hr_test_actual_ = (double)(actual), hr_test_expected_ = (double)(expected);                                 \
    bool hr_test_same_ = hr_test_actual_ == hr_test_expected_ || (isnan(hr_test_actual_) && isnan(hr_test_expected_)); \
    if (!hr_test_same_ && !(fabs(hr_test_actual_ - hr_test_expected_) <= (double)(tolerance))) {                       \
      HR_FAIL("%s is %.17g, expected %.17g within %g", #actual, hr_test_actual_, hr_test_expected_,                    \
              (double)(tolerance));                                                                                    \
    }                                                                                                                  \
  } while (0)

/* Fails with the status's message; consumes the status. */
static inline void hr_test_ok(const char *file, int line, const char *text, hr_status status) {
  if (status != HR_OK) {
    char message[1024];
    snprintf(message, sizeof message, "%s: %s", hr_status_code_name(hr_status_code_of(status)),
             hr_status_message(status));
    hr_status_ignore(status);
    hr_test_fail(file, line, "%s failed: %s", text, message);
  }
}

#define HR_ASSERT_OK(expr) hr_test_ok(__FILE__, __LINE__, #expr, (expr))

/* `expr` fails with `code` and a message that contains `part` ("" for any); consumes the status. */
static inline void hr_test_status(const char *file, int line, const char *text, hr_status status, hr_status_code code,
                                  const char *part) {
  char message[1024];
  hr_status_code actual = hr_status_code_of(status);
  snprintf(message, sizeof message, "%s", hr_status_message(status));
  hr_status_ignore(status);
  if (actual != code || strstr(message, part) == NULL) {
    hr_test_fail(file, line, "%s gave %s: %s, expected %s: ...%s...", text, hr_status_code_name(actual), message,
                 hr_status_code_name(code), part);
  }
}

#define HR_ASSERT_STATUS(expr, code) hr_test_status(__FILE__, __LINE__, #expr, (expr), (code), "")
#define HR_ASSERT_ERROR(expr, code, part) hr_test_status(__FILE__, __LINE__, #expr, (expr), (code), (part))

/* Runs `fn` with the first allocation failing, then the second, and so on, until no allocation fails. Each run with a
 * failure must return an error, and no run may leak memory. `fn` runs twice before, so that allocations made once per
 * process do not count: the second run may start a thread that the first one did not need (base/late.h). */
static inline void hr_test_oom(const char *file, int line, const char *text, hr_status (*fn)(void)) {
  hr_test_ok(file, line, text, fn());
  hr_test_ok(file, line, text, fn());
  int64_t live = hr__allocator_live();
  for (int64_t n = 0;; ++n) {
    hr__allocator_fail_after(n);
    hr_status status = fn();
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    bool failed = status != HR_OK;
    hr_status_ignore(status);
    if (hr__allocator_live() != live) {
      hr_test_fail(file, line, "%s leaked %lld blocks when allocation %lld failed", text,
                   (long long)(hr__allocator_live() - live), (long long)n);
    }
    if (failed != (failures > 0)) {
      hr_test_fail(file, line, "%s returned %s although %lld allocations failed from number %lld on", text,
                   failed ? "an error" : "OK", (long long)failures, (long long)n);
    }
    if (!failed) {
      return;
    }
  }
}

#define HR_TEST_OOM(fn) hr_test_oom(__FILE__, __LINE__, #fn, (fn))

/* How many random cases to check: `count`, under a sanitizer a share of it. */
static inline int64_t hr_test_count(int64_t count) {
  return (count + HR_TEST_SHARE - 1) / HR_TEST_SHARE;
}

/* True if case number n, from 0, of a table or a product of tables is checked: always, under a sanitizer for every
 * third, so that each row of each table of other than three rows has its turn. */
static inline bool hr_test_takes(int64_t n) {
  return HR_TEST_SHARE == 1 || n % 3 == 0;
}

/* 0, HR_TEST_FAILED or HR_TEST_SKIPPED. */
static inline int hr_test_run(const hr_test_case *test_case) {
  fprintf(stderr, "[ RUN      ] %s\n", test_case->name);
  int outcome = setjmp(hr_test_exit);
  if (outcome == 0) {
    test_case->run();
  }
  hr__allocator_fail_after(-1);
  static const char *const words[] = {"[       OK ]", "[  FAILED  ]", "[  SKIPPED ]"};
  fprintf(stderr, "%s %s\n", words[outcome], test_case->name);
  return outcome;
}

int main(int argc, char **argv) {
  const char *filter = argc > 1 ? argv[1] : "";
  bool list = strcmp(filter, "--list") == 0;
  int counts[3] = {0, 0, 0};
  for (const hr_test_case *test_case = hr_test_first; test_case != NULL; test_case = test_case->next) {
    if (list) {
      puts(test_case->name);
    } else if (strstr(test_case->name, filter) != NULL) {
      ++counts[hr_test_run(test_case)];
    }
  }
  if (list) {
    return 0;
  }
  fprintf(stderr, "[==========] %d test(s) run.\n[  PASSED  ] %d test(s).\n", counts[0] + counts[1] + counts[2],
          counts[0]);
  if (counts[HR_TEST_SKIPPED] > 0) {
    fprintf(stderr, "[  SKIPPED ] %d test(s).\n", counts[HR_TEST_SKIPPED]);
  }
  if (counts[HR_TEST_FAILED] > 0) {
    fprintf(stderr, "[  FAILED  ] %d test(s).\n", counts[HR_TEST_FAILED]);
  }
  return counts[HR_TEST_FAILED] > 0 ? 1 : 0;
}

#endif /* HEADRACE_TESTS_HR_TEST_H_ */
