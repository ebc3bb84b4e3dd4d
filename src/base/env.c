/* Reads env.def's variables once. All values are parsed before the first warning, because printing reads HEADRACE_DEBUG
 * and HEADRACE_LOG. */
#include "base/env.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/log.h"

#define TEXT_BYTES 4096

typedef enum env_kind { KIND_TUNING, KIND_INT, KIND_BYTES, KIND_LIMIT, KIND_TEXT } env_kind;

typedef struct env_row {
  env_kind kind;
  const char *name, *choices;
  int64_t min, max;
  const char *value, *doc;
} env_row;

#define HR_ENV_CHOICE(name, choices, value, doc) {KIND_TUNING, "HEADRACE_" #name, choices, 0, 0, value, doc},
#define HR_ENV_INT(name, min, max, value, doc) {KIND_INT, "HEADRACE_" #name, NULL, min, max, value, doc},
#define HR_ENV_BYTES(name, value, doc) {KIND_BYTES, "HEADRACE_" #name, NULL, 0, INT64_MAX, value, doc},
#define HR_ENV_LIMIT(name, value, doc) {KIND_LIMIT, "HEADRACE_" #name, NULL, 0, INT64_MAX, value, doc},
#define HR_ENV_TEXT(name, value, doc) {KIND_TEXT, "HEADRACE_" #name, NULL, 0, 0, value, doc},
static const env_row rows[HR_ENV_COUNT] = {
#include "base/env.def"
};

/* A variable's value in use. */
typedef struct env_value {
  int64_t number;        /* integer, bytes, choice or percentage */
  bool percent;          /* LIMIT: `number` is a percentage */
  bool rejected;         /* the environment's text did not parse: `text` is the default */
  char text[TEXT_BYTES]; /* as given, or the default */
} env_value;

/* A context's. */
typedef struct environment {
  pthread_mutex_t mutex; /* guards the loading */
  atomic_bool loaded;
  env_value values[HR_ENV_COUNT];
} environment;

static void init_environment(void *part) {
  environment *env = part;
  pthread_mutex_init(&env->mutex, NULL);
}

static void fini_environment(void *part) {
  environment *env = part;
  pthread_mutex_destroy(&env->mutex);
}

static environment *own(void) {
  static const hr_context_part kind = {
      .bytes = sizeof(environment), .init = init_environment, .fini = fini_environment};
  return hr__context_part(hr__context(), HR_CONTEXT_ENV, &kind);
}

/* The index of `word` in "a|b|c", or -1. */
static int find_choice(const char *choices, const char *word) {
  size_t length = strlen(word);
  int index = 0;
  for (const char *start = choices; start != NULL; ++index) {
    const char *bar = strchr(start, '|');
    size_t span = bar != NULL ? (size_t)(bar - start) : strlen(start);
    if (span == length && memcmp(start, word, length) == 0) {
      return index;
    }
    start = bar != NULL ? bar + 1 : NULL;
  }
  return -1;
}

/* The multiplier of a size suffix; 0 if unknown. */
static int64_t suffix_factor(const char *suffix) {
  static const char letters[] = "KMGT";
  if (suffix[0] == '\0') {
    return 1;
  }
  const char *found = strchr(letters, suffix[0]);
  return found != NULL && suffix[1] == '\0' ? INT64_C(1) << (10 * (found - letters + 1)) : 0;
}

/* Parses a number with its suffix within the row's range. */
static bool parse_number(const env_row *row, const char *text, env_value *out_value) {
  char *end = NULL;
  errno = 0;
  int64_t number = strtoll(text, &end, 10);
  if (end == text || errno != 0) {
    return false;
  }
  if (row->kind == KIND_LIMIT && strcmp(end, "%") == 0) {
    out_value->number = number;
    out_value->percent = true;
    return number >= 1 && number <= 100;
  }
  int64_t factor = row->kind == KIND_INT ? (end[0] == '\0' ? 1 : 0) : suffix_factor(end);
  out_value->percent = false;
  return factor != 0 && !__builtin_mul_overflow(number, factor, &out_value->number) && out_value->number >= row->min &&
         out_value->number <= row->max;
}

static bool parse(const env_row *row, const char *text, env_value *out_value) {
  size_t length = strlen(text);
  if (length >= TEXT_BYTES) {
    return false;
  }
  memcpy(out_value->text, text, length + 1);
  if (row->kind == KIND_TEXT) {
    return true;
  }
  if (row->kind == KIND_TUNING) {
    out_value->number = find_choice(row->choices, text);
    return out_value->number >= 0;
  }
  return parse_number(row, text, out_value);
}

/* Prints the values that a row accepts. */
static void print_expected(const env_row *row, char *out_text, size_t bytes) {
  switch (row->kind) {
    case KIND_TUNING:
      snprintf(out_text, bytes, "one of %s", row->choices);
      break;
    case KIND_INT:
      snprintf(out_text, bytes, "an integer from %lld to %lld", (long long)row->min, (long long)row->max);
      break;
    case KIND_BYTES:
      snprintf(out_text, bytes, "bytes such as 512M (suffix K, M, G or T)");
      break;
    case KIND_LIMIT:
      snprintf(out_text, bytes, "bytes such as 512M (suffix K, M, G or T), or 1%% to 100%%");
      break;
    case KIND_TEXT:
      snprintf(out_text, bytes, "text of less than %d characters", TEXT_BYTES);
      break;
  }
}

static void warn_rejected(const env_row *row) {
  char expected[256];
  const char *given = getenv(row->name);
  print_expected(row, expected, sizeof expected);
  hr_log(HR_LOG_WARNING, "%s=\"%.80s\" is not %s; using \"%s\"", row->name, given != NULL ? given : "", expected,
         row->value);
}

/* An empty variable counts as unset. */
static void read_row(const env_row *row, env_value *out_value) {
  const char *given = getenv(row->name);
  bool set = given != NULL && given[0] != '\0';
  out_value->rejected = set && !parse(row, given, out_value);
  if (!set || out_value->rejected) {
    bool parsed = parse(row, row->value, out_value);
    assert(parsed);
    (void)parsed;
  }
}

static void load(environment *env) {
  pthread_mutex_lock(&env->mutex);
  bool first = !atomic_load(&env->loaded);
  if (first) {
    for (int i = 0; i < HR_ENV_COUNT; ++i) {
      read_row(&rows[i], &env->values[i]);
    }
    atomic_store_explicit(&env->loaded, true, memory_order_release);
  }
  pthread_mutex_unlock(&env->mutex);
  for (int i = 0; first && i < HR_ENV_COUNT; ++i) {
    if (env->values[i].rejected) {
      warn_rejected(&rows[i]);
    }
  }
}

static const env_value *get(hr_env_id id) {
  environment *env = own();
  if (__builtin_expect(!atomic_load_explicit(&env->loaded, memory_order_acquire), 0)) {
    load(env);
  }
  return &env->values[id];
}

int64_t hr_env_int(hr_env_id id) {
  assert(rows[id].kind == KIND_INT || rows[id].kind == KIND_BYTES);
  return get(id)->number;
}

int hr_env_choice(hr_env_id id) {
  assert(rows[id].kind == KIND_TUNING);
  return (int)get(id)->number;
}

const char *hr_env_text(hr_env_id id) {
  assert(rows[id].kind == KIND_TEXT);
  return get(id)->text;
}

int64_t hr_env_limit(hr_env_id id, int64_t total) {
  assert(rows[id].kind == KIND_LIMIT);
  const env_value *value = get(id);
  return value->percent ? total / 100 * value->number + total % 100 * value->number / 100 : value->number;
}

const char *hr_env_system(const char *name) {
  const char *text = getenv(name);
  return text != NULL ? text : "";
}

void hr_env_describe(hr_text *text) {
  for (int i = 0; i < HR_ENV_COUNT; ++i) {
    const env_row *row = &rows[i];
    char expected[256];
    print_expected(row, expected, sizeof expected);
    hr_text_printf(text, "%s=%s\n    %s\n    %s; default \"%s\"\n", row->name, get((hr_env_id)i)->text, row->doc,
                   expected, row->value);
  }
}

void hr__env_reload(void) {
  environment *env = own();
  atomic_store(&env->loaded, false);
  load(env);
}
