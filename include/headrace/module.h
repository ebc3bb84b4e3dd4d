/* module.h: kernels in C, which run as operations of a stream.
 *
 *   kernel void softshrink(in float *x, out float *y, float l) {
 *     y[i] = x[i] > l ? x[i] - l : (x[i] < -l ? x[i] + l : 0);
 *   }
 *
 * A module is a source with one or more kernels. It is compiled when it is created: by the system's C compiler for a
 * device whose memory is the host's, else by the device's. A run of a kernel is recorded like an operation. It becomes
 * a step of the program of its neighbours, which gives its buffers memory and runs it in order. It does not fuse.
 *
 * A kernel runs once for each thread of a grid of one to three dims; `i` is the number of the thread along the first.
 * Threads run in any order and at the same time. `thread(d)` and `threads(d)` are the thread's number and the number of
 * threads along dim d.
 *
 * Operands are pointers to dense, row-major elements: `in` is read, `out` is written (its contents are undefined
 * before), `inout` both. Other parameters are numbers. Types: float, double, bool, char, short, int, long (64 bits),
 * their unsigned forms, names with a width (int8_t), and half and bfloat16, which `to_float(x)`, `to_half(f)` and
 * `to_bfloat16(f)` convert. An operand shares no memory with an output: a view that does is copied first.
 *
 * Functions: those of math.h for float and double, by one name (exp; expf too), with the results of the built-in
 * operations; `row_sum(p, n)`, `row_max(p, n)`, `row_min(p, n)` and `row_dot(p, q, n)` of n elements in memory. A
 * source may have functions, types and macros of its own, and includes no files.
 *
 * Threads: a module never changes; any thread may use it.
 */
#ifndef HEADRACE_MODULE_H_
#define HEADRACE_MODULE_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_MODULE_PARAMETERS_MAX = 48, HR_MODULE_SOURCE_MAX = 1 << 20 };

typedef struct hr_module hr_module;

/* Compiles a source of `length` characters for a device. The same source gives the same module. A module lives until
 * the process ends, because programs keep its kernels. INVALID_ARGUMENT for a source that does not compile, with the
 * compiler's messages and the source's line numbers; UNAVAILABLE without a compiler, with the remedy; DEADLINE_EXCEEDED
 * for a compiler that was killed after HEADRACE_CC_SECONDS. */
HR_API HR_MUST_USE hr_status hr_module_create(hr_device *device, const char *source, size_t length,
                                              const hr_module **out_module);

typedef enum hr_parameter_kind {
  HR_PARAMETER_IN = 0,
  HR_PARAMETER_OUT,
  HR_PARAMETER_INOUT,
  HR_PARAMETER_NUMBER
} hr_parameter_kind;

typedef struct hr_parameter {
  const char *name; /* lives as long as the module */
  hr_parameter_kind kind;
  hr_dtype dtype;
} hr_parameter;

/* The number of kernels; of kernel 0 <= kernel < count its name, its number of parameters, and one of them. */
HR_API int hr_module_kernel_count(const hr_module *module);
HR_API const char *hr_module_kernel_name(const hr_module *module, int kernel);
HR_API int hr_module_parameter_count(const hr_module *module, int kernel);
HR_API hr_parameter hr_module_parameter(const hr_module *module, int kernel, int parameter);

/* Records a run of a kernel. `arguments` has one view for each parameter: of the parameter's dtype, or a number. A
 * number is converted to the parameter's dtype, which must have it. threads: numbers of threads along three dims; NULL:
 * one for each element of the first operand that is written. group: the threads of a group, which a GPU runs together,
 * along three dims; NULL or 0: the default. It changes no result.
 *
 * INVALID_ARGUMENT names the kernel, the parameter, the actual and the expected value. Outputs must not overlap. */
HR_API HR_MUST_USE hr_status hr_module_record(hr_stream *stream, const hr_module *module, int kernel,
                                              const hr_view *arguments, const int64_t *threads, const int64_t *group);

#ifdef __cplusplus
}
#endif

#endif
