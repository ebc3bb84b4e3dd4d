/* epilogue_cases.h: a provider's convolutions with bias, residual and ReLU as epilogues, against the same without. */
#ifndef HEADRACE_TESTS_EPILOGUE_CASES_H_
#define HEADRACE_TESTS_EPILOGUE_CASES_H_

#include <math.h>

#include "node_args.h"
#include "provider_cases.h"

/* x [n,c,h,h], w [k,c,f,f], channels last, with padding that keeps h, in buffers 0 and 1; y in 2, bias in 3, residual
 * in 4. */
typedef struct packed_window {
  int n, c, k, h, f;
} packed_window;

enum { EPILOGUE_BUFFERS = 5, Y_BUFFER = 2 };

static inline void parse_epilogues(const packed_window *q, const char *inputs, const char *epilogues,
                                   hr_program *out_program) {
  const int y = q->n * q->k * q->h * q->h, lines[2][4] = {{q->n, q->k, q->h, q->h}, {q->n, q->c, q->h, q->h}};
  char text[1024], last[2][100];
  for (int i = 0; i < 2; ++i) {
    const int *d = lines[i];
    snprintf(last[i], sizeof last[i], "[%d,%d,%d,%d]{%d,1,%d,%d}+0", d[0], d[1], d[2], d[3], d[1] * d[2] * d[3],
             d[1] * d[3], d[1]);
  }
  char bias[100], residual[120];
  snprintf(bias, sizeof bias, ", %%3:f32[%d,%d,%d,%d]{0,1,0,0}+0", q->n, q->k, q->h, q->h);
  snprintf(residual, sizeof residual, ", %%4:f32%s", last[0]);
  int length = snprintf(text, sizeof text,
                        "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live\nbuffer %%3 %d live\nbuffer %%4 %d "
                        "live\n%%2:f32%s = conv(%%0:f32%s, %%1:f32[%d,%d,%d,%d]{%d,1,%d,%d}+0, _",
                        q->n * q->c * q->h * q->h * 4, q->k * q->c * q->f * q->f * 4, y * 4, q->k * 4, y * 4, last[0],
                        last[1], q->k, q->c, q->f, q->f, q->c * q->f * q->f, q->c * q->f, q->c);
  for (const char *at = inputs; *at != 0; ++at) {
    length += snprintf(text + length, sizeof text - (size_t)length, "%s", *at == 'b' ? bias : residual);
  }
  snprintf(text + length, sizeof text - (size_t)length, ") ints(2,1,1,%d,%d,1,1,1) %s\n", q->f / 2, q->f / 2,
           epilogues);
  HR_ASSERT_OK(hr_program_parse(text, out_program));
  HR_ASSERT_OK(hr_program_verify(out_program));
}

/* Runs the node, and copies y to the host. False if the provider does not support it, or does not have the algorithm.
 */
static inline bool run_epilogues(const hr_provider *provider, const op_case_memory *memory, const hr_program *program,
                                 int algorithm, void *const *addresses, float *y) {
  enum { ALIGNMENT = 64 };
  const hr_node *node = &program->nodes[0];
  hr_prepared *prepared = NULL;
  size_t workspace_bytes = 0;
  void *args[16];
  if (!provider->supports(program, node)) {
    return false;
  }
  hr__node_args(program, node, addresses, NULL, args);
  hr_status status = prepare_apart(provider, program, node, algorithm, memory->queue, &prepared, &workspace_bytes);
  bool is_prepared = status == HR_OK;
  HR_ASSERT(is_prepared || algorithm != HR_ALGORITHM_OWN);
  hr_status_ignore(status);
  if (is_prepared) {
    void *workspace = memory->allocate(memory->ctx, workspace_bytes + ALIGNMENT);
    HR_ASSERT_OK(provider->run(prepared, args, workspace, memory->queue));
    memory->copy_out(memory->ctx, y, addresses[Y_BUFFER], program->buffers[Y_BUFFER].bytes);
    provider->release(prepared);
    memory->release(memory->ctx, workspace, workspace_bytes + ALIGNMENT);
  }
  return is_prepared;
}

/* Applies the epilogues to the convolution's own result. */
static inline float add_epilogues(float value, const char *inputs, bool has_relu, float bias, float residual) {
  for (const char *at = inputs; *at != 0; ++at) {
    value += *at == 'b' ? bias : residual;
  }
  return has_relu && value <= 0 ? 0 : value;
}

static inline float *fill_epilogues(const op_case_memory *memory, size_t bytes, bool has_nan, void **out_address) {
  float *values = malloc(bytes);
  HR_ASSERT_NOT_NULL(values);
  for (size_t i = 0; i < bytes / sizeof(float); ++i) {
    values[i] = (float)(random_below(2001) - 1000) / 1000;
  }
  values[0] = has_nan ? NAN : values[0];
  *out_address = memory->allocate(memory->ctx, bytes);
  memory->copy_in(memory->ctx, *out_address, values, bytes);
  return values;
}

/* Each algorithm of the node with epilogues against the node alone and sums on the host; `inputs`: b for the bias, r
 * for the residual. */
static inline void check_epilogues(const hr_provider *provider, const op_case_memory *memory, const packed_window *q,
                                   const char *inputs, bool has_relu) {
  enum { ALGORITHMS = 8 };
  static const char *const sums[] = {"", "then(add,^,3)", "then(add,^,3) then(add,^,4)"};
  const float tolerance = 1e-3F * sqrtf((float)(q->c * q->f * q->f)); /* some algorithms round to TF32 */
  hr_program plain, packed;
  char epilogues[100];
  void *addresses[EPILOGUE_BUFFERS];
  float *host[EPILOGUE_BUFFERS];
  snprintf(epilogues, sizeof epilogues, "%s%s", sums[strlen(inputs)], has_relu ? " then(relu,^)" : "");
  parse_epilogues(q, "", "", &plain);
  parse_epilogues(q, inputs, epilogues, &packed);
  for (int b = 0; b < EPILOGUE_BUFFERS; ++b) {
    host[b] = fill_epilogues(memory, plain.buffers[b].bytes, b == 0, &addresses[b]);
  }
  size_t bytes = plain.buffers[Y_BUFFER].bytes;
  float *alone = malloc(bytes), *made = malloc(bytes);
  HR_ASSERT(alone != NULL && made != NULL);
  HR_ASSERT(run_epilogues(provider, memory, &plain, HR_ALGORITHM_OWN, addresses, alone));
  for (int algorithm = HR_ALGORITHM_OWN; algorithm < ALGORITHMS - 1; ++algorithm) {
    memory->copy_in(memory->ctx, addresses[Y_BUFFER], host[Y_BUFFER], bytes);
    bool is_run = run_epilogues(provider, memory, &packed, algorithm, addresses, made);
    HR_ASSERT(is_run || algorithm != HR_ALGORITHM_OWN);
    for (size_t i = 0; is_run && i < bytes / sizeof(float); ++i) {
      float wanted = add_epilogues(alone[i], inputs, has_relu, host[3][i % (size_t)q->k], host[4][i]);
      bool is_off = isnan(made[i]) != isnan(wanted) || fabsf(made[i] - wanted) > tolerance;
      if (is_off) {
        fprintf(stderr, "%d x %d to %d channels, window %d, %s%s, algorithm %d: %g at %zu, not %g\n", q->n, q->c, q->k,
                q->f, inputs, has_relu ? ", relu" : "", algorithm, (double)made[i], i, (double)wanted);
      }
      HR_ASSERT(!is_off);
    }
  }
  for (int b = 0; b < EPILOGUE_BUFFERS; ++b) {
    memory->release(memory->ctx, addresses[b], plain.buffers[b].bytes);
    free(host[b]);
  }
  free(alone);
  free(made);
  hr_program_fini(&plain);
  hr_program_fini(&packed);
}

/* For a GPU, and for plain loops on the host. */
enum { EPILOGUES_WINDOWS = 7, EPILOGUES_SMALL_WINDOWS = 3 };
static const packed_window epilogues_windows[EPILOGUES_WINDOWS] = {
    {1, 64, 64, 14, 1}, {4, 64, 256, 14, 1}, {2, 256, 64, 7, 1}, {2, 32, 32, 9, 3},
    {3, 128, 64, 7, 3}, {2, 4, 24, 30, 7},   {8, 512, 512, 7, 1}};
static const packed_window epilogues_small_windows[EPILOGUES_SMALL_WINDOWS] = {
    {1, 4, 8, 3, 1}, {2, 8, 4, 5, 3}, {1, 4, 12, 6, 7}};

static inline void check_all_epilogues(const hr_provider *provider, const op_case_memory *memory, int count,
                                       const packed_window *windows_with_epilogues) {
  static const char *const inputs[] = {"b", "br", "rb"};
  for (int i = 0; i < count; ++i) {
    for (int turn = 0; turn < 6; ++turn) {
      check_epilogues(provider, memory, &windows_with_epilogues[i], inputs[turn / 2], turn % 2 != 0);
    }
  }
}

#endif
