/* Index maps over a group's domain: shortcuts for nodes of equal dims give what the maps themselves give. */
#include <string.h>

#include "compiler/passes.h"
#include "hr_test.h"

enum { RANK = 4, ROUNDS = 20000 };

static uint32_t random_below(uint32_t *state, uint32_t bound) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % bound;
}

/* A loop node of these dims with one input; the lists are the caller's. */
static hr_node loop(const int64_t *dims, const int64_t *strides, hr_operand operands[2]) {
  for (int i = 0; i < 2; ++i) {
    operands[i] = (hr_operand){.kind = HR_OPERAND_VALUE,
                               .dtype = HR_DTYPE_F32,
                               .rank = RANK,
                               .dims = dims,
                               .strides = strides,
                               .fill = HR_NO_SCALAR};
  }
  return (hr_node){.op = HR_OP_NEG,
                   .is_loop = true,
                   .input_count = 1,
                   .output_count = 1,
                   .inputs = &operands[0],
                   .outputs = &operands[1]};
}

/* The node's dims, each of which may be split into two. */
static hr_domain split(const int64_t *dims, uint32_t *state) {
  hr_domain domain = {0};
  for (int d = 0; d < RANK; ++d) {
    int64_t inner = dims[d] % 2 == 0 && random_below(state, 2) == 0 ? 2 : 1;
    domain.dims[domain.rank] = dims[d] / inner;
    domain.rank += domain.dims[domain.rank] > 1;
    domain.dims[domain.rank] = inner;
    domain.rank += inner > 1;
  }
  return domain;
}

HR_TEST(operands_of_equal_dims_have_the_same_map_if_their_strides_over_the_domain_agree) {
  uint32_t state = 7;
  int same = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    int64_t dims[2][RANK], strides[2][RANK], maps[2][HR_RANK_MAX];
    for (int d = 0; d < RANK; ++d) {
      dims[0][d] = dims[1][d] = 1 + (int64_t)random_below(&state, 6);
      strides[0][d] = (int64_t)random_below(&state, 3);
      strides[1][d] = random_below(&state, 8) > 0 ? strides[0][d] : 1;
    }
    hr_operand operands[2][2];
    hr_node nodes[2];
    hr_domain domain = split(dims[0], &state);
    for (int k = 0; k < 2; ++k) {
      nodes[k] = loop(dims[k], strides[k], operands[k]);
      hr_group_map(&domain, &nodes[k], &operands[k][0], maps[k]);
    }
    bool expected = memcmp(maps[0], maps[1], (size_t)domain.rank * sizeof *maps[0]) == 0;
    same += expected;
    HR_ASSERT_EQ(hr_group_same_map(&domain, &nodes[0], &operands[0][0], &nodes[1], &operands[1][0]), expected);
  }
  HR_ASSERT(same > ROUNDS / 10 && same < ROUNDS);
}

HR_TEST(a_domain_refined_by_an_equal_one_stays_and_gets_its_masks) {
  hr_domain a = {.rank = 2, .dims = {3, 5}, .reduce_mask = 2}, b = {.rank = 2, .dims = {3, 5}, .ordered_mask = 1}, both;
  HR_ASSERT(hr_domain_refine(&a, &b, false, &both));
  HR_ASSERT_EQ(both.rank, 2);
  HR_ASSERT_EQ(both.dims[0], 3);
  HR_ASSERT_EQ(both.dims[1], 5);
  HR_ASSERT_EQ(both.reduce_mask, 2);
  HR_ASSERT_EQ(both.ordered_mask, 1);
  b.dims[1] = 4;
  HR_ASSERT(!hr_domain_refine(&a, &b, false, &both));
}

/* Marks all nodes to stay in the groups given, from 1 on, and fuses the program again. */
static void fuse_again(hr_program *program, const hr_fusion *before, const int *kept, hr_fusion *out_fusion) {
  for (int n = 0; n < program->node_count; ++n) {
    program->nodes[n].kept_group = kept[n];
  }
  hr_touches touches;
  HR_ASSERT(hr_touches_find(program, &touches));
  HR_ASSERT_OK(hr_fuse(program, &(const hr_target){0}, &touches, before, out_fusion));
}

/* The last node reads what the third one makes, in a group after the first's. */
HR_TEST(nodes_stay_in_their_groups_if_they_may_run_that_early) {
  const char *text = "buffer %0 64 live\nbuffer %1 64 live\nbuffer %2 64 live\nbuffer %3 8 live\nbuffer %4 64 live\n"
                     "%1:f32[16]{1}+0 = exp(%0:f32[16]{1}+0)\n"
                     "%2:f32[16]{1}+0 = neg(%1:f32[16]{1}+0)\n"
                     "%3:f32[2]{1}+0 = exp(%0:f32[2]{1}+0)\n"
                     "%4:f32[16]{1}+0 = mul(%0:f32[16]{1}+0, %3:f32[16]{0}+0)\n";
  const int apart[] = {1, 1, 2, 1}, found[] = {0, 0, 1, 2};
  hr_program stream, program;
  hr_fusion fusion, again;
  HR_ASSERT_OK(hr_program_parse(text, &stream));
  HR_ASSERT_OK(hr_expand(&stream, NULL, NULL, &program));
  hr_versions(&program);
  fuse_again(&program, NULL, (int[]){0, 0, 0, 0}, &fusion);
  HR_ASSERT_EQ(fusion.group_count, 3);
  HR_ASSERT_BYTES_EQ(fusion.node_group, found, sizeof found);
  fuse_again(&program, &fusion, (int[]){1, 1, 2, 3}, &again);
  HR_ASSERT_BYTES_EQ(again.node_group, found, sizeof found);
  fuse_again(&program, &fusion, apart, &again);
  HR_ASSERT_BYTES_EQ(again.node_group, found, sizeof found);
  hr_program_fini(&stream);
  hr_program_fini(&program);
}
