/* function_table.h: the callers' functions that programs run (HR_OP_CALL), by number.
 *
 * A kernel of a module (src/module) is in the table of its context from its definition to the context's end. Its number
 * is part of the key of the programs that use it. A closure is a host function of one call. It is not in the table, but
 * the contents of the node's last input, so that calls of different functions share a program. Its name is in the
 * table: numbers of closures are not positive.
 *
 * Threads: any.
 */
#ifndef HEADRACE_RUNTIME_FUNCTION_TABLE_H_
#define HEADRACE_RUNTIME_FUNCTION_TABLE_H_

#include <stdint.h>

#include "headrace/function.h"
#include "runtime/device.h"

/* Runs threads [begin, end) of a grid of size[0] * size[1] * size[2] threads. The first `updated` outputs have
 * contents, and are not among the inputs. A scalar has the dtype that the frontend gave it. */
typedef void (*hr_function_fn)(void *const *inputs, void *const *outputs, const hr_scalar *const *scalars,
                               const int64_t *size, int64_t begin, int64_t end);

typedef struct hr_function {
  int64_t number; /* from 1; hr__function_add sets it */
  const char *name;
  int input_count, output_count, scalar_count; /* updated operands count as both */
  const char *const *output_names;
  hr_function_fn run; /* on the host; else NULL */
  /* On a device: the text in its dialect. It has a function SYMBOL_0, whose parameter has these words after the
   * operands and scalars: the number of threads, the grid's three sizes, the threads of a group, the offset of each
   * operand. */
  const char *text, *symbol;
} hr_function;

/* A host function of one call; updated operands are outputs alone. */
typedef struct hr__closure {
  hr_function_run run;
  void *arg;
  void (*release)(void *arg);
  hr_device *device; /* one with its own memory: operands are copied to the host and back; NULL: they are not */
} hr__closure;

/* Adds a function of the current context, which lives until the context ends. */
HR_MUST_USE hr_status hr__function_add(hr_function *function);
/* The function with this number, or NULL. */
const hr_function *hr__function_find(int64_t number);
/* The number of closures of this name, made now if there is none: below 0, or 0 for no name. */
HR_MUST_USE hr_status hr__closure_number(const char *name, int64_t *out_number);
/* The name of a kernel or of closures, which lives as long as the context; NULL: none. */
const char *hr__function_name(int64_t number);

#endif
