/* nccl_counts.h: counters of the stub of NCCL (tests/stubs/nccl.c), and what tests set: the next error, and that the
 * other ranks do not come to a join. */
#ifndef HEADRACE_TESTS_NCCL_COUNTS_H_
#define HEADRACE_TESTS_NCCL_COUNTS_H_

typedef struct hr__nccl_counts {
  int reductions, sends, receives, groups, communicators, aborts, last_type, last_op, last_root, next_error;
  _Bool is_alone;
  void *last_stream;
} hr__nccl_counts;

#endif
