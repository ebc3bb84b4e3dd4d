/* batch.c: groups kernels that run in one launch.
 *
 *   before   lerp_mul_addcmul_sqrt_div_add_addcdiv, 64x3x7x7
 *            lerp_mul_addcmul_sqrt_div_add_addcdiv, 64
 *            .. and so on for each parameter
 *   after    lerp_mul_addcmul_sqrt_div_add_addcdiv, 64x3x7x7 and 160 more
 *
 * An optimizer, gradient clipping, zeroing of gradients and an average of weights each run a chain on every parameter.
 * Most parameters are too small for two threads, some too large for one. Consecutive kernels become a batch if none
 * accesses another's outputs: the device divides their work as a whole. Buffers of the arena are compared by place,
 * because a later step may write where an earlier one's buffer died. Steps that write parts of one buffer are compared
 * by the range of bytes that they reach, so that norms may go to one list.
 *
 * On one thread of a host no kernels run side by side, and each is a launch by itself: new dims then find no batches.
 *
 * A library's call and the kernel that takes its result in parts (handover.h) are a batch, too.
 *
 * All first passes of a batch run before all second ones. A kernel whose later passes are worth a thread is not in a
 * batch: it would find less of its data in the cache when it reads it again.
 */
#include "base/integer.h"
#include "base/thread.h"
#include "engine/handover.h"
#include "engine/instance.h"

enum { BATCH_MAX = 256 };
static const size_t WORKSPACE_BYTES_MAX = 1 << 22; /* of a batch; a step by itself may need more */

/* Bytes [begin, end) of a buffer. */
typedef struct range {
  int64_t begin, end;
} range;

static void add_access(const hr_kernel *kernel, const hr_access *access, range *r) {
  int64_t first = access->offset, last = access->offset, size = (int64_t)hr_dtype_size(access->dtype);
  for (int d = 0; d < kernel->rank; ++d) {
    int64_t algorithm = (kernel->dims[d] - 1) * access->strides[d];
    first += algorithm < 0 ? algorithm : 0;
    last += algorithm > 0 ? algorithm : 0;
  }
  r->begin = first * size < r->begin ? first * size : r->begin;
  r->end = (last + 1) * size > r->end ? (last + 1) * size : r->end;
}

/* The bytes of an argument that a kernel may reach, bounds ignored. An index that is read may lead anywhere. */
static range reach_of(const hr_kernel *kernel, int arg) {
  range r = {INT64_MAX, INT64_MIN};
  for (int i = 0; i < kernel->access_count; ++i) {
    const hr_access *access = &kernel->accesses[i];
    if (access->arg == arg && access->term_count > 0) {
      return (range){INT64_MIN, INT64_MAX};
    }
    if (access->arg == arg) {
      add_access(kernel, access, &r);
    }
  }
  return r;
}

static bool may_share_memory(const hr_place *places, const hr_kernel *a, int arg_a, const hr_kernel *b, int arg_b) {
  uint32_t buffer_a = a->args[arg_a].buffer, buffer_b = b->args[arg_b].buffer;
  if (buffer_a == buffer_b) {
    range reach_a = reach_of(a, arg_a), reach_b = reach_of(b, arg_b);
    return reach_a.begin < reach_b.end && reach_b.begin < reach_a.end;
  }
  return hr__places_overlap(&places[buffer_a], &places[buffer_b]);
}

static bool are_independent(const hr_place *places, const hr_kernel *a, const hr_kernel *b) {
  for (int i = 0; i < a->arg_count; ++i) {
    for (int j = 0; j < b->arg_count; ++j) {
      if ((a->args[i].is_written || b->args[j].is_written) && may_share_memory(places, a, i, b, j)) {
        return false;
      }
    }
  }
  return true;
}

/* The number of pieces of work that are worth a thread. */
static double pieces_of(const hr_host_kernel *kernel, int pass) {
  const hr_host_pass *p = &kernel->passes[pass];
  return (double)p->units / (double)(p->grain > 0 ? p->grain : 1);
}

static double pieces_of_all(const hr_host_kernel *kernel) {
  double pieces = 0;
  for (int pass = 0; pass < kernel->pass_count; ++pass) {
    pieces += pieces_of(kernel, pass);
  }
  return pieces;
}

static bool can_be_in_batch(const hr_exec_step *step) {
  bool can = step->kind == HR_STEP_KERNEL;
  const hr_host_kernel *kernel = hr__step_kernel(step);
  for (int pass = 1; can && pass < kernel->pass_count; ++pass) {
    can = pieces_of(kernel, pass) <= 1;
  }
  return can;
}

/* The buffers of a batch, as bits: of many buffers, some share one. */
enum { BUFFER_BITS = 2048, WORD_BITS = 64 };
typedef struct touched {
  uint64_t any[BUFFER_BITS / WORD_BITS], written[BUFFER_BITS / WORD_BITS];
  bool has_arena, writes_arena;
} touched;

static bool has_bit(const uint64_t *bits, uint32_t buffer) {
  return (bits[buffer % BUFFER_BITS / WORD_BITS] >> buffer % WORD_BITS & 1) != 0;
}

static void set_bit(uint64_t *bits, uint32_t buffer) {
  bits[buffer % BUFFER_BITS / WORD_BITS] |= UINT64_C(1) << buffer % WORD_BITS;
}

static void touch(touched *t, const hr_place *places, const hr_kernel *kernel) {
  for (int i = 0; i < kernel->arg_count; ++i) {
    const hr_kernel_arg *arg = &kernel->args[i];
    bool is_arena = places[arg->buffer].kind == HR_PLACE_ARENA;
    set_bit(t->any, arg->buffer);
    t->has_arena |= is_arena;
    if (arg->is_written) {
      set_bit(t->written, arg->buffer);
      t->writes_arena |= is_arena;
    }
  }
}

/* False if the kernel is surely independent of all that touched these buffers. */
static bool may_depend(const touched *t, const hr_place *places, const hr_kernel *kernel) {
  bool may = false;
  for (int i = 0; !may && i < kernel->arg_count; ++i) {
    const hr_kernel_arg *arg = &kernel->args[i];
    bool is_arena = places[arg->buffer].kind == HR_PLACE_ARENA;
    may = has_bit(t->written, arg->buffer) || (is_arena && t->writes_arena) ||
          (arg->is_written && (has_bit(t->any, arg->buffer) || (is_arena && t->has_arena)));
  }
  return may;
}

static const hr_kernel *kernel_of(const hr_instance *instance, int step) {
  return instance->plan->schedule.steps[step].kernel;
}

/* True if step `next` can run in one launch with those from `first` on, whose buffers are touched. */
static bool can_join(const hr_instance *instance, int first, int next, const touched *t) {
  const hr_place *places = instance->plan->schedule.places;
  bool joins = next < instance->step_count && next - first < BATCH_MAX && can_be_in_batch(&instance->steps[next]);
  bool is_apart = joins && !may_depend(t, places, kernel_of(instance, next));
  for (int i = first; joins && !is_apart && i < next; ++i) {
    joins = are_independent(places, kernel_of(instance, i), kernel_of(instance, next));
  }
  return joins;
}

static bool runs_batches(const hr_instance *instance) {
  return !instance->plan->device_kind.properties.is_host || hr_thread_count() > 1;
}

/* Makes the batch that begins with step `first`; returns the bytes of workspace that it needs. *out_team: it is worth
 * more than one thread. */
static size_t make_batch(hr_instance *instance, int first, bool *out_team) {
  hr_exec_step *head = &instance->steps[first];
  size_t workspace = hr_align_up(hr__step_workspace_bytes(head), HR_WORKSPACE_ALIGNMENT);
  head->batch = 1;
  head->workspace_offset = 0;
  *out_team = false;
  head->taken_beside = hr__find_taker(instance, first);
  if (head->taken_beside != 0) {
    head->batch = 2;
    head[1].workspace_offset = 0; /* one after the other they use the same memory */
    return hr_max(workspace, hr_align_up(hr__step_workspace_bytes(&head[1]), HR_WORKSPACE_ALIGNMENT));
  }
  if (!runs_batches(instance) || !can_be_in_batch(head)) {
    return workspace;
  }
  const hr_place *places = instance->plan->schedule.places;
  touched t = {.has_arena = false};
  double pieces = pieces_of_all(hr__step_kernel(head));
  touch(&t, places, kernel_of(instance, first));
  for (; can_join(instance, first, first + head->batch, &t); ++head->batch) {
    hr_exec_step *step = &instance->steps[first + head->batch];
    if (workspace + hr__step_workspace_bytes(step) > WORKSPACE_BYTES_MAX) {
      break;
    }
    step->workspace_offset = (uint32_t)workspace;
    workspace += hr_align_up(hr__step_workspace_bytes(step), HR_WORKSPACE_ALIGNMENT);
    pieces += pieces_of_all(hr__step_kernel(step));
    touch(&t, places, kernel_of(instance, first + head->batch));
  }
  *out_team = head->batch > 1 && pieces >= 2;
  return workspace;
}

/* Counts the batch that begins with step `first`. */
static void count_batch(hr_instance *instance, int first, size_t workspace, bool needs_team, size_t *workspace_most) {
  int batch = instance->steps[first].batch;
  instance->needs_team |= needs_team;
  instance->kernel_count += instance->steps[first].kind == HR_STEP_KERNEL;
  instance->batch_most = batch > instance->batch_most ? batch : instance->batch_most;
  *workspace_most = workspace > *workspace_most ? workspace : *workspace_most;
}

size_t hr__batch_steps(hr_instance *instance) {
  size_t workspace_most = 0;
  instance->kernel_count = instance->batch_most = 0;
  for (int first = 0; first < instance->step_count; first += instance->steps[first].batch) {
    bool needs_team;
    size_t workspace = make_batch(instance, first, &needs_team);
    count_batch(instance, first, workspace, needs_team, &workspace_most);
  }
  return workspace_most;
}

/* True if neither a step of the batch that begins with `first` may differ nor the one that it ended before. */
static bool is_as_before(const hr_instance *instance, const bool *may_differ, int first) {
  int end = first + instance->steps[first].batch;
  bool is = may_differ != NULL;
  for (int i = first; is && i <= end && i < instance->step_count; ++i) {
    is = !may_differ[i];
  }
  return is;
}

size_t hr__batch_steps_again(hr_instance *instance, const bool *may_differ, hr_step_summary *summaries) {
  size_t workspace_most = 0;
  int before = 0; /* where a batch began the last time, or behind `first` */
  instance->kernel_count = instance->batch_most = 0;
  for (int first = 0; first < instance->step_count; first += instance->steps[first].batch) {
    hr_step_summary *summary = &summaries[first];
    while (may_differ != NULL && before < first) {
      before += instance->steps[before].batch;
    }
    bool began = before == first;
    before += began ? instance->steps[first].batch : 0;
    if (!began || !is_as_before(instance, may_differ, first)) {
      summary->workspace = make_batch(instance, first, &summary->batch_needs_team);
    }
    count_batch(instance, first, summary->workspace, summary->batch_needs_team, &workspace_most);
  }
  return workspace_most;
}
