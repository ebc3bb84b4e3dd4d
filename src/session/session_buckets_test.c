/* Buckets: results are those of the dims as they are; graphs that mix slices are refused with the operation's name. */
#include "session/session_test.h"

static hr_status create(const char *text, int count, const hr_session_bucket *buckets, hr_session **out) {
  open_stream();
  hr_graph *g = graph_of(text);
  const hr_session_options options = {.bucket_count = count, .buckets = buckets};
  hr_status status = hr_session_create(stream, g, &options, out);
  hr_graph_release(g);
  return status;
}

static const hr_session_bucket rows = {.symbol = "n", .count = 2, .sizes = (const int64_t[]){4, 8}};

/* The text's outputs for inputs x [n, 3, 2, 2] and t [n] of i64 are those of a session without buckets. */
static void check(const char *text, int outputs) {
  enum { OUTPUTS = 4 };
  hr_session *padded = NULL, *exact = NULL;
  HR_ASSERT_OK(create(text, 1, &rows, &padded));
  HR_ASSERT_OK(create(text, 0, NULL, &exact));
  for (int64_t n = 0; n < 11; ++n) {
    static const int64_t indices[11] = {2, 0, 1, 1, 2, 0, 2, 1, 0, 1, 2};
    hr_tensor inputs[2] = {counted(DIMS(n, 3, 2, 2)), tensor_of(HR_DTYPE_I64, DIMS(n), indices)};
    const hr_tensor *places[2] = {&inputs[0], &inputs[1]};
    hr_tensor got[OUTPUTS], expected[OUTPUTS];
    HR_ASSERT_OK(hr_session_run(padded, 2, places, outputs, got));
    HR_ASSERT_OK(hr_session_run(exact, 2, places, outputs, expected));
    for (int i = 0; i < outputs; ++i) {
      float *values = calloc((size_t)hr_tensor_count(&expected[i]) + 1, sizeof *values);
      read(&expected[i], values);
      HR_ASSERT_EQ(got[i].rank, expected[i].rank);
      for (int d = 0; d < got[i].rank; ++d) {
        HR_ASSERT_EQ(got[i].dims[d], expected[i].dims[d]);
      }
      expect_values(&got[i], hr_tensor_count(&expected[i]), values);
      free(values);
      RELEASE(&got[i], &expected[i]);
    }
    RELEASE(&inputs[0], &inputs[1]);
  }
  HR_ASSERT_EQ(stats_of(padded).instances, 5); /* 0, 4, 8, 9, 10 */
  HR_ASSERT_EQ(stats_of(padded).padded, 6);
  HR_ASSERT_EQ(stats_of(exact).instances, 11);
  hr_session_release(padded);
  hr_session_release(exact);
}

#define INPUTS_OF "graph 1\ninput %x f32[n, 3, 2, 2]\ninput %t i64[n]\n"

HR_TEST(batches_are_padded) {
  check(INPUTS_OF
        "constant %w f32[2, 3, 1, 1] = [1.0, -1.0, 2.0, 0.5, 3.0, -2.0]\nconstant %e f32[3, 2] = [1.0, 2.0, 3.0, 4.0, "
        "5.0, 6.0]\n%c = conv(%x, %w, _, stride=[1, 1], before=[0, 0], after=[0, 0], dilation=[1, 1])\n%r = relu(%c)\n"
        "%p = max_pool(%r, window=[2, 2], stride=[2, 2], padding=[0, 0])\n%f = reshape(%p, shape=[n, 2])\n"
        "%s = reshape(%f, shape=[-1, 2, 1])\n%m = mean(%s, axis=[2])\n%v = take(%e, %t)\n%y = add(%m, %v)\n"
        "%a = softmax(%y)\n%q = permute_dims(%s, axes=[1, 2, 0])\n%j = concat(%y, %a, axis=1)\noutput y = %y\n"
        "output a = %a\noutput q = %q\noutput j = %j\n",
        4);
}

HR_TEST(rows_are_dims_at_any_place) {
  check(INPUTS_OF
        "constant %k f32[2, 2] = [1.0, 0.0, 2.0, -1.0]\n"
        "%m = matmul(%x, %k)\n%g = sum(%m, axis=[-1, 1], keepdims=true)\n%h = squeeze(%g, axis=[1, 3])\n"
        "%f = reshape(%x, shape=[n, 12])\n%u = permute_dims(%f, axes=[1, 0])\n%d = expand_dims(%h, axis=[0, 2])\n"
        "%b = broadcast_to(%h, shape=[5, n, 2])\n%z = flip(%h, axis=[1])\n%i = slice(%u, begin=[2, 0], count=[3, n], "
        "step=[1, 1])\noutput d = %d\noutput b = %b\noutput z = %z\noutput i = %i\n",
        4);
}

#define ROWS_OF_TWO_HEADS                                                                             \
  "%f = reshape(%x, shape=[n, 12])\n%i = arange(stop=n, dtype=f32)\n%j = expand_dims(%i, axis=[1])\n" \
  "%g = add(%f, %j)\n%h = reshape(%g, shape=[n, 2, 6])\n%k = permute_dims(%h, axes=[1, 0, 2])\n"      \
  "%l = expand_dims(%k, axis=[0])\n"

HR_TEST(causal_sequences_are_padded) {
  check(INPUTS_OF ROWS_OF_TWO_HEADS
        "%a = attention(%l, %l, %l, _, causal=true, scale=0.01)\n%s = swapaxes(%l)\n%t2 = swapaxes(%s, axis1=2, "
        "axis2=3)\n%b = attention(%l, %t2, %l, _, causal=true, scale=0.01, "
        "offset=-1)\noutput a = %a\noutput b = %b\noutput g = %g\noutput i = %i\n",
        4);
}

static void refuse(const char *text, const hr_session_bucket *bucket, const char *message) {
  hr_session *session = NULL;
  HR_ASSERT_ERROR(create(text, 1, bucket, &session), HR_STATUS_INVALID_ARGUMENT, message);
}

HR_TEST(graphs_that_mix_rows_are_refused) {
  static const struct {
    const char *text, *name;
  } mixing[] = {
      {"%y = sum(%x)\n", "\"y\" (sum) does not keep the rows of \"n\" apart"},
      {"%y = softmax(%x, axis=0)\n", "(softmax)"},
      {"%y = cumulative_sum(%x, axis=0)\n", "(cumulative_sum)"},
      {"%y = divide(%x, n)\n", "(divide)"},
      {"%y = reshape(%x, shape=[-1, 4])\n", "(reshape)"},
      {"%y = reshape(%x, shape=[3, n, 4, 4])\n", "(reshape)"},
      {"%y = flip(%x, axis=[0])\n", "(flip)"},
      {"%y = concat(%x, %x)\n", "(concat)"},
      {"%y = take(%x, %t)\n", "(take)"},
      {"%y = batch_norm_training(%x, _, _)\n", "(batch_norm_training)"},
      {"%p = permute_dims(%x, axes=[1, 2, 3, 0])\n%q = reshape(%x, shape=[3, 4, 4, -1])\n%y = add(%p, %q)\n",
       "(reshape)"},
      {"%f = reshape(%x, shape=[n, 48])\n%g = permute_dims(%f, axes=[1, 0])\n%y = matmul(%g, %f)\n", "(matmul)"},
      {"%s = shape(%x)\n%y = add(%s, 1)\n", "does not keep"},
      {"%i = nonzero(%t)\n%y = negative(%i)\n", "(nonzero)"},
      {"%k = permute_dims(%x, axes=[1, 2, 0, 3])\n%y = attention(%k, %k, %k, _)\n", "(attention)"},
      {"%k = permute_dims(%x, axes=[1, 2, 0, 3])\n%y = attention(%k, %k, %k, _, causal=true, offset=1)\n",
       "(attention)"},
      {"%i = subtract(0, n)\n%y = arange(start=%i, stop=4)\n", "(arange)"},
      {"%y = full(1, shape=[n, n])\n", "(full)"}};
  for (size_t i = 0; i < sizeof mixing / sizeof *mixing; ++i) {
    char text[1024];
    bool is_live = strstr(mixing[i].text, "nonzero") != NULL;
    snprintf(text, sizeof text, "graph %d\ninput %%x f32[n, 3, 4, 4]\ninput %%t i64[n]\n%soutput y = %%y\n",
             1 + is_live, mixing[i].text);
    refuse(text, &rows, mixing[i].name);
  }
}

HR_TEST(wrong_buckets_are_refused) {
  static const char text[] = "graph 1\ninput %x f32[n, 2]\n%y = negative(%x)\noutput y = %y\n";
  static const int64_t falling[2] = {4, 4}, negative[1] = {0};
  refuse(text, &(hr_session_bucket){"n", 2, falling}, "buckets of \"n\": expected positive sizes in ascending order");
  refuse(text, &(hr_session_bucket){"n", 1, negative}, "expected positive");
  refuse(text, &(hr_session_bucket){"n", 0, negative}, "expected positive");
  refuse(text, &(hr_session_bucket){"m", 2, rows.sizes}, "the graph has no symbol \"m\"");
  hr_session *session = NULL;
  const hr_session_bucket twice[2] = {rows, rows};
  HR_ASSERT_ERROR(create(text, 2, twice, &session), HR_STATUS_INVALID_ARGUMENT, "given twice");
}

HR_TEST(inputs_are_checked_before_they_are_padded) {
  hr_session *session = NULL;
  HR_ASSERT_OK(
      create("graph 1\ninput %x f32[n, 2]\ninput %z f32[n, 2]\n%y = add(%x, %z)\noutput y = %y\n", 1, &rows, &session));
  hr_tensor inputs[3] = {counted(DIMS(2, 2)), counted(DIMS(3, 2)), counted(DIMS(3, 3))}, y;
  const hr_tensor *different[2] = {&inputs[0], &inputs[1]}, *wrong[2] = {&inputs[1], &inputs[2]};
  HR_ASSERT_ERROR(hr_session_run(session, 2, different, 1, &y), HR_STATUS_INVALID_ARGUMENT,
                  "input \"z\": dim 0 (n) is 3, but input \"x\" has n = 2");
  HR_ASSERT_ERROR(hr_session_run(session, 2, wrong, 1, &y), HR_STATUS_INVALID_ARGUMENT,
                  "input \"z\" is f32[3,3], expected f32[n,2]");
  for (int i = 0; i < 3; ++i) {
    hr_tensor_release(&inputs[i]);
  }
  hr_session_release(session);
}

/* Two symbols, an input that is a view, and one without elements. */
HR_TEST(several_symbols_have_buckets) {
  hr_session *session = NULL;
  const hr_session_bucket both[2] = {rows, {"m", 1, (const int64_t[]){3}}};
  HR_ASSERT_OK(create("graph 1\ninput %x f32[n, m]\ninput %z f32[m]\ninput %e f32[n, 0]\n%y = add(%x, %z)\n"
                      "%s = sum(%e, axis=[1])\noutput y = %y\noutput s = %s\n",
                      2, both, &session));
  hr_tensor whole = counted(DIMS(2, 3)), x, z = tensor_of(HR_DTYPE_F32, DIMS(2), F32(10, 20)), out[2];
  hr_tensor e = counted(DIMS(3, 0));
  const hr_tensor *of = &whole, *inputs[3] = {&x, &z, &e};
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_PERMUTE_DIMS, 1, &of, 0, NULL, 1, &x)); /* [3, 2] */
  HR_ASSERT_OK(hr_session_run(session, 3, inputs, 2, out));
  expect_type(&out[0], HR_DTYPE_F32, DIMS(3, 2));
  EXPECT(&out[0], 10, 23, 11, 24, 12, 25);
  EXPECT(&out[1], 0, 0, 0);
  RELEASE(&out[0], &out[1]);
  RELEASE(&x, &z);
  RELEASE(&whole, &e);
  hr_session_release(session);
}

HR_TEST(warm_makes_the_instance_of_the_bucket) {
  hr_session *session = NULL;
  HR_ASSERT_OK(create("graph 1\ninput %x f32[n, 2]\n%y = negative(%x)\noutput y = %y\n", 1, &rows, &session));
  hr_tensor like = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {3, 2}, .strides = {2, 1}}, x = counted(DIMS(2, 2)), y;
  const hr_tensor *types[1] = {&like}, *inputs[1] = {&x};
  HR_ASSERT_OK(hr_session_warm(session, 1, types));
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  expect_type(&y, HR_DTYPE_F32, DIMS(2, 2));
  HR_ASSERT_EQ(stats_of(session).instances, 1);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_session_release(session);
}
