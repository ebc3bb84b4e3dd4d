/* functions.h: the table of functions, and the arguments of a call of one. */
#ifndef HEADRACE_PYTHON_FUNCTIONS_H_
#define HEADRACE_PYTHON_FUNCTIONS_H_

#include "extension.h"

typedef enum parameter_kind {
  PARAMETER_INPUT = 0,
  PARAMETER_OPTIONAL, /* an input that may be None */
  PARAMETER_MANY,     /* a sequence of inputs */
  PARAMETER_STAR,     /* all positional arguments */
  PARAMETER_INT,
  PARAMETER_FLAG,
  PARAMETER_REAL,
  PARAMETER_INTS,
  PARAMETER_DTYPE,
  PARAMETER_TEXT,
  PARAMETER_REALS,
  PARAMETER_LIST /* any number of integers */
} parameter_kind;

typedef struct parameter {
  const char *name; /* NULL: the end of the list */
  parameter_kind kind;
  bool is_required;
} parameter;

typedef struct function_row {
  hr_functional function;
  const char *name;
  bool takes_numbers; /* numbers are arguments of each run, and weak */
  int result_count;   /* 0: a list, -1: a tuple, of as many as the function has for these arguments */
  const parameter *parameters;
} function_row;

enum { PARAMETERS_MAX = 16, INPUTS_MAX = 64, FEW_RESULTS = 4 };

typedef struct long_list {
  struct long_list *next;
  int64_t integers[];
} long_list;

typedef struct call {
  const function_row *row;
  PyObject *values[PARAMETERS_MAX]; /* by parameter; NULL: not given */
  hr_stream *stream;
  int input_count, attribute_count;
  const hr_tensor *inputs[INPUTS_MAX];
  PyObject *owned[INPUTS_MAX];
  hr_tensor numbers[4]; /* of inputs that are numbers */
  int number_count, list_count;
  hr_attribute attributes[PARAMETERS_MAX];
  union {
    int64_t integers[HR_RANK_MAX];
    double reals[HR_RANK_MAX];
  } lists[PARAMETERS_MAX];
  long_list *long_lists; /* of each PARAMETER_LIST; owned */
} call;

/* An argument as an attribute, in the call's memory; None and NULL: the default. -1 with an exception. */
int take_attribute(call *c, parameter_kind kind, PyObject *value, hr_attribute *to);

/* ---- graph_calls.c ---- */

/* True if an argument is a value of a graph, or a sequence with one. */
bool takes_values(const call *c);
/* Adds the call to the graph of its values; the results as values. Replaces the exception of the failure on arrays. */
PyObject *call_on_graph(call *c);

#endif
