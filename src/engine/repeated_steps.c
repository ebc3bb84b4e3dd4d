#include "engine/repeated_steps.h"

#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "engine/compile_queue.h"

enum { CALL_ELEMENTS = 1 << 20 }; /* of all iterations of a call, between looks at the interrupt */

typedef struct repeated_step {
  hr_cached_kernel *cached;
  int64_t elements;
  hr_scalar *scalars; /* those of the step, and the number of iterations */
} repeated_step;

struct hr_repeated_steps {
  int count;
  repeated_step steps[];
};

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a loop");
}

static hr_status refuse(const char *why) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "loop: %s", why);
}

/* The instruction that stores an argument; -1: none, or several. */
static int store_of(const hr_kernel *kernel, int arg) {
  int found = -1, count = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_STORE && kernel->accesses[instr->access].arg == arg) {
      found = instr->mode == HR_STORE_SET ? k : -1;
      ++count;
    }
  }
  return count == 1 ? found : -1;
}

/* True if all accesses to an argument have the elements of its one store, and loads of them come before it. */
static bool is_in_place(const hr_kernel *kernel, int arg) {
  const int store = store_of(kernel, arg);
  const hr_access *stored = store >= 0 ? &kernel->accesses[kernel->instrs[store].access] : NULL;
  bool is = stored != NULL && stored->term_count == 0 && stored->bound_count == 0;
  for (int k = 0; is && k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->access >= 0 && kernel->accesses[instr->access].arg == arg) {
      is = k <= store && hr_kernel_same_elements(kernel, &kernel->accesses[instr->access], stored);
    }
  }
  return is;
}

/* Lets the kernel update its carried values in place. */
static hr_status make(hr_kernel *kernel, const int *next_of, hr_arena *arena) {
  hr_access *accesses = HR_ARENA_ARRAY(arena, hr_access, (size_t)kernel->access_count + 1);
  hr_kernel_arg *args = HR_ARENA_ARRAY(arena, hr_kernel_arg, (size_t)kernel->arg_count + 1);
  uint32_t *scalars = HR_ARENA_ARRAY(arena, uint32_t, (size_t)kernel->scalar_count + 1);
  if (accesses == NULL || args == NULL || scalars == NULL) {
    return no_memory();
  }
  memcpy(accesses, kernel->accesses, (size_t)kernel->access_count * sizeof *accesses);
  memcpy(args, kernel->args, (size_t)kernel->arg_count * sizeof *args);
  for (int s = 0; s <= kernel->scalar_count; ++s) {
    scalars[s] = (uint32_t)s;
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    int next = accesses[a].arg >= 0 ? next_of[accesses[a].arg] : -1;
    accesses[a].arg = next >= 0 ? next : accesses[a].arg;
  }
  for (int arg = 0; arg < kernel->arg_count; ++arg) {
    if (kernel->args[arg].is_read && kernel->args[arg].is_written) {
      return refuse("a kernel reads what it has written");
    }
    if (next_of[arg] >= 0) {
      args[arg].is_read = false, args[next_of[arg]].is_read = true;
    }
  }
  kernel->accesses = accesses, kernel->args = args, kernel->scalars = scalars;
  kernel->scalar_count += 1, kernel->is_repeated = true;
  return HR_OK;
}

static hr_status check(const hr_kernel *kernel) {
  if (kernel->scalar_count > UINT8_MAX) {
    return refuse("a kernel has too many scalars");
  }
  for (int arg = 0; arg < kernel->arg_count; ++arg) {
    if (kernel->args[arg].is_written && !is_in_place(kernel, arg)) {
      return refuse("an element depends on others");
    }
  }
  return HR_OK;
}

/* The repeated form of a kernel. `next_of`: for each argument, the argument with its next value; -1: it stays. */
static hr_status acquire(const hr_cached_kernel *cached, hr_device *device, const int *next_of, hr_arena *arena,
                         repeated_step *out_step) {
  hr_kernel *kernel = hr__kernel_form(cached, arena);
  if (kernel == NULL) {
    return no_memory();
  }
  if (kernel->reduce_mask != 0 || kernel->ordered_mask != 0) {
    return refuse("a kernel is not element-wise");
  }
  kernel->name = hr__kernel_host(cached)->name;
  out_step->elements = 1;
  for (int d = 0; d < kernel->rank; ++d) {
    out_step->elements *= kernel->dims[d];
  }
  HR_RETURN_IF_ERROR(make(kernel, next_of, arena));
  HR_RETURN_IF_ERROR(check(kernel));
  out_step->scalars = hr_calloc((size_t)kernel->scalar_count, sizeof *out_step->scalars);
  return out_step->scalars != NULL ? hr__kernel_acquire(kernel, device, &out_step->cached) : no_memory();
}

/* The arguments of a step with the next values of its arguments. */
static hr_status pair_arguments(const hr_instance *instance, const hr_exec_step *step, int buffer_count,
                                const int *next_of, int *out_next_of) {
  const int count = hr__step_arg_count(step);
  for (int a = 0; a < count; ++a) {
    uint32_t buffer = hr__arg_buffer(hr_narrow_at(instance->args, step->arg_first + (size_t)a)); /* of a kernel */
    int next = buffer < (uint32_t)buffer_count ? next_of[buffer] : HR_REPEATED_OTHER;
    if (next == HR_REPEATED_OTHER) {
      return refuse("a kernel reads what another one makes");
    }
    out_next_of[a] = -1;
    for (int b = 0; next >= 0 && b < count; ++b) {
      uint32_t other = hr_narrow_at(instance->args, step->arg_first + (size_t)b);
      out_next_of[a] = other == hr__arg_of_buffer((uint32_t)next) ? b : out_next_of[a];
    }
    if (next >= 0 && out_next_of[a] < 0) {
      return refuse("a kernel reads what another one makes");
    }
  }
  return HR_OK;
}

static hr_status create_step(const hr_instance *instance, const hr_exec_step *step, hr_device *device, int buffer_count,
                             const int *next_of, hr_arena *arena, repeated_step *out_step) {
  if (step->cached == NULL || hr__kernel_is_private(step->cached) || step->weight >= 0) {
    return refuse("a step is no kernel");
  }
  int *pairs = HR_ARENA_ARRAY(arena, int, (size_t)hr__step_arg_count(step) + 1);
  if (pairs == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(pair_arguments(instance, step, buffer_count, next_of, pairs));
  return acquire(step->cached, device, pairs, arena, out_step);
}

static hr_status create(hr_repeated_steps *steps, const hr_instance *instance, hr_device *device, int buffer_count,
                        const int *next_of) {
  hr_arena arena;
  hr_arena_init(&arena, HR_ARENA_CHUNK_MIN);
  hr_status status = HR_OK;
  for (int i = 0; status == HR_OK && i < instance->step_count; ++i) {
    repeated_step *step = &steps->steps[steps->count++];
    status = create_step(instance, &instance->steps[i], device, buffer_count, next_of, &arena, step);
  }
  hr_arena_fini(&arena);
  return status;
}

hr_status hr__repeated_steps_create(const hr_instance *instance, hr_device *device, int buffer_count,
                                    const int *next_of, hr_repeated_steps **out_steps) {
  hr_repeated_steps *steps = hr_calloc(1, sizeof *steps + (size_t)instance->step_count * sizeof *steps->steps);
  hr_status status = steps != NULL ? create(steps, instance, device, buffer_count, next_of) : no_memory();
  if (status != HR_OK) {
    hr__repeated_steps_destroy(steps);
    return status;
  }
  if (hr_env_choice(HR_ENV_JIT) == HR_ENV_JIT_WAIT) {
    hr__compile_queue_wait();
  }
  *out_steps = steps;
  return HR_OK;
}

void hr__repeated_steps_destroy(hr_repeated_steps *steps) {
  for (int i = 0; steps != NULL && i < steps->count; ++i) {
    hr__kernel_release(steps->steps[i].cached);
    hr_free(steps->steps[i].scalars);
  }
  hr_free(steps);
}

size_t hr__repeated_steps_scratch(const hr_repeated_steps *steps) {
  size_t most = 0;
  for (int i = 0; i < steps->count; ++i) {
    size_t made = hr__kernel_host(steps->steps[i].cached)->scratch_bytes;
    size_t now = hr__kernel_use(steps->steps[i].cached)->scratch_bytes;
    most = most > made ? most : made;
    most = most > now ? most : now;
  }
  return most;
}

bool hr__repeated_steps_are_better(const hr_repeated_steps *steps, const hr_instance *instance) {
  bool are_compiled = true, are_here = true;
  for (int i = 0; i < steps->count; ++i) {
    are_here &= hr__kernel_has_code(steps->steps[i].cached);
    are_compiled &= hr__kernel_has_code(instance->steps[i].cached);
  }
  return are_here || !are_compiled;
}

/* ---- a run ---- */

typedef struct range_run {
  const hr_host_kernel *kernel;
  hr_host_call call;
  char *scratch;
  size_t scratch_bytes;
} range_run;

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
  const range_run *r = arg;
  hr_host_call call = r->call;
  call.scratch = r->scratch + (size_t)worker * r->scratch_bytes;
  r->kernel->run(r->kernel, 0, &call, begin, end);
}

/* All iterations of a step. */
static hr_status run_step(const repeated_step *step, range_run *r, hr_scalar *times, int64_t count,
                          const hr_thread_interrupt *interrupt) {
  const hr_host_pass *pass = &r->kernel->passes[0];
  int64_t most = CALL_ELEMENTS / (step->elements > 0 ? step->elements : 1) + 1;
  for (int64_t done = 0; done < count; done += times->value.i) {
    if (hr_thread_interrupt_has_come(interrupt)) {
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted after %lld iterations", (long long)done + 1);
    }
    *times = (hr_scalar){.dtype = HR_DTYPE_I64, .value.i = count - done < most ? count - done : most};
    int64_t grain = pass->grain / times->value.i;
    if (pass->units <= grain || pass->units == 1) {
      run_range(r, 0, pass->units, 0);
    } else {
      hr_parallel_for(pass->units, grain > 0 ? grain : 1, run_range, r);
    }
  }
  return HR_OK;
}

hr_status hr__repeated_steps_run(hr_repeated_steps *steps, const hr_instance *instance, int64_t times,
                                 const hr_run_scratch *run, char *scratch, size_t scratch_bytes,
                                 const hr_thread_interrupt *interrupt) {
  for (int i = 0; i < steps->count; ++i) {
    const repeated_step *step = &steps->steps[i];
    const hr_exec_step *once = &instance->steps[i];
    const size_t scalars = (size_t)hr__step_scalar_count(once);
    int64_t begin = hr__kernel_has_code(step->cached) ? 0 : hr_clock_ns();
    memcpy(step->scalars, run->scalars.data + once->scalar_first, scalars * sizeof *step->scalars);
    range_run r = {.kernel = hr__kernel_use(step->cached), .scratch = scratch, .scratch_bytes = scratch_bytes};
    if (r.kernel->scratch_bytes > scratch_bytes) { /* code that came after the run began */
      r.kernel = hr__kernel_host(step->cached);
    }
    r.call = (hr_host_call){.args = run->args.data + once->arg_first, .scalars = step->scalars};
    HR_RETURN_IF_ERROR(run_step(step, &r, &step->scalars[scalars], times, interrupt));
    if (begin != 0) {
      hr__kernel_spend(step->cached, hr_clock_ns() - begin);
    }
  }
  return HR_OK;
}
