#!/usr/bin/env python3
"""Writes include/headrace/op.h (the public enum of operations, and inference) from src/core/ops/ops.def."""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^HR_(POINTWISE|REDUCE|ARGREDUCE|CONTRACTION|COMPOSITE|LIBRARY|SPECIAL)\((\w+), (\w+),.*\"(.*)\"\)$")

COLUMNS = 120

HEAD = """\
/* op.h: the operations, and the types of their results. Generated from src/core/ops/ops.def by
 * scripts/make_op_header.py; do not edit. */
#ifndef HEADRACE_OP_H_
#define HEADRACE_OP_H_

#include <stdbool.h>

#include "headrace/dtype.h"
#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_RANK_MAX = 16 }; /* dimensions of a tensor at most */

"""
TAIL = """\

/* An operation's attributes; borrowed for the call. `ints` (dims, kernel sizes, flags, dtypes) are part of the
 * program; `scalars` (eps, momentum, probability, seeds) are arguments of each run. The comments of the rows above
 * give their order. */
typedef struct hr_attrs {
  int int_count, scalar_count;
  const int64_t *ints;
  const hr_scalar *scalars;
} hr_attrs;

/* The type of a tensor: a dtype, and for each of `rank` dims its size and its stride, both in elements. The caller
 * owns it; it points to nothing. A zeroed type is that of an absent operand. */
typedef struct hr_tensor_type {
  hr_dtype dtype; /* HR_DTYPE_NONE: absent (input), or to be inferred (output) */
  bool is_number; /* an input that is a number of the host: rank 0; BOOL, I64, U64, F64 or C128; weak in promotion */
  int rank;
  int64_t dims[HR_RANK_MAX];
  int64_t strides[HR_RANK_MAX]; /* of inputs: only element-wise operations read them */
} hr_tensor_type;

/* Infers the types of an operation's outputs from those of its inputs, for every operation of the list above.
 * Records nothing and keeps no state; any thread may call it.
 *
 * attrs: NULL or the attributes. Values of scalars are read if a size depends on them (scales of resampling).
 * inputs: input_count types, in the order of hr_stream_record's inputs.
 * outputs: output_count types, in the same order, without those at the end that the caller does not want. In and out:
 *   - dtype, on entry: NONE infers the default: PyTorch's promotion of the inputs, with numbers weak; bool for
 *     comparisons; i64 for indices and sums of integers; f32 for functions of real numbers of integers.
 *     Any other dtype is kept. It is checked for element-wise operations, reductions and library calls.
 *   - dims, on entry: rank 0 infers them. If the inputs leave a choice (docs/operators.md, column `dims`), the dims
 *     given here are used: sizes of pools with a partial window, of adaptive pools, random fills, gradients of
 *     strided windows, tensors written in place. Without them the default is used, or the call fails if there is
 *     none. Other operations ignore them.
 *   - on return: dtype, rank, dims and default strides, which are row-major. An element-wise output gets the strides
 *     of the first input that has its dims and is dense. An output that can't be computed from these inputs has
 *     dtype NONE.
 *
 * Fails with INVALID_ARGUMENT for incompatible operands or attributes, and with UNIMPLEMENTED for dtypes that the
 * operation does not support. The message names the operation, the actual and the expected value:
 * "matmul: inner sizes differ: 4 != 5". The outputs' contents are undefined then. */
HR_API HR_MUST_USE hr_status hr_op_infer(hr_op op, const hr_attrs *attrs, int input_count, const hr_tensor_type *inputs,
                                         int output_count, hr_tensor_type *outputs);

#ifdef __cplusplus
}
#endif

#endif
"""


def joined(text):
    """The lines of the table: continuation lines (indented by four spaces) are joined, and so are adjacent strings."""
    return re.sub(r'" +"', "", re.sub(r"\n {4}", " ", text)).splitlines()


def row_lines(start, doc):
    """An enumerator with its comment, which continues on further lines if it is long."""
    options = {"subsequent_indent": " * ", "break_long_words": False, "break_on_hyphens": False}
    parts = textwrap.wrap(f"/* {doc} */", COLUMNS - len(start), **options)
    parts = parts[:-1] + [" */"] if parts[-1] == " * */" else parts
    return ("\n" + " " * len(start)).join([start + parts[0]] + parts[1:]) if len(parts) > 1 else start + parts[0]


def render(text):
    rows = [match.groups() for match in map(ROW.match, joined(text)) if match]
    width = max(len(name) for _, name, _, _ in rows)
    lines = [row_lines(f"  HR_OP_{name + ',':<{width + 1}} ", doc) for _, name, _, doc in rows]
    return (
        HEAD
        + "\n".join(["typedef enum hr_op {", "  HR_OP_NONE = 0,"] + lines + ["  HR_OP_COUNT", "} hr_op;", ""])
        + TAIL
    )


def main():
    header = ROOT / "include/headrace/op.h"
    text = render((ROOT / "src/core/ops/ops.def").read_text())
    if "--check" in sys.argv:
        if header.read_text() != text:
            sys.exit("include/headrace/op.h is stale: run scripts/make_op_header.py")
        return
    header.write_text(text)


if __name__ == "__main__":
    main()
