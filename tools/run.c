/* run.c: `headrace run`: records the nodes of a program file on a stream and runs it, or runs a graph. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "core/ops/op.h"
#include "model.h"
#include "replay.h"

enum { PRINT_ELEMENTS = 8 };

static bool is_output(const hr_program *program, int b) {
  for (int i = 0; !program->buffers[b].is_dead && i < program->node_count; ++i) {
    for (int j = 0; j < program->nodes[i].output_count; ++j) {
      if (program->nodes[i].outputs[j].kind == HR_OPERAND_VALUE && (int)program->nodes[i].outputs[j].index == b) {
        return true;
      }
    }
  }
  return false;
}

static hr_status print_buffer(replay *r, int b) {
  hr_dtype dtype = replay_buffer_dtype(&r->program, (uint32_t)b);
  bool is_float = dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64;
  hr_dtype shown = is_float || dtype == HR_DTYPE_I64 ? dtype : HR_DTYPE_U8;
  int64_t count = (int64_t)(r->program.buffers[b].bytes / hr_dtype_size(shown)), strides[1] = {1};
  int64_t dims[1] = {count < PRINT_ELEMENTS ? count : PRINT_ELEMENTS};
  hr_view view = {.buffer = r->buffers[b], .dtype = shown, .rank = 1, .dims = dims, .strides = strides};
  double raw[PRINT_ELEMENTS];
  HR_RETURN_IF_ERROR(hr_stream_read(r->stream, &view, raw));
  printf("%%%d %s:", b, hr_dtype_name(shown));
  for (int64_t i = 0; i < dims[0]; ++i) {
    if (shown == HR_DTYPE_F32) {
      printf(" %.9g", (double)((float *)raw)[i]);
    } else if (shown == HR_DTYPE_F64) {
      printf(" %.17g", raw[i]);
    } else if (shown == HR_DTYPE_I64) {
      printf(" %lld", (long long)((int64_t *)raw)[i]);
    } else {
      printf(" %02x", ((unsigned char *)raw)[i]);
    }
  }
  printf(count > dims[0] ? " ... of %lld\n" : "\n", (long long)count);
  return HR_OK;
}

static hr_status run(replay *r, int repeat, bool prints) {
  HR_RETURN_IF_ERROR(replay_open(r));
  int64_t best = INT64_MAX, sum = 0, ns = 0;
  for (int i = 0; i < repeat; ++i) {
    HR_RETURN_IF_ERROR(replay_once(r, &ns));
    sum += i > 0 || repeat == 1 ? ns : 0;
    best = ns < best ? ns : best;
  }
  hr_stats stats;
  hr_stream_stats(r->stream, &stats);
  printf(
      "%s on %s: %.1f us at best, %.1f on average of %d; %lld kernels, %lld library calls a run; compiled in %.2f ms\n",
      r->path, r->device_name, (double)best * 1e-3, (double)sum * 1e-3 / (repeat > 1 ? repeat - 1 : 1), repeat,
      (long long)stats.kernels / repeat, (long long)stats.library_calls / repeat, (double)stats.compile_ns * 1e-6);
  for (int b = 0; prints && b < r->program.bound_count; ++b) {
    if (is_output(&r->program, b)) {
      HR_RETURN_IF_ERROR(print_buffer(r, b));
    }
  }
  return HR_OK;
}

int headrace_run(int argc, char **argv) {
  for (int i = 0; i < argc; ++i) {
    if (argv[i][0] != '-' && is_model(argv[i])) {
      return run_model(argc, argv);
    }
  }
  replay r = {.device_name = "cpu", .mode = -1};
  int repeat = 1;
  bool prints = false;
  for (int i = 0; i < argc; ++i) {
    if (strcmp(argv[i], "--print") == 0) {
      prints = true;
    } else if (strcmp(argv[i], "--repeat") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
      repeat = atoi(argv[++i]);
    } else if (!replay_option(&r, argc, argv, &i)) {
      return headrace_bad_argument("run", argv[i]);
    }
  }
  if (r.path == NULL) {
    return headrace_missing("run", "a file");
  }
  int failed = headrace_fail(run(&r, repeat, prints));
  replay_close(&r);
  return failed;
}
