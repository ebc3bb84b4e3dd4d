/* repeat_passed.c: values that records without steps pass on.
 *
 * Readers of a copy may read its source instead (forward.c), and then no step shows the copy. If it reads a value of an
 * earlier period, and other copies read it in turn, readers reach further back with each of them:
 *
 *   %a.t = copy(%b.(t-1))    %b.t = copy(%a.(t-1))    readers of the last %a read the first %a or the first %b
 *
 * Which of the two depends on the number of periods, and the short program has fewer. So a schedule doesn't qualify if
 * records of a middle period that have no step, and copies, pass values on over more periods than it has to spare.
 */
#include "compiler/repeat.h"

typedef struct passing {
  const hr_program *program; /* the short one */
  const hr_repeats *repeats;
  const bool *has_step; /* of each record */
  bool *is_passed;      /* of each buffer: a record that passes values on writes it */
  int *periods;         /* over how many periods its value was passed on; of a period's buffers: period 0's has it */
} passing;

static bool passes(const passing *p, int record) {
  return !p->has_step[record] || p->program->nodes[record].op == HR_OP_COPY;
}

/* The buffer of period 0 that an operand's is in the place of, or the operand's; *out_lag: the periods between the
 * operand's and its record's. */
static uint32_t find_buffer(const passing *p, int repeat, int period, const hr_operand *x, int *out_lag) {
  const hr_repeats *repeats = p->repeats;
  hr_member own = hr_repeat_find_member(repeats, HR_AXIS_BUFFERS, x->index);
  if (own.repeat < 0) {
    *out_lag = p->is_passed[x->index];
    return x->index;
  }
  bool is_back = own.repeat != repeat && repeats->directions[repeat][own.repeat] < 0;
  int lag = own.period - (is_back ? hr_repeat_kept(repeats, own.repeat) - 1 - period : period);
  *out_lag = lag < 0 ? -lag : lag;
  return x->index - (uint32_t)own.period * repeats->all[own.repeat].spans[HR_AXIS_BUFFERS].size;
}

/* Returns the most periods of the record's inputs. */
static int pass(const passing *p, int repeat, int period, int record) {
  const hr_node *node = &p->program->nodes[record];
  int most = 0, lag;
  for (int i = 0; i < node->input_count && passes(p, record); ++i) {
    if (node->inputs[i].kind == HR_OPERAND_VALUE) {
      int periods = p->periods[find_buffer(p, repeat, period, &node->inputs[i], &lag)];
      most = periods + lag > most ? periods + lag : most;
    }
  }
  for (int i = 0; i < node->output_count; ++i) {
    if (node->outputs[i].kind == HR_OPERAND_VALUE) {
      p->periods[find_buffer(p, repeat, period, &node->outputs[i], &lag)] = most;
    }
  }
  return most;
}

static void note_passed(const passing *p, int record) {
  const hr_node *node = &p->program->nodes[record];
  for (int i = 0; i < node->output_count && passes(p, record); ++i) {
    if (node->outputs[i].kind == HR_OPERAND_VALUE) {
      p->is_passed[node->outputs[i].index] = true;
    }
  }
}

/* The most periods over which a record of the last period in front passes a value on, after `rounds` periods. */
static int find_most(const passing *p, int rounds) {
  const int period = p->repeats->head - 1;
  int most = 0;
  for (int round = 0; round < rounds; ++round) {
    int removed = 0;
    for (int r = 0; r < p->repeats->count; ++r) {
      const hr_repeat_span *span = &p->repeats->all[r].spans[HR_AXIS_RECORDS];
      int first = (int)span->first - removed + period * (int)span->size;
      for (int n = first; n < first + (int)span->size; ++n) {
        note_passed(p, n);
        int own = pass(p, r, period, n);
        most = own > most ? own : most;
      }
      removed += (int)span->size * p->repeats->dropped;
    }
  }
  return most;
}

hr_status hr_repeats_check_passed(const hr_program *shortened, const hr_repeats *repeats, const hr_runs *runs,
                                  bool *out_is) {
  hr_arena arena = {0};
  size_t records = (size_t)shortened->node_count + 1, buffers = (size_t)shortened->buffer_count + 1;
  bool *has_step = HR_ARENA_ARRAY(&arena, bool, records);
  passing p = {.program = shortened,
               .repeats = repeats,
               .has_step = has_step,
               .is_passed = HR_ARENA_ARRAY(&arena, bool, buffers),
               .periods = HR_ARENA_ARRAY(&arena, int, buffers)};
  bool ok = has_step != NULL && p.is_passed != NULL && p.periods != NULL;
  if (ok) {
    for (size_t i = 0; i < runs->origins.count; ++i) {
      has_step[runs->origins.data[i]] = true;
    }
    int spare = (repeats->head - HR_REPEAT_OUTER) / 2;
    *out_is = find_most(&p, spare + 2) <= spare;
  }
  hr_arena_fini(&arena);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the values of a program");
}
