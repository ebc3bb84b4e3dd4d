/* The attention provider of the host against its lowering: see attention_cases.h. */
#include "attention_cases.h"
#include "base/thread.h"

/* Of each direction: a call that gets the numbers of the next one, which is then not prepared; NULL: none. */
static bool keeps_calls;
static hr_prepared *kept[2];

static void prepare_call(call *c) {
  const hr_provider *provider = &hr__attention_provider;
  const hr_node *node = &c->program.nodes[0];
  hr_prepared **from = &kept[node->op == HR_OP_ATTENTION_BACKWARD];
  HR_ASSERT(provider->supports(&c->program, node));
  if (*from != NULL) {
    HR_ASSERT(provider->renumber(*from, &c->program, node, &c->workspace_bytes));
    c->prepared = *from;
  } else {
    HR_ASSERT_OK(provider->prepare(&c->program, node, HR_ALGORITHM_OWN, NULL, &c->prepared, &c->workspace_bytes));
  }
  *from = keeps_calls ? c->prepared : NULL;
}

static void run_call(call *c) {
  const hr_provider *provider = &hr__attention_provider;
  prepare_call(c);
  size_t bytes = (c->workspace_bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char *workspace = aligned_alloc(ALIGNMENT, bytes);
  HR_ASSERT_NOT_NULL(workspace);
  memset(workspace, 0xFF, bytes); /* NaN */
  HR_ASSERT_OK(provider->run(c->prepared, c->args, workspace, NULL));
  for (size_t i = c->workspace_bytes; i < bytes; ++i) {
    HR_ASSERT_EQ(workspace[i], 0xFF);
  }
  free(workspace);
  if (!keeps_calls) {
    provider->release(c->prepared);
  }
  hr_program_fini(&c->program);
}

/* ---- tests ---- */

static const int64_t edges[][2] = {{16, 1},  {17, 40}, {31, 31},  {32, 1},   {33, 16},  {63, 65},
                                   {64, 64}, {65, 63}, {64, 128}, {130, 20}, {40, 130}, {129, 129}};
enum { EDGES = sizeof edges / sizeof *edges };

HR_TEST(attention_at_the_edges_of_blocks) {
  for (int i = 0; i < EDGES; ++i) {
    for (int causal = 0; causal < 2; ++causal) {
      check((problem){1, 2, edges[i][0], edges[i][1], 8, 8, causal, NO_MASK, DENSE, 0, 0});
      check((problem){1, 1, edges[i][0], edges[i][1], 5, 3, causal, NO_MASK, DENSE, 0, 0});
    }
  }
}

/* Diagonal blocks of every size, whose last tiles are partly padding; with dropout, too. */
HR_TEST(causal_attention_of_every_length) {
  for (int64_t length = 32; length <= 97; length += 5) {
    check((problem){1, 1, length, length, 4, 3, 1, NO_MASK, DENSE, 0, 0});
    check((problem){1, 1, length, length - 15, 3, 4, 1, NO_MASK, DENSE, 0.3, 0});
    check((problem){1, 2, length, length + 9, 2, 3, 1, FLAGS_OF_QUERIES, HEADS_INSIDE, 0, 0});
  }
}

HR_TEST(attention_gets_new_numbers_in_place) {
  keeps_calls = true;
  for (int i = 0; i < EDGES; ++i) {
    check((problem){1, 2, edges[i][0], edges[i][1], 8 + i % 3, 8, 0, ADDED, DENSE, 0, 0});
    check((problem){2, 3, edges[i][0], edges[i][1], 5, 3 + i % 5, 1, NO_MASK, HEADS_INSIDE, 0, 0});
  }
  keeps_calls = false;
  for (int i = 0; i < 2; ++i) {
    hr__attention_provider.release(kept[i]);
    kept[i] = NULL;
  }
}

HR_TEST(attention_of_every_width) {
  static const int64_t widths[][2] = {{1, 1}, {16, 17}, {40, 31}, {64, 64}, {80, 80}, {7, 130}};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; ++i) {
    check((problem){1, 1, 33, 70, widths[i][0], widths[i][1], 0, NO_MASK, DENSE, 0, 0});
  }
}

HR_TEST(attention_with_every_mask) {
  for (int mask = FLAGS; mask <= ADDED_OF_ALL; ++mask) {
    for (int causal = 0; causal < 2; ++causal) {
      check((problem){2, 2, 70, 140, 3, 2, causal, (mask_kind)mask, DENSE, 0, 0});
      check((problem){3, 2, 40, 20, 2, 5, causal, (mask_kind)mask, HEADS_INSIDE, 0, 0});
    }
  }
}

HR_TEST(attention_on_views) {
  for (int layout = DENSE; layout <= TRANSPOSED; ++layout) {
    check((problem){2, 3, 50, 70, 12, 10, 0, NO_MASK, (layout_kind)layout, 0, 0});
    check((problem){2, 3, 70, 50, 7, 9, 1, ADDED, (layout_kind)layout, 0, 0});
  }
}

/* A row of the flags hides all keys: NaN with -infinity, and as likely as each other with a number. */
HR_TEST(attention_with_a_score_for_what_flags_hide) {
  static const double hidden[] = {-(double)INFINITY, -0.5, -3.4028234663852886e38};
  for (int i = 0; i < 3; ++i) {
    for (int mask = FLAGS; mask <= ADDED_OF_ALL; ++mask) {
      const problem p = {2, 2, 40, 70, 3, 2, mask % 2, (mask_kind)mask, DENSE, 0, 0.5, hidden[i]};
      op_case t = make_case(&p, HR_DTYPE_F32);
      call c;
      evaluate(&t, HR_DTYPE_F64);
      make_call(&t, false, &c);
      run_call(&c);
      check_result(&t, Y, 3e-6);
      check_result(&t, LSE, 3e-6);
      make_call(&t, true, &c);
      HR_ASSERT(!hr__attention_provider.supports(&c.program, &c.program.nodes[0]));
      hr_program_fini(&c.program);
      free_case(&t);
    }
  }
}

/* Element i of the probabilities uses the same random number as in the lowering. */
HR_TEST(attention_drops_what_its_lowering_drops) {
  for (int64_t keys = 64; keys < 68; ++keys) {
    check((problem){1, 2, 70, keys, 6, 5, 0, NO_MASK, DENSE, 0.3, 0});
    check((problem){2, 2, 36, keys + 60, 6, 5, 1, FLAGS, DENSE, 0.75, 0});
  }
  check((problem){1, 2, 32, 30, 6, 5, 0, NO_MASK, DENSE, 1, 0});
}

HR_TEST(attention_in_narrow_dtypes) {
  static const hr_dtype dtypes[] = {HR_DTYPE_BF16, HR_DTYPE_F16};
  for (int i = 0; i < 2; ++i) {
    const problem problems[] = {{1, 2, 70, 90, 12, 10, 0, NO_MASK, HEADS_INSIDE, 0, 0.3},
                                {2, 2, 13, 70, 7, 9, 1, ADDED, SPREAD_COLUMNS, 0, 0.3}};
    for (int k = 0; k < 2; ++k) {
      check_in(&problems[k], dtypes[i], HR_DTYPE_F64);
    }
  }
}

/* Keys beyond a chunk, and parts of a head: dq is summed over them. */
HR_TEST(attention_over_several_chunks_of_keys) {
  for (int causal = 0; causal < 2; ++causal) {
    check((problem){1, 1, 70, 1030, 3, 2, causal, NO_MASK, DENSE, 0, 0});
    check((problem){1, 1, 530, 520, 2, 1, causal, NO_MASK, HEADS_INSIDE, 0, 0});
    check((problem){3, 3, 32, 520, 2, 3, causal, FLAGS, DENSE, 0, 0});
  }
}

HR_TEST(attention_scales_by_any_number) {
  static const double scales[] = {-0.5, 8, 1e-30};
  for (int i = 0; i < 3; ++i) {
    check((problem){1, 1, 40, 100, 6, 5, 0, NO_MASK, DENSE, 0, scales[i]});
  }
}

HR_TEST(attention_of_nan_and_infinities) {
  for (int mask = NO_MASK; mask <= ADDED; mask += FLAGS_OF_KEYS) {
    check_spoiled((problem){1, 1, 40, 100, 4, 3, 0, (mask_kind)mask, DENSE, 0, 0.5});
  }
}

static void run_both(op_case *t) {
  for (int is_backward = 0; is_backward < 2; ++is_backward) {
    call c;
    make_call(t, is_backward != 0, &c);
    run_call(&c);
  }
}

/* Checks that elements first .. end of the rows of a result are the same bits, and the others NaN. */
static void check_rows(const op_case *t, const op_case *spoiled, role r, int64_t first, int64_t end) {
  const tensor *x = &t->tensors[r], *y = &spoiled->tensors[r];
  for (int64_t i = 0; i < count_of(x); ++i) {
    int64_t row = i / x->dims[3], at = place_of(x, i);
    float clean = ((float *)(void *)x->bytes)[at], dirty = ((float *)(void *)y->bytes)[at];
    HR_ASSERT(row >= first && row < end ? memcmp(&clean, &dirty, sizeof clean) == 0 : isnan(dirty));
  }
}

/* Tiles of 16 keys by 16 queries that a causal mask hides are not computed: NaN in later keys and values don't reach
 * earlier queries, nor those of earlier queries the gradients of later keys. */
HR_TEST(hidden_tiles_of_causal_attention_are_not_computed) {
  static const role of_keys[] = {K, V}, of_queries[] = {Q, DY};
  for (int64_t edge = 16; edge <= 112; edge += 16) {
    for (int is_query = 0; is_query < 2; ++is_query) {
      random_state = 5;
      op_case clean = make_case(&(problem){1, 1, 120, 120, 4, 4, 1, NO_MASK, DENSE, 0, 0.5}, HR_DTYPE_F32);
      random_state = 5;
      op_case spoiled = make_case(&clean.of, HR_DTYPE_F32);
      for (int64_t i = 0; i < 2 * 4; ++i) {
        set(&spoiled, is_query ? of_queries[i / 4] : of_keys[i / 4], is_query ? edge - 1 : edge, i % 4, NAN);
      }
      run_both(&clean), run_both(&spoiled);
      if (is_query) {
        check_rows(&clean, &spoiled, DK, edge, 120), check_rows(&clean, &spoiled, DV, edge, 120);
      } else {
        check_rows(&clean, &spoiled, Y, 0, edge), check_rows(&clean, &spoiled, DQ, 0, edge);
      }
      free_case(&clean), free_case(&spoiled);
    }
  }
}

/* ---- threads, optional outputs, rejected nodes ---- */

static void check_threads(const problem *p, bool is_backward) {
  op_case t = make_case(p, HR_DTYPE_F32);
  size_t bytes[ROLES];
  void *first[ROLES] = {0};
  call c;
  evaluate(&t, HR_DTYPE_F32);
  if (is_backward) {
    write_input(&t.tensors[Y]), write_input(&t.tensors[LSE]);
  }
  for (int threads = 1; threads <= 3; ++threads) {
    hr_thread_count_set(threads);
    make_call(&t, is_backward, &c);
    run_call(&c);
    for (int r = Y; r < ROLES; ++r) {
      bytes[r] = (size_t)t.tensors[r].length * sizeof(float);
      if (threads == 1) {
        first[r] = malloc(bytes[r]);
        HR_ASSERT_NOT_NULL(first[r]);
        memcpy(first[r], t.tensors[r].bytes, bytes[r]);
      } else {
        HR_ASSERT_BYTES_EQ(t.tensors[r].bytes, first[r], bytes[r]);
      }
    }
  }
  hr_thread_count_set(0);
  for (int r = Y; r < ROLES; ++r) {
    free(first[r]);
  }
  free_case(&t);
}

HR_TEST(attention_gives_the_same_bits_whatever_the_number_of_threads) {
  for (int is_backward = 0; is_backward < 2; ++is_backward) {
    check_threads(&(problem){1, 3, 200, 1030, 3, 2, 1, NO_MASK, DENSE, 0.2, 0.5}, is_backward);
    check_threads(&(problem){5, 3, 130, 100, 5, 4, 0, FLAGS, HEADS_INSIDE, 0, 0.5}, is_backward);
  }
}

/* Strides don't change bits either. */
HR_TEST(attention_gives_the_same_bits_in_every_layout) {
  float *first = NULL;
  int64_t count = 0;
  for (int layout = DENSE; layout <= TRANSPOSED; ++layout) {
    random_state = 9;
    op_case t = make_case(&(problem){2, 2, 70, 90, 16, 16, 1, NO_MASK, (layout_kind)layout, 0, 0.5}, HR_DTYPE_F32);
    tensor *y = &t.tensors[Y];
    call c;
    make_call(&t, false, &c);
    run_call(&c);
    count = count_of(y);
    first = first != NULL ? first : calloc((size_t)count, sizeof *first);
    HR_ASSERT_NOT_NULL(first);
    for (int64_t i = 0; i < count; ++i) {
      float value = ((float *)(void *)y->bytes)[place_of(y, i)];
      first[i] = layout == DENSE ? value : first[i];
      HR_ASSERT(memcmp(&first[i], &value, sizeof value) == 0);
    }
    free_case(&t);
  }
  free(first);
}

HR_TEST(attention_computes_the_requested_outputs) {
  static const role optional[] = {LSE, DQ, DK, DV};
  const problem p = {1, 2, 70, 600, 9, 7, 0, NO_MASK, DENSE, 0, 0.5};
  for (int i = 0; i < 4; ++i) {
    op_case t = make_case(&p, HR_DTYPE_F32);
    call c;
    evaluate(&t, HR_DTYPE_F64);
    bool is_backward = optional[i] != LSE;
    if (is_backward) {
      write_input(&t.tensors[Y]), write_input(&t.tensors[LSE]);
    }
    unsigned char *hidden = t.tensors[optional[i]].bytes;
    t.tensors[optional[i]].bytes = NULL;
    make_call(&t, is_backward, &c);
    run_call(&c);
    for (int k = is_backward ? DQ : Y; k < (is_backward ? ROLES : LSE); ++k) {
      if (k != (int)optional[i]) {
        check_result(&t, (role)k, 1e-5);
      }
    }
    t.tensors[optional[i]].bytes = hidden;
    free_case(&t);
  }
}

static bool is_taken(const char *text) {
  hr_program program;
  HR_ASSERT_OK(hr_program_parse(text, &program));
  bool taken = hr__attention_provider.supports(&program, &program.nodes[0]);
  hr_program_fini(&program);
  return taken;
}

#define NODE(dtype, queries)                                                                                   \
  "buffer %0 65536 live\nbuffer %1 65536 live\nscalar $0 f64\n"                                                \
  "%1:" dtype "[1,1," queries ",8]{512,512,8,1}+0 = attention(%0:" dtype "[1,1," queries                       \
  ",8]{512,512,8,1}+0, %0:" dtype "[1,1,64,8]{512,512,8,1}+0, %0:" dtype "[1,1,64,8]{512,512,8,1}+0) ints(0) " \
  "scalars($0)\n"

HR_TEST(attention_leaves_the_rest_to_its_lowering) {
  HR_ASSERT(is_taken(NODE("f32", "64")));
  HR_ASSERT(is_taken(NODE("bf16", "64")));
  HR_ASSERT(!is_taken(NODE("f64", "64")));
  HR_ASSERT(!is_taken(NODE("f32", "15")));
  HR_ASSERT(is_taken(NODE("f32", "16")));
  HR_ASSERT(is_taken(NODE("f16", "31")));
}

static call *memory_call;

static hr_status prepare_and_release(void) {
  call *c = memory_call;
  c->prepared = NULL;
  const hr_provider *provider = &hr__attention_provider;
  HR_RETURN_IF_ERROR(
      provider->prepare(&c->program, &c->program.nodes[0], HR_ALGORITHM_OWN, NULL, &c->prepared, &c->workspace_bytes));
  provider->release(c->prepared);
  return HR_OK;
}

HR_TEST(attention_reports_memory_that_is_out) {
  op_case t = make_case(&(problem){1, 1, 32, 16, 4, 4, 0, NO_MASK, DENSE, 0, 0.5}, HR_DTYPE_F32);
  call c;
  make_call(&t, false, &c);
  memory_call = &c;
  HR_TEST_OOM(prepare_and_release);
  hr_program_fini(&c.program);
  free_case(&t);
  hr__attention_provider.release(NULL);
}
