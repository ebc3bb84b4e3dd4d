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
