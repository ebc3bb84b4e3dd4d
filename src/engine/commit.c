/* commit.c: turns pending records into a job that runs.
 *
 * Memory is bound at hand-over, on the committing thread: buffers that live on get blocks of the caching allocator,
 * temporaries share one block of the lane. A job holds its buffers until it has run. Blocks that are freed later are
 * reused by commits that run later, because a lane runs its jobs in order, and follows other lanes' uses of a block.
 *
 * A run that fails has stored to older buffers the results recorded before its failure, and none of those behind (the
 * compiler moves no such store across a check). New buffers that it did not finish are invalid. From then until the
 * failure has been reported, the stream discards all new work: had the operations run one by one, an exception would
 * have ended the program there. So no older buffer is ever half a step ahead. A stream that keeps failures apart runs
 * it, unless it uses an invalid buffer. A run that meets a buffer which another stream's failure invalidated is
 * discarded as a whole, and that is this stream's failure.
 *
 * If memory is short, the longest prefix of the records that can have memory runs as a program of its own (prefix.c);
 * the rest fails.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/ranges.h"
#include "engine/default_layout.h"
#include "engine/deferred_copies.h"
#include "engine/dump.h"
#include "engine/growth.h"
#include "engine/instantiate.h"
#include "engine/prefix.h"
#include "engine/records.h"
#include "engine/run.h"
#include "engine/short_memory.h"
#include "engine/stream.h"

enum { INLINE_STEPS_MAX = 4, INLINE_NS_MAX = 40000, SOON_PART = 10 };

/* The caller's next action after a commit. PROBE: it only checks that memory is available. */
typedef enum caller_does { RECORD, WAIT_SOON, WAIT, PROBE } caller_does;

/* The work of a hand-over: the pending records, or a move (default_layout.c). A move copies the first buffer of a trace
 * of its own to the second one, whose memory the first one then gets. `moves` is the first one's layout; 0: no move. */
typedef struct work {
  hr_trace *trace;
  uint64_t moves;
} work;

struct hr_job {
  hr_queue_job entry; /* first: the queue has only this pointer */
  hr_stream *stream;
  hr_instance *instance;
  HR_VECTOR(hr_buffer *) buffers; /* a reference of each */
  HR_VECTOR(void *) bound;
  HR_VECTOR(uint64_t) stamps; /* contents of each buffer at hand-over; 0 if the run writes it */
  HR_VECTOR(hr_scalar) arguments;
  HR_VECTOR(hr_operation_mark) marks; /* of its operations, or none */
  HR_VECTOR(hr_launch_time) times;    /* of its steps, if a profile is started */
  int64_t begin_ns, first_operation;
  void *shared;
  uint64_t number; /* in its stream */
  uint64_t ticket; /* in its lane */
  int threads;     /* at most; 0: all of the process */
  bool is_sent;    /* its references are counted as in-flight */
  bool is_move;    /* of default_layout.c: the first buffer's contents are older than any failure */
  hr_run run;
  hr_status status; /* of a run that was submitted early */
  hr_run_scratch scratch;
  hr_job *next;
};

/* ---- jobs ---- */

static hr_job *take_job(hr_stream *stream) {
  hr_job *job = atomic_exchange_explicit(&stream->spare_job, NULL, memory_order_acquire);
  if (job != NULL) {
    return job;
  }
  hr_mutex_lock(&stream->job_mutex);
  job = stream->free_jobs;
  if (job != NULL) {
    stream->free_jobs = job->next;
  }
  hr_mutex_unlock(&stream->job_mutex);
  return job != NULL ? job : hr_calloc(1, sizeof *job);
}

static void give_job(hr_stream *stream, hr_job *job) {
  hr_job *none = NULL;
  if (atomic_compare_exchange_strong_explicit(&stream->spare_job, &none, job, memory_order_release,
                                              memory_order_relaxed)) {
    return;
  }
  hr_mutex_lock(&stream->job_mutex);
  job->next = stream->free_jobs;
  stream->free_jobs = job;
  hr_mutex_unlock(&stream->job_mutex);
}

void hr__stream_free_jobs(hr_stream *stream) {
  hr_job *spare = atomic_exchange_explicit(&stream->spare_job, NULL, memory_order_acquire);
  if (spare != NULL) {
    spare->next = stream->free_jobs;
    stream->free_jobs = spare;
  }
  for (hr_job *job = stream->free_jobs, *next; job != NULL; job = next) {
    next = job->next;
    hr_vector_fini(&job->buffers);
    hr_vector_fini(&job->bound);
    hr_vector_fini(&job->stamps);
    hr_vector_fini(&job->arguments);
    hr_vector_fini(&job->marks);
    hr_vector_fini(&job->times);
    hr__run_scratch_fini(&job->scratch);
    hr_free(job);
  }
  stream->free_jobs = NULL;
}

void hr__stream_set_error(hr_stream *stream, hr_status status) {
  if (status == HR_OK) {
    return;
  }
  hr_mutex_lock(&stream->job_mutex);
  if (hr__stream_error(stream) == HR_OK) {
    atomic_store_explicit(&stream->error, status, memory_order_release);
    status = HR_OK;
  }
  hr_mutex_unlock(&stream->job_mutex);
  hr_status_free(status);
}

/* ---- running, on the executor or on the committing thread ---- */

static hr_status run_instance_of(hr_job *job, hr_run *run) {
  hr_instance *instance = job->instance;
  if (run->device->properties.is_host) {
    return hr__instance_run(instance, run, &job->scratch);
  }
  int64_t begin = hr_clock_ns();
  hr_status status = hr__instance_run(instance, run, &job->scratch);
  bool is_usual = status == HR_OK && !run->has_waited && run->graph_builds == 0;
  atomic_store_explicit(&instance->submit_ns, is_usual ? hr_clock_ns() - begin : INT64_MAX, memory_order_relaxed);
  return status;
}

hr_status hr__stream_unreported(hr_stream *stream) {
  if (__builtin_expect(hr__stream_error(stream) == HR_OK, 1)) {
    return HR_OK;
  }
  hr_mutex_lock(&stream->job_mutex);
  hr_status status = hr_status_clone(hr__stream_error(stream));
  hr_mutex_unlock(&stream->job_mutex);
  return status;
}

/* The failure that one of the buffers carries, or OK. Claims came after the records. */
static hr_status find_invalid(size_t count, hr_buffer *const *buffers) {
  for (size_t i = 0; i < count; ++i) {
    if (buffers[i] != NULL && hr__buffer_is_invalid(buffers[i]) &&
        !atomic_load_explicit(&buffers[i]->is_claimed, memory_order_acquire)) {
      return hr__buffer_failure(buffers[i]);
    }
  }
  return HR_OK;
}

/* Invalidates the buffers without contents that a run which ended at `failed_step` did not finish. */
static void invalidate_unfinished(const hr_job *job, int failed_step, hr_status status) {
  const hr_instance *instance = job->instance;
  for (size_t i = 0; i < hr__plan_write_count(instance->plan); ++i) {
    hr_plan_write write = hr__plan_write(instance->plan, i);
    hr_buffer *buffer = job->buffers.data[write.local];
    uint64_t shape = hr__plan_shape(instance->plan, write.local);
    bool is_visible = buffer != NULL && !hr_shape_is_dead(shape);
    if (is_visible && (hr_shape_is_fresh(shape) || hr__buffer_is_undefined(buffer)) && write.last_step >= failed_step) {
      hr__buffer_invalidate(buffer, status);
    }
  }
}

/* Marks buffers whose contents libraries may cache, for later writes and releases. Those of temporaries end with the
 * run. */
static void note_sources(const hr_job *job) {
  const hr_instance *instance = job->instance;
  for (size_t i = 0; i < instance->sources.count; ++i) {
    uint32_t local = instance->sources.data[i];
    hr_buffer *buffer = job->buffers.data[local];
    if (buffer != NULL) {
      hr__cached_weights_note(&buffer->weights, buffer->device->context, job->stamps.data[local]);
    }
  }
}

void hr__stream_finish_write(hr_buffer *buffer) {
  hr__buffer_written(buffer);
  hr__cached_weights_note(&buffer->weights, buffer->device->context, 0);
}

/* The failure of a job that was interrupted before it began, or OK. */
static hr_status find_interrupt(const hr_stream *stream, uint64_t number) {
  return atomic_load_explicit(&stream->interrupted, memory_order_relaxed) >= number
             ? hr_status_make(HR_STATUS_CANCELLED, "interrupted before it began")
             : HR_OK;
}

hr_status hr__stream_find_failure(hr_stream *stream, uint64_t number, size_t count, hr_buffer *const *buffers) {
  hr_status before = stream->keeps_failures_apart ? HR_OK : hr__stream_unreported(stream);
  if (before == HR_OK) {
    before = find_interrupt(stream, number);
    before = before == HR_OK ? find_invalid(count, buffers) : before;
    hr__stream_set_error(stream, hr_status_clone(before));
  }
  return before;
}

static hr_status find_failure(const hr_job *job) {
  return job->is_move ? HR_OK
                      : hr__stream_find_failure(job->stream, job->number, job->buffers.count, job->buffers.data);
}

/* Lets the run note its times, if there is memory for them. */
static void begin_record(hr_job *job) {
  size_t count = (size_t)job->instance->step_count;
  job->begin_ns = hr_clock_ns();
  if (hr_vector_reserve(&job->times, count + 1)) {
    memset(job->times.data, 0, count * sizeof *job->times.data);
    job->run.times = job->times.data;
  }
}

static void end_record(const hr_job *job) {
  size_t records = job->instance->plan->key.record_count, marks = job->marks.count;
  const hr_run_note note = {.instance = job->instance,
                            .stream = job->stream->pending.stream,
                            .number = job->number,
                            .first_operation = (uint64_t)job->first_operation,
                            .begin = job->begin_ns,
                            .end = hr_clock_ns(),
                            .times = job->run.times,
                            .mark_count = marks < records ? marks : records,
                            .marks = job->marks.data};
  hr__records_add_run(job->stream->device, &note);
}

static void prepare_job(hr_job *job) {
  hr_stream *stream = job->stream;
  job->run = (hr_run){.device = stream->device,
                      .lane = stream->lane,
                      .impl = stream->lane->impl,
                      .shared = job->shared,
                      .bound = job->bound.data,
                      .stamps = job->stamps.data,
                      .buffers = job->buffers.data,
                      .arguments = job->arguments.data,
                      .number = job->number,
                      .ticket = job->ticket,
                      .interrupted = job->is_move ? NULL : &stream->interrupted};
  if (__builtin_expect(hr__recorded(stream->device) != 0, 0)) {
    begin_record(job);
    job->run.marks = job->marks.data, job->run.mark_count = job->marks.count;
  }
  if (stream->watch != NULL) {
    job->run.step_ns = hr_calloc((size_t)job->instance->step_count + 1, sizeof *job->run.step_ns);
  }
}

static void count_launches(hr_stream *stream, const hr_run *run) {
  atomic_fetch_add_explicit(&stream->compiled_launches, run->compiled_count, memory_order_relaxed);
  if (run->graph_launches > 0) {
    atomic_fetch_add_explicit(&stream->graph_launches, run->graph_launches, memory_order_relaxed);
    atomic_fetch_add_explicit(&stream->graph_builds, run->graph_builds, memory_order_relaxed);
    atomic_fetch_add_explicit(&stream->graph_updates, run->graph_updates, memory_order_relaxed);
  }
}

/* Of the buffers of a key, those that were written before the step that failed. */
static void finish_writes(const hr_plan *plan, hr_buffer *const *buffers, int failed_step) {
  for (size_t i = 0; i < hr__plan_write_count(plan); ++i) {
    hr_plan_write write = hr__plan_write(plan, i);
    if (buffers[write.local] != NULL && write.last_step < failed_step) {
      hr__stream_finish_write(buffers[write.local]);
    }
  }
}

/* After the run, which ended with `status`: consumes the status and the job. */
static void finish_job(hr_job *job, hr_status status) {
  hr_stream *stream = job->stream;
  hr_run *run = &job->run;
  if (status != HR_OK) {
    invalidate_unfinished(job, run->failed_step, status);
    if (job->is_move) {
      hr__buffer_invalidate(job->buffers.data[0], status);
    }
    hr_status_free(status);
  }
  if (__builtin_expect(run->times != NULL, 0)) {
    end_record(job);
  }
  if (run->step_ns != NULL) {
    stream->watch(stream->watch_ctx, job->instance, job->buffers.data, run->step_ns);
    hr_free(run->step_ns);
  }
  finish_writes(job->instance->plan, job->buffers.data, run->failed_step);
  if (job->is_sent) {
    hr__buffers_arrive(job->buffers.count, job->buffers.data);
  } else {
    hr__buffers_release(job->buffers.count, job->buffers.data);
  }
  hr_vector_clear(&job->buffers);
  hr__instance_release(job->instance);
  job->instance = NULL;
  hr_lane *lane = stream->lane;
  uint64_t ticket = job->ticket;
  give_job(stream, job);
  hr__lane_reach(lane, ticket);
}

/* Passes the run's status to the stream, too. */
static hr_status note_result(hr_job *job, hr_status status) {
  count_launches(job->stream, &job->run);
  hr__stream_set_error(job->stream, hr_status_clone(status));
  return status;
}

/* Runs with the team of parallel loops, or alone if the job of another lane has it. */
static hr_status run_in_lane(hr_job *job) {
  hr_lane *lane = job->stream->lane;
  if (!job->instance->needs_team) {
    return run_instance_of(job, &job->run);
  }
  int limit = hr_thread_limit_set(job->threads);
  bool has_team = hr__lane_take_team(lane), before = hr_parallel_set_alone(!has_team);
  hr_status status = run_instance_of(job, &job->run);
  (void)hr_parallel_set_alone(before);
  (void)hr_thread_limit_set(limit);
  hr__lane_return_team(lane, has_team);
  return status;
}

static void run_job(hr_queue_job *entry) {
  hr_job *job = (hr_job *)entry;
  prepare_job(job);
  hr_status status = find_failure(job);
  if (status == HR_OK) {
    note_sources(job);
    status = note_result(job, run_in_lane(job));
    hr__lane_note_submitted(job->stream->lane);
  }
  finish_job(job, status);
}

/* ---- early submit: the kernels on a thread of the team, all else on the threads that begin and end the job ---- */

static void run_kernels_of(void *arg) {
  hr_job *job = arg;
  job->status = hr__instance_run(job->instance, &job->run, &job->scratch);
}

static void end_early(hr_queue_job *entry) {
  hr_job *job = (hr_job *)entry;
  hr__lane_return_team(job->stream->lane, true);
  finish_job(job, note_result(job, job->status));
}

/* True if the program may take longer than a part of what is long for an interrupt. */
static bool may_exceed(const hr_stream *stream, const hr_instance *instance, int part) {
  return instance->may_be_endless || instance->plan->bytes >= stream->long_bytes / part ||
         instance->plan->flops >= stream->long_flops / part;
}

/* True if an interrupt may come before the program has run: the waiting thread must then be free to poll for it. A
 * caller that returns soon does not wait for others either, whose work it may begin afterwards. */
static bool is_long(const hr_stream *stream, const hr_instance *instance) {
  return stream->returns_soon ? instance->waits_for_others || may_exceed(stream, instance, SOON_PART)
                              : stream->wants_interrupt != NULL && may_exceed(stream, instance, 1);
}

/* False for devices other than hosts, which run beside the host anyway, and for lanes other than the first one. */
static bool can_submit_early(const hr_stream *stream, const hr_instance *instance) {
  return stream->device->properties.is_host && stream->lane->number == 0 && stream->watch == NULL &&
         stream->pending.threads == 0 && !is_long(stream, instance) && hr__instance_can_submit_early(instance);
}

/* False: nothing has begun. */
static bool begin_early(hr_job *job) {
  if (!can_submit_early(job->stream, job->instance)) {
    return false;
  }
  hr_status status = find_failure(job);
  if (status != HR_OK) {
    hr_status_free(status);
    return false;
  }
  prepare_job(job);
  note_sources(job);
  job->is_sent = false;
  job->entry.run = end_early;
  hr_lane *lane = job->stream->lane;
  bool has_team = hr__lane_take_team(lane);
  bool is_early = has_team && hr_queue_submit_early(&lane->queue, &job->entry, run_kernels_of);
  if (!is_early) {
    hr__lane_return_team(lane, has_team);
    job->entry.run = run_job;
  }
  return is_early;
}

/* ---- memory ---- */

hr_status hr__stream_bind(hr_stream *stream, hr_buffer *buffer) {
  return hr__stream_bind_room(stream, buffer, 0);
}

static void record_allocation(const hr_stream *stream, const hr_buffer *buffer, size_t capacity, int64_t begin) {
  hr__records_add(stream->device,
                  &(const hr_note){.kind = HR_PROFILE_ALLOCATION,
                                   .begin = begin,
                                   .end = hr_clock_ns(),
                                   .bytes = (int64_t)(capacity > buffer->bytes ? capacity : buffer->bytes),
                                   .stream = stream->pending.stream});
}

hr_status hr__stream_bind_room(hr_stream *stream, hr_buffer *buffer, size_t capacity) {
  bool is_recorded = hr__recorded(stream->device) != 0 && hr__buffer_address(buffer) == NULL;
  int64_t begin = __builtin_expect(is_recorded, 0) ? hr_clock_ns() : 0;
  HR_PROBE2(allocate, buffer, buffer->bytes);
  hr_status status = hr__buffer_bind_room(buffer, capacity);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    hr__device_release_shared(stream->device);
    status = hr__buffer_bind_room(buffer, capacity);
  }
  if (__builtin_expect(begin != 0 && status == HR_OK, 0)) {
    record_allocation(stream, buffer, capacity, begin);
  }
  return status;
}

/* True if the run binds memory to a buffer: not if it takes another one's over (growth.h). */
static bool is_bound(const hr_instance *instance, size_t i) {
  return hr__plan_needs(instance->plan, i) && hr__plan_buffer(instance->plan, i)->takes == 0;
}

/* The buffer that has the memory of buffer i before the run. */
static const hr_buffer *memory_of(const hr_trace *trace, const hr_instance *instance, size_t i) {
  uint32_t takes = hr__plan_buffer(instance->plan, i)->takes;
  return trace->buffers.data[takes != 0 ? takes - 1 : i];
}

/* Binds memory to every buffer that needs it; releases all of it if one gets none. */
static hr_status bind_buffers(hr_stream *stream, const hr_trace *trace, const hr_key *key, const hr_instance *instance,
                              hr_job *job) {
  hr_buffer **buffers = trace->buffers.data;
  for (size_t i = 0; i < key->buffer_count; ++i) {
    size_t room = hr__plan_buffer(instance->plan, i)->room;
    hr_status status = is_bound(instance, i) ? hr__stream_bind_room(stream, buffers[i], room) : HR_OK;
    if (status != HR_OK) {
      int64_t failed = (int64_t)i;
      while (i-- > 0) {
        if (hr_shape_is_fresh(key->shapes[i]) && is_bound(instance, i)) {
          hr__buffer_unbind(buffers[i]);
        }
      }
      return hr__short_memory_name(trace, key, instance->plan, failed, status);
    }
    job->bound.data[i] = hr__plan_needs(instance->plan, i) ? hr__buffer_address(memory_of(trace, instance, i)) : NULL;
  }
  return HR_OK;
}

static void unbind_buffers(const hr_trace *trace, const hr_key *key, const hr_instance *instance) {
  for (size_t i = 0; i < key->buffer_count; ++i) {
    if (hr_shape_is_fresh(key->shapes[i]) && is_bound(instance, i)) {
      hr__buffer_unbind(trace->buffers.data[i]);
    }
  }
}

static hr_status reserve_job(hr_job *job, const hr_trace *trace, const hr_instance *instance) {
  if (!hr_vector_reserve(&job->buffers, trace->buffers.count + 1) ||
      !hr_vector_reserve(&job->bound, trace->buffers.count + 1) ||
      !hr_vector_reserve(&job->stamps, trace->buffers.count + 1) ||
      !hr_vector_reserve(&job->arguments, trace->scalars.count + 1)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a commit of %zu records",
                          trace->records.count);
  }
  return hr__run_scratch_reserve(&job->scratch, instance);
}

/* ---- hand-over ---- */

/* True if buffers with layouts are as they were when the key was made: another stream may have returned one to the
 * default layout since. */
static bool is_current(const work *w, const hr_key *key, const hr_instance *instance, const hr_job *job) {
  hr_buffer **buffers = w->trace->buffers.data;
  bool is = w->moves == 0 ||
            (hr__buffer_layout(buffers[0]) == w->moves && hr__buffer_address(buffers[0]) == job->bound.data[0]);
  for (size_t i = 0; is && key->layouts != NULL && i < key->buffer_count; ++i) {
    is = buffers[i] == NULL ||
         (hr__buffer_layout(buffers[i]) == key->layouts[i] &&
          (job->bound.data[i] == NULL || hr__buffer_address(memory_of(w->trace, instance, i)) == job->bound.data[i]));
  }
  for (size_t i = 0; is && i < w->trace->cats.count; ++i) {
    uint32_t to = w->trace->cats.data[i].to;
    is = hr__plan_buffer(instance->plan, to)->room <= atomic_load(&buffers[to]->capacity);
  }
  return is;
}

/* Sets the layouts of the buffers for all work committed next. */
static void note_layouts(const hr_instance *instance, const hr_job *job) {
  if (job->is_move) {
    hr__growth_settle(job->buffers.data[0]);
    hr__buffers_exchange(job->buffers.data[0], job->buffers.data[1]);
    return;
  }
  for (size_t i = 0; i < job->buffers.count; ++i) {
    uint64_t layout = hr__plan_layout(instance->plan, i);
    if (layout != 0 && job->bound.data[i] != NULL) {
      atomic_store_explicit(&job->buffers.data[i]->layout, layout, memory_order_release);
    }
  }
}

/* Exchanges the trace's marks for the job's empty list. */
static void take_marks(hr_trace *trace, hr_job *job) {
  hr_operation_mark *data = job->marks.data;
  size_t capacity = job->marks.capacity;
  job->marks.data = trace->marks.data;
  job->marks.count = trace->marks.count;
  job->marks.capacity = trace->marks.capacity;
  trace->marks.data = data;
  trace->marks.count = 0;
  trace->marks.capacity = capacity;
  trace->has_marks = false;
}

/* Gives the job its place in the order of the device's jobs: behind the last uses of its memory in other lanes. A move
 * frees the memory that it reads, so all uses come before it. */
static void order_job(hr_job *job) {
  hr_lane *lane = job->stream->lane;
  hr_tickets before = {{0}};
  job->ticket = hr__lane_hand(lane);
  if (__builtin_expect(!atomic_load_explicit(&lane->device->has_several_lanes, memory_order_relaxed), 1)) {
    return;
  }
  const hr_plan *plan = job->instance->plan;
  size_t next = 0; /* of the plan's writes, which are sorted */
  for (size_t i = 0; i < job->buffers.count; ++i) {
    hr_block *block = job->bound.data[i] != NULL ? job->buffers.data[i]->block : NULL;
    bool is_written = next < hr__plan_write_count(plan) && hr__plan_write(plan, next).local == i;
    next += is_written;
    if (block != NULL) {
      hr__lane_use(lane, job->ticket, job->is_move || is_written, &block->uses, &before);
    }
  }
  hr__lane_follow(lane, &before);
}

/* Stamps what a program writes anew. `out_stamps`: of what it only reads, else 0. */
static void stamp_buffers(const hr_plan *plan, size_t count, hr_buffer *const *buffers, uint64_t *out_stamps) {
  for (size_t i = 0; i < count; ++i) {
    out_stamps[i] = buffers[i] != NULL ? buffers[i]->stamp : 0;
  }
  for (size_t i = 0; i < hr__plan_write_count(plan); ++i) {
    uint32_t local = hr__plan_write(plan, i).local;
    if (buffers[local] != NULL) {
      hr__buffer_restamp(buffers[local]);
    }
    out_stamps[local] = 0;
  }
}

/* Moves references and values of the trace into the job. Both locks of its order are held. */
static void fill_job(hr_stream *stream, const work *w, hr_instance *instance, hr_job *job) {
  hr_trace *trace = w->trace;
  job->entry.run = run_job;
  job->stream = stream;
  job->number = hr__stream_number_job(stream);
  job->instance = instance;
  hr_refcount_retain(&instance->refcount);
  job->buffers.count = trace->buffers.count;
  if (trace->buffers.count > 0) {
    memcpy(job->buffers.data, trace->buffers.data, trace->buffers.count * sizeof(hr_buffer *));
  }
  if (trace->scalars.count > 0) {
    memcpy(job->arguments.data, trace->scalars.data, trace->scalars.count * sizeof(hr_scalar));
  }
  trace->buffers.count = 0;
  stamp_buffers(instance->plan, job->buffers.count, job->buffers.data, job->stamps.data);
  job->is_move = w->moves != 0;
  job->threads = trace->threads;
  job->first_operation = stream->first_operation;
  hr_vector_clear(&job->marks);
  if (__builtin_expect(trace->has_marks, 0)) {
    take_marks(trace, job);
  }
  order_job(job);
  note_layouts(instance, job);
}

/* True if waking the executor costs more than the work. For a device beside the host, only the submission of the steps
 * counts: the last run's time is used. */
static bool is_small(const hr_device *device, hr_instance *instance) {
  return device->properties.is_host ? !instance->needs_team && instance->step_count <= INLINE_STEPS_MAX
                                    : atomic_load_explicit(&instance->submit_ns, memory_order_relaxed) <= INLINE_NS_MAX;
}

/* Runs the work on this thread if the caller waits for it and no work is queued before it, or if it is small. Waking
 * the executor would cost more, and a second OpenMP team beside the caller's makes the regions of both sleep instead of
 * spin. Work that the caller will soon wait for is begun here, or left to it. Other lanes go on while this one has no
 * place for the job. */
static void hand_over(hr_stream *stream, hr_instance *instance, hr_job *job, caller_does next) {
  hr_lane *lane = stream->lane;
  next = is_long(stream, instance) ? RECORD : next;
  bool runs_here = next != RECORD || is_small(stream->device, instance);
  bool is_early = next == WAIT_SOON && begin_early(job);
  bool is_inline = !is_early && runs_here && hr_queue_begin_inline(&lane->queue);
  hr_mutex_unlock(&stream->device->order_mutex);
  if (!is_early && !is_inline) {
    job->is_sent = true;
    hr__buffers_send(job->buffers.count, job->buffers.data);
    hr_queue_push_within(&lane->queue, &job->entry, stream->goes_ahead ? HR_QUEUE_AHEAD : HR_QUEUE_LIMIT);
  }
  hr_mutex_unlock(&lane->mutex);
  if (is_inline) {
    job->is_sent = false;
    run_job(&job->entry);
    hr_queue_end_inline(&lane->queue);
  }
}

static void count_run(hr_stats *stats, const hr_instance *instance) {
  stats->groups += instance->step_count;
  stats->kernels += instance->kernel_count;
  stats->bytes_moved += instance->plan->bytes;
  stats->library_calls += instance->library_count;
  stats->temporaries_elided += instance->plan->schedule.elided_count;
  if ((int64_t)instance->plan->schedule.arena_bytes > stats->temporary_bytes) {
    stats->temporary_bytes = (int64_t)instance->plan->schedule.arena_bytes;
  }
}

/* *out_again: nothing was submitted, because the key is no longer valid. */
static hr_status run_instance(hr_stream *stream, const work *w, const hr_key *key, hr_instance *instance,
                              caller_does next, bool *out_again) {
  hr_device *device = stream->device;
  hr_lane *lane = stream->lane;
  hr_job *job = take_job(stream);
  if (job == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a commit");
  }
  hr_status status = reserve_job(job, w->trace, instance);
  if (status == HR_OK) {
    status = bind_buffers(stream, w->trace, key, instance, job);
  }
  if (status != HR_OK) {
    give_job(stream, job);
    return status;
  }
  hr_mutex_lock(&lane->mutex);
  status = hr__lane_shared(lane, instance->shared_bytes, &job->shared);
  hr_mutex_lock(&device->order_mutex);
  *out_again = status == HR_OK && (!is_current(w, key, instance, job) ||
                                   (next != PROBE && !hr__growth_take(w->trace, instance->plan, job->bound.data)));
  if (status != HR_OK || *out_again || next == PROBE) {
    hr_mutex_unlock(&device->order_mutex);
    hr_mutex_unlock(&lane->mutex);
    unbind_buffers(w->trace, key, instance);
    give_job(stream, job);
    return status == HR_OK ? HR_OK
                           : hr__short_memory_name(w->trace, key, instance->plan, HR_SHORT_OF_TEMPORARIES, status);
  }
  hr__growth_note(w->trace, instance->plan, &stream->stats);
  fill_job(stream, w, instance, job);
  count_run(&stream->stats, instance);
  hand_over(stream, instance, job, next);
  return HR_OK;
}

/* ---- commit ---- */

static void count_compile(hr_stream *stream, const hr_instance *instance, int64_t begin) {
  const hr_plan *plan = instance->plan;
  int64_t end = hr_clock_ns();
  stream->stats.compile_ns += end - begin;
  HR_PROBE2(compile, plan->key.record_count, end - begin);
  if (hr__recorded(stream->device) != 0) {
    hr__records_add(stream->device,
                    &(const hr_note){.kind = HR_PROFILE_COMPILE,
                                     .begin = begin,
                                     .end = end,
                                     .count = (int64_t)plan->key.record_count,
                                     .stream = stream->pending.stream,
                                     .number = plan->key.hash,
                                     .text = plan->is_general ? "renumber a program" : "compile a program"});
  }
}

static hr_status compile_instance(hr_stream *stream, const work *w, hr_key *key, hr_instance **out_instance,
                                  bool *out_owned) {
  int64_t begin = hr_clock_ns();
  *out_instance = hr__cache_find_general(&stream->cache, key, stream->device);
  if (*out_instance != NULL) {
    ++stream->stats.compiles;
    ++stream->stats.general_plans;
    count_compile(stream, *out_instance, begin);
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__instance_create(key, stream->device, w->trace->scalars.data, out_instance));
  if ((*out_instance)->is_compiled) {
    ++stream->stats.compiles;
    stream->stats.general_plans += (*out_instance)->plan->is_general;
    stream->stats.guard_failures += (*out_instance)->plan->was_refused;
    if (w->trace->has_marks && hr__dump_is_on()) {
      hr__dump_places(key->hash, w->trace->marks.count, w->trace->marks.data);
    }
    count_compile(stream, *out_instance, begin);
  } else { /* compiled for another stream */
    ++stream->stats.cache_hits;
  }
  hr_status status = hr__cache_add(&stream->cache, *out_instance);
  *out_owned = status != HR_OK;
  hr_status_ignore(status);
  return HR_OK;
}

/* The instance of a key: from the cache, or compiled now. *out_owned: it did not fit into the cache, and the caller
 * releases it. */
static hr_status find_instance(hr_stream *stream, const work *w, hr_key *key, hr_instance **out_instance,
                               bool *out_owned) {
  *out_owned = false;
  *out_instance = hr__cache_find(&stream->cache, key);
  if (*out_instance != NULL) {
    ++stream->stats.cache_hits;
    return HR_OK;
  }
  HR_RANGE_BEGIN("compile");
  hr_status status = compile_instance(stream, w, key, out_instance, out_owned);
  HR_RANGE_END();
  return status;
}

/* Returns buffers that a program refuses to the default layout, each by a program of its own, which may evict this one
 * from the cache. */
static hr_status restore_default_layout(hr_stream *stream, const hr_trace *trace, hr_instance *instance) {
  hr_status status = HR_OK;
  hr_refcount_retain(&instance->refcount);
  for (size_t i = 0; status == HR_OK && i < instance->plan->key.buffer_count; ++i) {
    if (hr__plan_refuses(instance->plan, i)) {
      status = hr__stream_restore_default_layout(stream, trace->buffers.data[i], false);
    }
  }
  hr__instance_release(instance);
  return status;
}

static hr_status find_key(const hr_stream *stream, hr_trace *trace, hr_key *out_key) {
  bool frees = stream->frees_live && hr_stream_mode(stream) == HR_MODE_FUSE && !trace->is_plain;
  HR_RETURN_IF_ERROR(hr__trace_key(trace, frees, out_key));
  hr_vector_clear(&trace->cats);
  if (frees && stream->device->properties.is_host && hr__growth_find(trace, stream->is_tight)) {
    out_key->layouts = trace->layouts.data;
  }
  return HR_OK;
}

/* Commits of buffers with layouts may need a second turn: a program has refused some, or another stream has changed
 * one. */
static hr_status run_work(hr_stream *stream, const work *w, caller_does next) {
  bool is_owned, again = true;
  HR_RETURN_IF_ERROR(hr__device_check(stream->device, "an operation"));
  hr_status status = HR_OK;
  hr_queue_settle(&stream->lane->queue); /* its buffers may be dead from here on */
  while (status == HR_OK && again) {
    hr_key key;
    hr_instance *instance;
    HR_RETURN_IF_ERROR(find_key(stream, w->trace, &key));
    HR_RETURN_IF_ERROR(find_instance(stream, w, &key, &instance, &is_owned));
    if (w->moves == 0 && next != PROBE) {
      uint64_t hash = instance->plan->key.hash;
      bool can_begin = hash == stream->policy.awaited.hash && can_submit_early(stream, instance);
      hr__policy_committed(&stream->policy, hash, key.record_count, next == WAIT, can_begin);
    }
    again = instance->plan->schedule.is_refused;
    status = again ? restore_default_layout(stream, w->trace, instance)
                   : run_instance(stream, w, &key, instance, next, &again);
    again = again && w->moves == 0; /* default_layout.c checks it itself */
    if (is_owned) {
      hr__instance_release(instance);
    }
  }
  return status;
}

static hr_status run_in_context(hr_stream *stream, const work *w, caller_does next) {
  hr_context *before = hr__context_enter(stream->device->context);
  int limit = hr_thread_limit_set(w->trace->threads); /* libraries prepare their objects for it */
  hr_status status = run_work(stream, w, next);
  (void)hr_thread_limit_set(limit);
  (void)hr__context_enter(before);
  return status;
}

hr_status hr__stream_run_pending(hr_stream *stream, bool will_wait) {
  return run_in_context(stream, &(const work){&stream->pending, 0}, will_wait ? WAIT : RECORD);
}

hr_status hr__stream_run_move(hr_stream *stream, hr_trace *trace, uint64_t layout, bool will_wait) {
  return run_in_context(stream, &(const work){trace, layout}, will_wait ? WAIT : RECORD);
}

hr_status hr__stream_probe_pending(hr_stream *stream) {
  return run_in_context(stream, &(const work){&stream->pending, 0}, PROBE);
}

typedef struct abandoned {
  hr_trace *trace;
  size_t first;
  hr_status status;
} abandoned;

static void abandon_output(void *arg, uint32_t local, bool is_output) {
  const abandoned *a = arg;
  if (!is_output || local < a->first) {
    return;
  }
  hr_buffer *buffer = a->trace->buffers.data[local];
  if (buffer != NULL && (hr__buffer_address(buffer) == NULL || hr__buffer_is_undefined(buffer))) {
    hr__buffer_invalidate(buffer, a->status);
  }
}

void hr__stream_abandon(hr_stream *stream, size_t first, hr_status status) {
  hr_trace *trace = &stream->pending;
  abandoned a = {trace, first, status};
  hr_key key = {.record_count = trace->records.count, .words = trace->words.data, .locals = trace->locals.data};
  hr__key_each_use(&key, abandon_output, &a);
  hr__buffers_release(trace->buffers.count - first, trace->buffers.data + first);
  trace->buffers.count = 0;
  hr__trace_clear(trace);
  ++stream->epoch;
}

/* Drops the committed records; those after the cut are pending now. */
static void take_rest(hr_stream *stream) {
  hr__trace_clear(&stream->pending);
  if (stream->rest.records.count == 0) {
    memcpy(stream->pending.history, stream->rest.history, sizeof stream->rest.history);
    ++stream->epoch;
    return;
  }
  hr_trace committed = stream->pending;
  stream->pending = stream->rest;
  stream->rest = committed;
}

static void count_commit(hr_stats *stats, hr_commit_reason reason) {
  ++stats->commits;
  stats->commits_by_read += reason == HR_COMMIT_READ;
  stats->commits_by_limit += reason == HR_COMMIT_LIMIT;
  stats->commits_by_request += reason == HR_COMMIT_REQUEST;
  stats->commits_by_mode += reason == HR_COMMIT_MODE;
}

/* Before a trace is split: its last operation is the last that was recorded. */
static void note_first_operation(hr_stream *stream) {
  stream->first_operation = stream->forgotten + stream->stats.operations - (int64_t)stream->pending.records.count;
}

static void record_commit(const hr_stream *stream, int64_t begin, hr_commit_reason reason) {
  static const char *const names[] = {[HR_COMMIT_READ] = "commit: a value is needed",
                                      [HR_COMMIT_LIMIT] = "commit: much is pending",
                                      [HR_COMMIT_REQUEST] = "commit: requested",
                                      [HR_COMMIT_MODE] = "commit: the mode's"};
  hr__records_add(stream->device, &(const hr_note){.kind = HR_PROFILE_COMMIT,
                                                   .begin = begin,
                                                   .end = hr_clock_ns(),
                                                   .count = (int64_t)stream->pending.records.count,
                                                   .stream = stream->pending.stream,
                                                   .number = atomic_load(&stream->handed),
                                                   .text = names[reason]});
}

/* Temporaries that the records on both sides of a cut use have to be buffers. */
static hr_status split(hr_stream *stream, size_t count) {
  if (count < stream->pending.records.count) {
    HR_RETURN_IF_ERROR(hr__trace_make_buffers(&stream->pending, stream->device));
  }
  return hr__trace_split(&stream->pending, count, &stream->rest);
}

hr_status hr__stream_commit(hr_stream *stream, size_t count, hr_commit_reason reason, bool will_wait) {
  if (stream->pending.records.count == 0) {
    return HR_OK;
  }
  int64_t begin = hr__recorded(stream->device) != 0 ? hr_clock_ns() : 0;
  note_first_operation(stream);
  hr_status status = split(stream, count);
  if (status != HR_OK) { /* no memory for the rest: commit it as well */
    hr_status_ignore(status);
    hr_status_ignore(hr__trace_split(&stream->pending, stream->pending.records.count, &stream->rest));
  }
  if (stream->defers_copies) {
    hr__defer_copies(&stream->pending, &stream->rest);
  }
  count_commit(&stream->stats, reason);
  HR_PROBE2(commit, reason, stream->pending.records.count);
  HR_RANGE_BEGIN("commit");
  status = hr__stream_run_pending(stream, will_wait);
  if (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED && stream->pending.cats.count > 0) {
    stream->is_tight = true;
    hr_status_free(status);
    status = hr__stream_run_pending(stream, will_wait);
  }
  if (status != HR_OK) {
    hr__recall_copies(&stream->pending, &stream->rest);
    status = hr__stream_run_prefix(stream, status);
  }
  stream->is_tight = false;
  HR_RANGE_END();
  if (__builtin_expect(begin != 0, 0)) {
    record_commit(stream, begin, reason);
  }
  take_rest(stream);
  return status;
}

void hr__stream_begin(hr_stream *stream) {
  if (stream->device->is_lost) {
    return;
  }
  hr_key key;
  bool again = false;
  hr_status status = find_key(stream, &stream->pending, &key);
  hr_instance *instance = status == HR_OK ? hr__cache_find_expected(&stream->cache, &key) : NULL;
  if (instance == NULL || instance->plan->key.hash != stream->policy.awaited.hash ||
      instance->plan->schedule.is_refused || !can_submit_early(stream, instance)) {
    hr_status_ignore(status);
    return;
  }
  int64_t begin = hr__recorded(stream->device) != 0 ? hr_clock_ns() : 0;
  note_first_operation(stream);
  status = run_instance(stream, &(const work){&stream->pending, 0}, &key, instance, WAIT_SOON, &again);
  if (status == HR_OK && !again) {
    if (__builtin_expect(begin != 0, 0)) {
      record_commit(stream, begin, HR_COMMIT_READ);
    }
    hr_status_ignore(hr__trace_split(&stream->pending, SIZE_MAX, &stream->rest));
    ++stream->stats.cache_hits;
    count_commit(&stream->stats, HR_COMMIT_READ);
    take_rest(stream);
    hr__policy_begun(&stream->policy);
  }
  hr_status_ignore(status); /* the wait will report it again */
}

/* The program of the pending records, if it is short. */
static hr_instance *find_short(hr_stream *stream, hr_key *out_key) {
  hr_status status = find_key(stream, &stream->pending, out_key);
  hr_instance *instance = status == HR_OK ? hr__cache_find_expected(&stream->cache, out_key) : NULL;
  hr_status_ignore(status);
  bool is_small = instance != NULL && !instance->needs_team && instance->step_count <= INLINE_STEPS_MAX &&
                  instance->library_count == instance->short_count;
  bool is_short = instance != NULL && (is_small || instance->is_brief) && !instance->plan->schedule.is_refused;
  return is_short ? instance : NULL;
}

bool hr__stream_run_short(hr_stream *stream) {
  hr_key key;
  bool again = false;
  hr_instance *instance = find_short(stream, &key);
  if (instance == NULL) {
    return false;
  }
  note_first_operation(stream);
  HR_PROBE2(commit, HR_COMMIT_READ, stream->pending.records.count);
  hr_context *before = hr__context_enter(stream->device->context);
  hr_status status = run_instance(stream, &(const work){&stream->pending, 0}, &key, instance, WAIT, &again);
  (void)hr__context_enter(before);
  if (status != HR_OK || again) {
    hr_status_ignore(status); /* a commit will report it again */
    return false;
  }
  hr__cache_use(&stream->cache, instance);
  ++stream->stats.cache_hits;
  count_commit(&stream->stats, HR_COMMIT_READ);
  hr__policy_committed(&stream->policy, instance->plan->key.hash, key.record_count, true, false);
  memset(stream->rest.history, 0, sizeof stream->rest.history);
  take_rest(stream);
  return true;
}
