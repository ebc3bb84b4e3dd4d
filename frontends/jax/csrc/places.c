/* places.c: names of operations' places in JAX's programs, for HEADRACE_DUMP and HEADRACE_DEBUG (headrace/profile.h).
 *
 * Programs that run are copied and kept until the process ends: dumps and lines are written later than calls, and on
 * other threads. Nothing is kept unless one of these variables asks for names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/profile.h"
#include "profiler.h"

typedef struct found_place {
  uint32_t origin;
  char *text;
} found_place;

typedef struct kept_program {
  struct kept_program *next;
  uint32_t number;
  char *code;
  size_t code_size;
  found_place *places; /* that were asked for */
  size_t place_count;
} kept_program;

static struct {
  pthread_mutex_t lock;
  kept_program *first;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kept_program *find(uint32_t number) {
  kept_program *program = kept.first;
  while (program != NULL && program->number != number) {
    program = program->next;
  }
  return program;
}

void hrj_places_keep(const pjrt_executable *executable) {
  pthread_mutex_lock(&kept.lock);
  kept_program *program = find(executable->number) == NULL ? calloc(1, sizeof *program) : NULL;
  char *code = program != NULL ? malloc(executable->code_size) : NULL;
  if (code != NULL) {
    memcpy(code, executable->code, executable->code_size);
    *program = (kept_program){kept.first, executable->number, code, executable->code_size, NULL, 0};
    kept.first = program;
  } else {
    free(program);
  }
  pthread_mutex_unlock(&kept.lock);
}

static void set_text(void *arg, int index, const char *name, const char *source) {
  (void)index;
  size_t bytes = strlen(name) + strlen(source) + 2;
  char *text = malloc(bytes);
  if (text != NULL) {
    snprintf(text, bytes, "%s%s%s", name, name[0] != '\0' && source[0] != '\0' ? " " : "", source);
  }
  *(char **)arg = text;
}

/* The text of a place, which is read from the program's file once. NULL without memory. */
static const char *text_of(kept_program *program, uint32_t origin) {
  for (size_t i = 0; i < program->place_count; ++i) {
    if (program->places[i].origin == origin) {
      return program->places[i].text;
    }
  }
  char *text = NULL;
  hr_status_ignore(hr_stablehlo_places(program->code, program->code_size, 1, &origin, set_text, &text));
  found_place *grown = realloc(program->places, (program->place_count + 1) * sizeof *grown);
  if (grown == NULL) {
    free(text);
    return NULL;
  }
  program->places = grown;
  grown[program->place_count++] = (found_place){origin, text};
  return text;
}

static void name_place(uint64_t correlation, char *out_text, size_t bytes) {
  pthread_mutex_lock(&kept.lock);
  kept_program *program = find((uint32_t)(correlation >> 32));
  const char *text = program != NULL && (uint32_t)correlation != 0 ? text_of(program, (uint32_t)correlation) : NULL;
  snprintf(out_text, bytes, "%s", text != NULL ? text : "");
  pthread_mutex_unlock(&kept.lock);
}

void hrj_places_begin(void) {
  if (hr_profile_wants_places()) {
    hr_profile_name_places(name_place);
    atomic_store(&hrj_places_are_wanted, true);
    atomic_store(&hrj_profiler_is_on, true);
  }
}
