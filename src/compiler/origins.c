/* origins.c: the recorded operations that each step of a schedule computes, for profiles.
 *
 * The lists are made while the nodes exist and take about a byte for each operation, since a cache keeps many
 * schedules: for each step its number of operations, then the ascending numbers of the operations, each as the
 * difference from the one before. 7 bits a byte, lowest first; bit 7 is set in all bytes of a number but its last.
 */
#include <stdlib.h>

#include "base/vector.h"
#include "compiler/compile.h"

/* ---- writing ---- */

static void put_number(hr_origin_writer *writer, uint32_t number) {
  for (; number >= 128; number >>= 7) {
    writer->failed |= !hr_vector_push(&writer->bytes, (uint8_t)(number | 128));
  }
  writer->failed |= !hr_vector_push(&writer->bytes, (uint8_t)number);
}

void hr_origins_put_count(hr_origin_writer *writer, uint32_t count) {
  writer->last = 0;
  put_number(writer, count);
}

void hr_origins_put(hr_origin_writer *writer, uint32_t origin) {
  put_number(writer, origin - writer->last);
  writer->last = origin;
}

/* ---- the lists of a schedule ---- */

typedef struct lists {
  HR_VECTOR(uint32_t) step; /* of one step */
  hr_origin_writer writer;
  bool failed;
} lists;

static void add_origin(lists *l, uint32_t origin) {
  l->failed |= origin != HR_NO_ORIGIN && !hr_vector_push(&l->step, origin);
}

/* In order: an epilogue has the origin of the value before it. */
static void add_node(lists *l, const hr_node *node) {
  for (int i = 0; i < node->epilogue_count; ++i) {
    add_origin(l, node->epilogues[i].origin);
  }
  add_origin(l, node->origin);
}

static int compare_numbers(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

size_t hr__sort_unique(uint32_t *numbers, size_t count) {
  size_t unique = 0, sorted = 1;
  while (sorted < count && numbers[sorted - 1] <= numbers[sorted]) {
    ++sorted;
  }
  if (sorted < count) {
    qsort(numbers, count, sizeof *numbers, compare_numbers);
  }
  for (size_t i = 0; i < count; ++i) {
    if (unique == 0 || numbers[unique - 1] != numbers[i]) {
      numbers[unique++] = numbers[i];
    }
  }
  return unique;
}

static void add_step(lists *l, const hr_program *program, const hr_step *step) {
  hr_vector_clear(&l->step);
  for (int i = 0; i < step->node_count; ++i) {
    add_node(l, &program->nodes[step->nodes[i]]);
  }
  l->step.count = hr__sort_unique(l->step.data, l->step.count);
  hr_origins_put_count(&l->writer, (uint32_t)l->step.count);
  for (size_t i = 0; i < l->step.count; ++i) {
    hr_origins_put(&l->writer, l->step.data[i]);
  }
}

hr_status hr_find_origins(hr_schedule *schedule) {
  lists l = {.failed = false};
  for (int i = 0; i < schedule->step_count; ++i) {
    add_step(&l, &schedule->program, &schedule->steps[i]);
  }
  schedule->origins = hr_arena_dup(&schedule->program.arena, l.writer.bytes.data, l.writer.bytes.count);
  schedule->origin_bytes = l.writer.bytes.count;
  bool ok = schedule->origins != NULL && !l.failed && !l.writer.failed;
  hr_vector_fini(&l.step);
  hr_vector_fini(&l.writer.bytes);
  return ok ? HR_OK
            : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "schedule: no memory for the origins of %d steps",
                             schedule->step_count);
}

/* ---- reading ---- */

static uint32_t read_number(hr_origin_reader *reader) {
  uint32_t number = 0;
  for (int shift = 0;; shift += 7) {
    uint8_t byte = *reader->at++;
    number |= (uint32_t)(byte & 127) << shift;
    if (byte < 128) {
      return number;
    }
  }
}

uint32_t hr_origins_begin(hr_origin_reader *reader) {
  reader->last = 0;
  return reader->left = read_number(reader);
}

uint32_t hr_origins_next(hr_origin_reader *reader) {
  --reader->left;
  return reader->last += read_number(reader);
}
