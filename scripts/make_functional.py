#!/usr/bin/env python3
"""Writes include/headrace/functional.h and docs/functional.md from src/functional/functional.def."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(
    r"^HR_FUNCTIONAL\((\w+), (\w+), (\w+), (\w+), (NO_INPUTS|INPUTS\(.*?\)|MANY\(.*?\)), "
    r"(NO_ATTRIBUTES|ATTRIBUTES\((?:\w+\([^()]*\)(?:, )?)+\))(?: RESULTS\((.*?)\))?(?: RESULTS_PER\((\w+)\))?, \"(.*)\"\)$"
)
SECTION = re.compile(r"^/\* ---- (.*) ---- \*/$")
ATTRIBUTE = re.compile(r"(\w+)\(\"(\w+)\"(?:, ([^()]+))?\)")
COLUMNS = 120
EMPTY = {"AXES": "none", "DTYPE": "none", "SIZES": "none", "LIST": "none", "REALS": "none"}
REQUIRED = {"INTS", "EQUATION"}
PER = {
    "INPUT": "one for each input", "SLICE": "one for each slice", "PART": "one for each part",
    "MODE": "words, scales, and biases of mode affine",
}  # fmt: skip

HEAD = """\
/* functional.h: functions on tensors: what they mean, as records. Generated from src/functional/functional.def by
 * scripts/make_functional.py; do not edit.
 *
 * A function infers the dtype, dims and strides of its result from its inputs, creates a buffer for it, and records
 * operations (op.h) on a stream or a capture (hr_capture_create). Views share their input's buffer and record nothing.
 *
 * Threads: as stream.h. A tensor belongs to one thread at a time.
 */
#ifndef HEADRACE_FUNCTIONAL_H_
#define HEADRACE_FUNCTIONAL_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_functional {
  HR_FUNCTIONAL_NONE = 0,
"""
TAIL = """\
  HR_FUNCTIONAL_COUNT
} hr_functional;

/* A view of a buffer, with one reference to it; or a number. Zeroed: absent.
 *
 * The position of element (i0, i1, ...) is offset + i0*strides[0] + i1*strides[1] + ..., in elements of dtype from the
 * buffer's start. Strides may be 0 or negative. */
typedef struct hr_tensor {
  hr_buffer *buffer; /* NULL: a number, or a tensor of an inference */
  hr_scalar number;  /* dtype NONE: not a number */
  hr_dtype dtype;    /* of a number: the number's */
  int rank;
  int64_t offset;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
} hr_tensor;

/* A number of the host: an argument of each run, not a part of the program. Its dtype is weak in promotion. */
static inline hr_tensor hr_tensor_number(hr_scalar number) {
  hr_tensor tensor;
  tensor.buffer = NULL, tensor.number = number, tensor.dtype = number.dtype, tensor.rank = 0, tensor.offset = 0;
  return tensor;
}
/* The tensor as an operand of hr_stream_record, which borrows from it. A number has a scalar instead of a buffer. */
static inline hr_view hr_tensor_view(const hr_tensor *tensor) {
  hr_view view;
  view.buffer = tensor->buffer, view.scalar = tensor->number.dtype != HR_DTYPE_NONE ? &tensor->number : NULL;
  view.dtype = tensor->dtype, view.rank = tensor->rank, view.offset = tensor->offset;
  view.dims = tensor->dims, view.strides = tensor->strides;
  return view;
}
/* The number of elements. */
static inline int64_t hr_tensor_count(const hr_tensor *tensor) {
  int64_t count = 1;
  for (int d = 0; d < tensor->rank; ++d) {
    count *= tensor->dims[d];
  }
  return count;
}
/* Sets the strides of row-major order without gaps; dims of size 0 count as 1. */
static inline void hr_tensor_set_row_major(hr_tensor *tensor) {
  int64_t stride = 1;
  for (int d = tensor->rank - 1; d >= 0; --d) {
    tensor->strides[d] = stride;
    stride *= tensor->dims[d] > 1 ? tensor->dims[d] : 1;
  }
}
/* True if the elements stand in that order. */
static inline bool hr_tensor_is_row_major(const hr_tensor *tensor) {
  int64_t stride = 1;
  for (int d = tensor->rank - 1; d >= 0; --d) {
    if (tensor->dims[d] != 1 && tensor->strides[d] != stride) {
      return false;
    }
    stride *= tensor->dims[d] > 1 ? tensor->dims[d] : 1;
  }
  return true;
}
/* Drops the buffer's reference and zeroes the tensor; NULL and zeroed are fine. */
HR_API void hr_tensor_release(hr_tensor *tensor);

typedef enum hr_attribute_kind {
  HR_ATTRIBUTE_NONE = 0, /* the default */
  HR_ATTRIBUTE_INT,
  HR_ATTRIBUTE_FLAG, /* integer 0 or 1 */
  HR_ATTRIBUTE_REAL,
  HR_ATTRIBUTE_INTS,
  HR_ATTRIBUTE_DTYPE,
  HR_ATTRIBUTE_TEXT,
  HR_ATTRIBUTE_REALS
} hr_attribute_kind;

/* An attribute's value; borrowed for the call. */
typedef struct hr_attribute {
  hr_attribute_kind kind;
  int count; /* INTS, REALS */
  union {
    int64_t integer;
    hr_scalar number;
    hr_dtype dtype;
    const int64_t *ints;
    const char *text;
    const double *reals;
  } value;
} hr_attribute;

/* Applies a function and gives its results, whose buffers' references are the caller's (hr_tensor_release).
 *
 * stream: a stream or a capture. NULL infers: inputs and results have types without buffers, and nothing is recorded.
 * inputs: pointers, in the order of the function's list; NULL: absent. They keep their references.
 * attributes: in the order of the function's list; those at the end may be left out.
 * results: result_count of them, in the order of the function's list; those at the end may be left out, but one.
 *   hr_functional_result_count counts those of any function.
 *
 * Fails with INVALID_ARGUMENT for wrong inputs or attributes, UNIMPLEMENTED for dtypes that the function does not
 * support, and otherwise as hr_stream_record. The message names the function or the recorded row, the actual and the
 * expected value: "sum: axis 3 is out of range for 2 dims". Results are set only on success. */
HR_API HR_MUST_USE hr_status hr_functional_apply(hr_stream *stream, hr_functional function, int input_count,
                                                 const hr_tensor *const *inputs, int attribute_count,
                                                 const hr_attribute *attributes, int result_count,
                                                 hr_tensor *out_results);

/* Applies a function of one element-wise row (multiply, sqrt) to each of `count` tuples of inputs, in one record: the
 * way to update all parameters of a network at once. Inputs are list after list: input k of tuple i is
 * inputs[k * count + i]. Each tuple has a result, as of a call of its own. Otherwise as hr_functional_apply.
 * INVALID_ARGUMENT: the function is none of one row, or the inputs are no full lists. */
HR_API HR_MUST_USE hr_status hr_functional_apply_each(hr_stream *stream, hr_functional function, int count,
                                                      int input_count, const hr_tensor *const *inputs,
                                                      hr_tensor *out_results);

/* The number of results: it depends on the arguments if docs/functional.md says so. */
HR_API HR_MUST_USE hr_status hr_functional_result_count(hr_functional function, int input_count,
                                                        const hr_tensor *const *inputs, int attribute_count,
                                                        const hr_attribute *attributes, int *out_count);

/* A function's name ("none" for a number that is no function), and the function of a name (NONE: there is none). */
HR_API const char *hr_functional_name(hr_functional function);
HR_API hr_functional hr_functional_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
"""
PAGE = """\
# Functions

The functional layer ([functional.h](../include/headrace/functional.h)) defines these functions on tensors. A function
infers its result from its inputs and records operations ([operators.md](operators.md)) on views; a function of the
section *views* records nothing. `hr_functional_apply(stream, HR_FUNCTIONAL_<NAME>, inputs, attributes, results)`
applies one. Dtypes are promoted as in PyTorch, and numbers of the host are weak. `axis` counts from the end if it is
negative.
"""


def rows():
    """Each section's title with its rows: NAME, signature, doc."""
    text = (ROOT / "src/functional/functional.def").read_text()
    found = []
    for line in re.sub(r"\n {4}", " ", text).splitlines():
        line = re.sub(r"\" \"", "", line)
        if section := SECTION.match(line):
            found.append((section[1], []))
        elif match := ROW.match(line):
            NAME, name, _, _, inputs, attributes, results, per, doc = match.groups()
            names = [input + "..." * inputs.startswith("MANY") for input in re.findall(r'"([^"]+)"', inputs)]
            text = signature(name, names, ATTRIBUTE.findall(attributes))
            text += " -> " + ", ".join(re.findall(r'"(\w+)"', results)) if results else ""
            text += f" -> {PER[per]}" if per else ""
            found[-1][1].append((NAME, text, doc))
        elif line.startswith("HR_FUNCTIONAL("):
            sys.exit(f"functional.def: a row that can't be read: {line}")
    return found


def signature(name, inputs, attributes) -> str:
    given = [
        attribute if kind in REQUIRED else f"{attribute}={value or EMPTY[kind]}" for kind, attribute, value in attributes
    ]
    return f"{name}({', '.join(inputs + given)})"


def header() -> str:
    lines = []
    for title, functions in rows():
        lines.append(f"\n  /* ---- {title} ---- */\n")
        for NAME, call, doc in functions:
            text = f"{call}: {doc}"
            lines.append("  /* " + "\n   * ".join(textwrap.wrap(text, COLUMNS - 8)) + " */")
            lines.append(f"  HR_FUNCTIONAL_{NAME},")
    return HEAD + "\n".join(lines) + "\n" + TAIL


def page() -> str:
    parts = [PAGE]
    for title, functions in rows():
        parts.append(f"\n## {title[0].upper() + title[1:]}\n\n| function | result |\n|---|---|\n")
        parts += [f"| `{call}` | {doc} |\n" for _, call, doc in functions]
    return "".join(parts)


def write_or_check(script: str, texts: dict[str, str]) -> int:
    """Writes the files; with --check names those that differ, and returns 1 if there are any."""
    stale = []
    for path, text in texts.items():
        if "--check" not in sys.argv[1:]:
            (ROOT / path).write_text(text, encoding="utf-8")
        elif not (ROOT / path).exists() or (ROOT / path).read_text(encoding="utf-8") != text:
            stale.append(path)
    for path in stale:
        print(f"{path} is stale: run scripts/{script}")
    return 1 if stale else 0


def main() -> int:
    texts = {"include/headrace/functional.h": header(), "docs/functional.md": page()}
    return write_or_check("make_functional.py", texts)


if __name__ == "__main__":
    sys.exit(main())
