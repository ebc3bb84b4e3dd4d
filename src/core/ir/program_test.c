/* Programs: their text form, the verifier, overlap of views, and the parser on damaged text. */
#include "core/ir/program.h"

#include "base/text.h"
#include "core/ir/packed_program.h"
#include "core/ops/op.h"
#include "hr_test.h"

static const char *const every_kind =
    "buffer %0 1024 live layout(4,16,8)\n"
    "buffer %1 4096 live fresh free\n"
    "buffer %2 64 dead fresh made\n"
    "scalar $0 f64\n"
    "scalar $1 f64 = 0.1\n"
    "scalar $2 i64 = -9223372036854775808\n"
    "scalar $3 bool = 1\n"
    "scalar $4 c128 = (-0,inf)\n"
    "scalar $5 i64\n"
    "scalar $6 f64 argument 7\n"
    "scalar $7 u64 = 18446744073709551615\n"
    "scalar $8 u64\n"
    "%1:f32[4,8]{8,1}+0 = add(%0:f32[4,8]{8,1}+0, $0)\n"
    "%1:f32[4,8]{8,1}+0, _ = layer_norm(%0:f32[4,8]{1,4}+3, _, _) ints(1) scalars($0)\n"
    "loop %1:f32[4,8]{8,0}+0 = sum(%0:f16[4,8]{8,1}+0) reduce(2)\n"
    "loop %1:f32[4,8]{8,1}+-2@1*8<16?{1,0}+-1<8!$1 = copy(%0:f32[4,8]{0,1}+0, %2:i32[4,8]{1,0}+0) ordered(1) "
    "store(add)\n"
    "loop %1:f32[2]{1}+0 = where(#:i64[2]{1}+-5, $0?{1}+0<1, $4) origin(9)\n"
    "loop %2:i64[]{}+0 = copy($2)\n"
    "check_index(%2:i64[]{}+0) ints(0,5,2)\n";

static char *print(const hr_program *program) {
  hr_text text = {0};
  HR_ASSERT_OK(hr_program_print(program, &text));
  char *chars = hr_text_take(&text);
  HR_ASSERT_NOT_NULL(chars);
  return chars;
}

HR_TEST(text_comes_back_as_it_was) {
  hr_program program, again;
  HR_ASSERT_OK(hr_program_parse(every_kind, &program));
  char *text = print(&program);
  HR_ASSERT_STR_EQ(text, every_kind);
  HR_ASSERT_OK(hr_program_parse(text, &again));
  char *second = print(&again);
  HR_ASSERT_STR_EQ(second, text);
  HR_ASSERT_EQ(program.bound_count, 2);
  HR_ASSERT_EQ(program.argument_count, 9);
  HR_ASSERT_EQ(program.nodes[4].inputs[1].rank, 1); /* a number in a loop has the domain's dims */
  HR_ASSERT_EQ(program.nodes[4].inputs[1].dims[0], 2);
  hr_free(text);
  hr_free(second);
  hr_program_fini(&program);
  hr_program_fini(&again);
}

HR_TEST(a_node_s_copy_is_one_block_of_the_counted_size) {
  hr_program program, copy;
  HR_ASSERT_OK(hr_program_parse(every_kind, &program));
  for (int n = 0; n < program.node_count; ++n) {
    hr_node *node = &program.nodes[n], own;
    size_t bytes = hr_node_copy_bytes(node);
    hr_program_init(&copy);
    hr_arena_init(&copy.arena, bytes);
    HR_ASSERT(hr_node_copy(&copy.arena, node, &own));
    HR_ASSERT_EQ(copy.arena.bytes_allocated, hr_align_up(bytes, HR_ARENA_ALIGNMENT));
    for (int i = 0; node->is_loop && i < node->input_count; ++i) { /* all operands have the domain's dims */
      HR_ASSERT(own.inputs[i].dims == own.outputs[0].dims);
    }
    hr_node before = *node;
    *node = own;
    char *text = print(&program);
    HR_ASSERT_STR_EQ(text, every_kind);
    hr_free(text);
    *node = before;
    hr_program_fini(&copy);
  }
  hr_program_fini(&program);
}

static const char *const value_forms =
    "buffer %0 1024 live layout(4,16,8)\n"
    "buffer %1 4096 live fresh free\n"
    "buffer %2 1024 dead fresh made\n"
    "scalar $0 f64\n"
    "scalar $1 f64 = 0.1\n"
    "%1.1:f32[4,8]{8,1}+0 = matmul(%0:f32[4,8]{8,1}+0, %0:f32[8,8]{8,1}+0, _, %2:f32[4,8]{0,1}+3, $1) "
    "then(mul,^,3) then(add,4,^)\n"
    "check_index(%1.1:i64[]{}+7) ints(-9223372036854775808,5,2)\n";

/* Packs a program, by its differences from the base if there is one, and unpacks it. */
static void expect_packed(const char *source, const hr_program *base) {
  hr_program program, again;
  HR_ASSERT_OK(hr_program_parse(source, &program));
  hr_packed_program *packed = hr_program_pack(&program, base);
  HR_ASSERT_NOT_NULL(packed);
  HR_ASSERT(program.node_count == 0 || packed->byte_count * 5 < program.arena.bytes_allocated);
  HR_ASSERT_OK(hr_program_unpack(packed, &again));
  char *first = print(&program), *second = print(&again);
  HR_ASSERT_STR_EQ(second, first);
  HR_ASSERT_EQ(again.bound_count, program.bound_count);
  HR_ASSERT_EQ(again.argument_count, program.argument_count);
  HR_ASSERT_EQ(again.is_value_form, program.is_value_form);
  for (int b = 0; b < program.buffer_count; ++b) {
    HR_ASSERT_EQ(again.buffers[b].versions, program.buffers[b].versions);
    HR_ASSERT_EQ(again.buffers[b].layout, program.buffers[b].layout);
  }
  hr_free(first);
  hr_free(second);
  hr_free(packed);
  hr_program_fini(&program);
  hr_program_fini(&again);
}

HR_TEST(a_packed_program_comes_back_as_it_was) {
  expect_packed(every_kind, NULL);
  expect_packed(value_forms, NULL);
  expect_packed("", NULL);
}

HR_TEST(a_program_is_packed_by_its_differences_from_another_one) {
  hr_program base;
  hr_packed_program *packed, *alike;
  HR_ASSERT_OK(hr_program_parse(value_forms, &base));
  expect_packed(value_forms, &base);
  expect_packed(every_kind, &base); /* of another structure: it still comes back */
  expect_packed("", &base);
  packed = hr_program_pack(&base, NULL), alike = hr_program_pack(&base, &base);
  HR_ASSERT(packed->base == NULL && alike->base == &base);
  HR_ASSERT(alike->byte_count <= 2 && packed->byte_count > 100);
  for (int b = 0; b < base.buffer_count; b += 2) {
    base.buffers[b].bytes += 64 << b;
  }
  base.nodes[0].scalar_base = 1000, ((int64_t *)base.nodes[1].ints)[0] = 0;
  expect_packed(value_forms, &base);
  hr_free(packed);
  hr_free(alike);
  hr_program_fini(&base);
}

HR_TEST(packing_reports_that_memory_is_out) {
  hr_program program, again;
  HR_ASSERT_OK(hr_program_parse(every_kind, &program));
  hr_packed_program *packed = hr_program_pack(&program, NULL);
  hr__allocator_fail_after(0);
  HR_ASSERT_NULL(hr_program_pack(&program, NULL));
  HR_ASSERT_NULL(hr_program_pack(&program, &program));
  hr__allocator_fail_after(-1);
  hr_arena_forget();
  hr__allocator_fail_after(0);
  HR_ASSERT_STATUS(hr_program_unpack(packed, &again), HR_STATUS_RESOURCE_EXHAUSTED);
  hr__allocator_fail_after(-1);
  hr_free(packed);
  hr_program_fini(&program);
}

HR_TEST(value_form_keeps_versions) {
  const char *text = "value form\n"
                     "buffer %0 16 live versions 2\n"
                     "loop %0.1:f32[4]{1}+0 = neg(%0:f32[4]{1}+0)\n"
                     "loop %0.2:f32[4]{1}+0 = exp(%0.1:f32[4]{1}+0)\n";
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  HR_ASSERT(program.is_value_form);
  HR_ASSERT_OK(hr_program_verify(&program));
  char *printed = print(&program);
  HR_ASSERT_STR_EQ(printed, text);
  hr_free(printed);
  program.nodes[1].inputs[0].version = 2;
  HR_ASSERT_ERROR(hr_program_verify(&program), HR_STATUS_INTERNAL, "reads version 2 of buffer 0 before it is made");
  program.nodes[1].inputs[0].version = 1;
  program.nodes[1].outputs[0].version = 1;
  HR_ASSERT_ERROR(hr_program_verify(&program), HR_STATUS_INTERNAL, "makes version 1 of buffer 0 after version 1");
  hr_program_fini(&program);
}

static void check_error(const char *text, const char *part) {
  hr_program program;
  HR_ASSERT_ERROR(hr_program_parse(text, &program), HR_STATUS_INVALID_ARGUMENT, part);
}

HR_TEST(parser_errors_name_line_and_column) {
  check_error("buffer %1 8 live", "line 1, column 9: expected the next buffer's number, found '1'");
  check_error("buffer %0 8 live\nbuffer %1 x", "line 2, column 11: expected a whole number, found 'x'");
  check_error("buffer %0 8 alive", "expected 'live' or 'dead'");
  check_error("scalar $0 f8", "column 11: expected a dtype");
  check_error("scalar $0 f32", "expected a scalar of bool");
  check_error("frob()", "line 1, column 1: expected an operation, found 'f'");
  check_error("buffer %0 8 live\n%0:f32[2]{1}+0 = neg(%1:f32[2]{1}+0)",
              "line 2, column 23: expected a declared buffer");
  check_error("buffer %0 8 live\n%0:f32[2]{1,1}+0 = neg($0)", "as many strides as dims");
  check_error("buffer %0 8 live\n%0:f32[-2]{1}+0 = neg($0)", "dims of 0 or more");
  check_error("buffer %0 8 live\n%0:f32[2]{1}+0 = neg(_) ints(1",
              "line 2, column 31: expected ',' or ')', found the end");
  check_error("scalar $0 i64 = 99999999999999999999", "a number of 64 bits");
  check_error("buffer %0 8 live\n%0:f32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]{}+0 = neg(_)", "at most 16 dims");
  check_error("scalar $0 f64\nscalar $1 f64\nscalar $2 f64\nneg() scalars($0,$2)", "scalars that follow each other");
}

HR_TEST(empty_text_is_an_empty_program) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse("; nothing\n\n  ; here", &program));
  HR_ASSERT_EQ(program.node_count, 0);
  HR_ASSERT_OK(hr_program_verify(&program));
  hr_program_fini(&program);
}

static uint32_t next_random(uint32_t *state) {
  *state ^= *state << 13, *state ^= *state >> 17, *state ^= *state << 5;
  return *state;
}

/* Damaged text is rejected or read. A program that was read can be verified and printed, and reads again. */
HR_TEST(damaged_text_does_no_harm) {
  static const char alphabet[] = "%$#_0123456789-+*<>@?!.,:;()[]{}= \nabdfilmnoprstuv";
  size_t length = strlen(every_kind);
  char text[2048];
  uint32_t state = 12345;
  int parsed = 0;
  HR_ASSERT(length < sizeof text);
  for (int round = 0; round < 20000; ++round) {
    memcpy(text, every_kind, length + 1);
    for (uint32_t edits = 1 + next_random(&state) % 3; edits > 0; --edits) {
      size_t at = next_random(&state) % length;
      switch (next_random(&state) % 3) {
        case 0:
          text[at] = alphabet[next_random(&state) % (sizeof alphabet - 1)];
          break;
        case 1:
          memmove(text + at, text + at + 1, strlen(text + at));
          break;
        default:
          text[at] = next_random(&state) % 16 == 0 ? '\0' : text[next_random(&state) % length];
          break;
      }
    }
    hr_program program;
    hr_status status = hr_program_parse(text, &program);
    if (status != HR_OK) {
      HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_INVALID_ARGUMENT);
      hr_status_free(status);
      continue;
    }
    ++parsed;
    hr_status_ignore(hr_program_verify(&program));
    char *printed = print(&program);
    hr_program again;
    HR_ASSERT_OK(hr_program_parse(printed, &again));
    hr_program_fini(&again);
    hr_program_fini(&program);
    hr_free(printed);
  }
  HR_ASSERT(parsed > 300);
}

static hr_status parse_every_kind(void) {
  hr_program program;
  hr_status status = hr_program_parse(every_kind, &program);
  if (status == HR_OK) {
    hr_program_fini(&program);
  }
  return status;
}

HR_TEST(parser_survives_missing_memory) {
  HR_TEST_OOM(parse_every_kind);
}

/* ---- verifier ---- */

static void check_broken(const char *node, const char *part) {
  char text[1024];
  hr_program program;
  snprintf(text, sizeof text, "buffer %%0 64 live\nbuffer %%1 64 live\nbuffer %%2 64 live\nscalar $0 f64\n%s\n", node);
  HR_ASSERT_OK(hr_program_parse(text, &program));
  if (part != NULL) {
    HR_ASSERT_ERROR(hr_program_verify(&program), HR_STATUS_INTERNAL, part);
  } else {
    HR_ASSERT_OK(hr_program_verify(&program));
  }
  hr_program_fini(&program);
}

HR_TEST(verifier_finds_broken_promises) {
  check_broken("loop %0:f32[16]{1}+0 = neg(%1:f32[16]{1}+0)", NULL);
  check_broken("loop %0:f32[16]{1}+0 = neg(%1:f32[16]{1}+1)",
               "input 0 reaches elements 1 to 16 of buffer 1, which has 16");
  check_broken("loop %0:f32[16]{-1}+15 = neg(%1:f32[16]{1}+0)", NULL);
  check_broken("loop %0:f32[16]{-1}+14 = neg(%1:f32[16]{1}+0)", "output 0 reaches elements -1 to 14");
  check_broken("loop %0:f32[16]{1}+0 = add(%1:f32[16]{1}+0)", "a loop of 1 inputs");
  check_broken("loop %0:f32[16]{1}+0 = neg(%1:f32[8]{1}+0)", "does not have the dims of the domain");
  check_broken("loop %0:f32[16]{0}+0 = neg(%1:f32[16]{1}+0)", "neither reduced nor ordered");
  check_broken("loop %0:f32[16]{1}+0 = sum(%1:f32[16]{1}+0) reduce(1)", "moves along dim 0");
  check_broken("loop %0:f32[16]{0}+0 = sum(%1:f32[16]{1}+0)", "masks 0x0");
  check_broken("loop %0:f32[16]{0}+0 = sum(%1:f32[16]{1}+0) reduce(3)", "masks 0x3");
  check_broken("loop %0:f32[16]{0}+0 = sum(%1:f32[16]{1}+0) reduce(1)", NULL);
  check_broken("loop %0:f32[16]{1}+0 = bit_and(%1:f32[16]{1}+0, %1:f32[16]{1}+0)", "no version for class f32");
  check_broken("loop %0:f32[8]{1}+0 = neg(%0:f32[8]{1}+0)", NULL);
  check_broken("loop %0:f32[8]{1}+0 = neg(%0:f32[8]{1}+1)", "may overlap the output");
  check_broken("loop %0:f32[8]{2}+0 = neg(%0:f32[8]{2}+1)", NULL);
  check_broken("loop %0:f32[4]{1}+0 = copy(%1:f32[4]{0}+0@1*1<16, %2:i32[4]{1}+0)", NULL);
  check_broken("loop %0:f32[4]{1}+0 = copy(%1:f32[4]{0}+0@1*1<17, %2:i32[4]{1}+0)", "reaches elements 0 to 16");
  check_broken("loop %0:f32[4]{1}+0 = copy(%1:f32[4]{0}+0@1*1<16, %2:f32[4]{1}+0)", "no plain integer");
  check_broken("loop %0:f32[4]{1}+0 = copy(%1:f32[4]{0}+0@1*1<16)", "names input 1 of 1");
  check_broken("loop %0:f32[4]{1}+0 = copy(_)", "input 0 of a loop is absent");
  check_broken("%0:f32[4]{1}+0 = softmax(%1:f32[4]{1}+0) reduce(1)", "marks of a loop");
  check_broken("loop %0:f32[4]{1}+0 = softmax(%1:f32[4]{1}+0)", "is no loop");
  check_broken("%0:f32[4]{1}+0 = add(%1:f32[4]{1}+0, $0, $0)", "3 inputs for 1 outputs");
  check_broken("check_index(%0:f32[]{}+0) ints(0,1,0)", "takes one i64");
}

/* A window that starts before x is valid if a bound keeps it inside. */
HR_TEST(verifier_understands_bounds) {
  check_broken("loop %0:f32[4,3]{3,1}+0 = copy(%1:f32[4,3]{1,1}+-1?{1,1}+-1<4)", NULL);
  check_broken("loop %0:f32[4,3]{3,1}+0 = copy(%1:f32[4,3]{1,1}+-1?{1,1}+-1<17)", NULL);
  check_broken("loop %0:f32[4,3]{3,1}+0 = copy(%1:f32[4,3]{1,1}+11?{1,1}+-1<4)", NULL);
  check_broken("loop %0:f32[4,3]{3,1}+0 = copy(%1:f32[4,3]{1,1}+12?{1,1}+-1<4)", "reaches elements 13 to 16");
  check_broken("loop %0:f32[4,3]{3,1}+0 = copy(%1:f32[4,3]{1,1}+-2?{1,1}+-1<4)", "reaches elements -1 to 2");
}

/* ---- overlap ---- */

static hr_operand view(int64_t offset, int rank, const int64_t *dims, const int64_t *strides) {
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = HR_DTYPE_F32,
                      .rank = rank,
                      .offset = offset,
                      .dims = dims,
                      .strides = strides,
                      .fill = HR_NO_SCALAR};
}

/* Random small views against a count of the elements they visit. */
HR_TEST(overlap_is_exact_for_small_views) {
  uint32_t state = 99;
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    int64_t dims[2][3], strides[2][3];
    bool visited[2][256] = {{false}};
    hr_operand views[2];
    for (int side = 0; side < 2; ++side) {
      int rank = 1 + (int)(next_random(&state) % 3);
      int64_t offset = 100 + next_random(&state) % 16;
      for (int d = 0; d < rank; ++d) {
        dims[side][d] = 1 + next_random(&state) % 4;
        strides[side][d] = (int64_t)(next_random(&state) % 17) - 4;
      }
      views[side] = view(offset, rank, dims[side], strides[side]);
      int64_t count = 1;
      for (int d = 0; d < rank; ++d) {
        count *= dims[side][d];
      }
      for (int64_t i = 0; i < count; ++i) {
        int64_t at = offset, rest = i;
        for (int d = rank - 1; d >= 0; --d) {
          at += rest % dims[side][d] * strides[side][d];
          rest /= dims[side][d];
        }
        visited[side][at] = true;
      }
    }
    bool expected = false;
    for (int i = 0; i < 256; ++i) {
      expected |= visited[0][i] && visited[1][i];
    }
    overlapping += expected;
    HR_ASSERT_EQ(hr_operands_may_overlap(&views[0], &views[1]), expected);
  }
  HR_ASSERT(overlapping > 2000 && overlapping < 19000);
}

HR_TEST(columns_of_one_matrix_are_disjoint) {
  const int64_t dims[2] = {1000, 256}, strides[2] = {768, 1};
  hr_operand q = view(0, 2, dims, strides), k = view(256, 2, dims, strides), near = view(255, 2, dims, strides);
  HR_ASSERT(!hr_operands_may_overlap(&q, &k));
  HR_ASSERT(hr_operands_may_overlap(&q, &near));
  HR_ASSERT(hr_operands_are_same_map(&q, &q) && !hr_operands_are_same_map(&q, &k));
  k.index = 1;
  HR_ASSERT(!hr_operands_may_overlap(&near, &k));
}

/* ---- the table ---- */

HR_TEST(every_operation_has_a_name_of_its_own) {
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    HR_ASSERT_EQ(hr_op_parse(row->name), op);
    HR_ASSERT(row->family != HR_FAMILY_NONE);
    HR_ASSERT_EQ(row->lower != NULL, row->family == HR_FAMILY_COMPOSITE || row->family == HR_FAMILY_CONTRACTION);
    if (row->family == HR_FAMILY_POINTWISE) {
      HR_ASSERT(row->arity >= 1 && row->arity <= 4 && row->rule != HR_RULE_NONE);
      HR_ASSERT_EQ(row->has_real, row->real_text != NULL);
    }
  }
  HR_ASSERT_STR_EQ(hr_op_table(HR_OP_SUB_SCALED)->real_text, "a - c * b");
  HR_ASSERT_STR_EQ(hr_op_table((hr_op)-1)->name, "none");
  HR_ASSERT_EQ(hr_op_parse("no such"), HR_OP_NONE);
}
