/* Graphs with attention of several operations against the same graphs with the operations joined. */
#include "graph_test.h"

/* Declarations of q, keys (transposed) and v, and the product of the scores. */
#define FACTORS                                                                             \
  "graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n" \
  "constant %scale f32[] = [0.5]\n"
#define PRODUCT "%s = matmul(%q, %k)\n"
#define PRODUCT_OF(q) "%s = matmul(" q ", %k)\n"
#define REST "%p = softmax(%t)\n%y = matmul(%p, %v)\noutput y = %y\n"
/* The same with one number of queries and keys. */
#define SQUARE "graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, n]\ninput %v f32[b, 2, n, 3]\n"

#define ONES "%one = number(1.0)\n%ones = full(%one, shape=[n, n], dtype=f32)\n"

static const int64_t symbol_sizes[][3] = {{2, 33, 20}, {1, 5, 40}, {3, 1, 1}, {0, 3, 2}, {2, 0, 4}}; /* b, n, m */

static int64_t size_of(const int64_t *sizes, const char *symbol) {
  return sizes[symbol[0] == 'b' ? 0 : symbol[0] == 'n' ? 1 : 2];
}

/* Numbers from -2 to 2, with NaN and infinities among wild ones; of a mask: true for two of three, and none of the
 * first row. Row 0 of an added mask is -infinity, the others are so at each fifth element. */
static double element_of(const char *name, int64_t i, int64_t columns) {
  bool is_mask = name[0] == 'm', is_added = name[0] == 'a';
  if (is_mask || is_added) {
    bool is_hidden = i < columns || i % 5 == 4;
    return is_mask ? !is_hidden : is_hidden ? -(double)INFINITY : (double)(i % 7) / 4;
  }
  bool is_wild = name[0] == 'w';
  if (is_wild && i % 29 == 3) {
    return i % 58 == 3 ? (double)NAN : i % 3 == 0 ? (double)INFINITY : -(double)INFINITY;
  }
  uint32_t number = ((uint32_t)i + 17u * (uint32_t)name[0]) * 2654435761u;
  return (double)(number >> 16) / 16384 - 2;
}

static hr_tensor make_input(const hr_graph *g, int index, const int64_t *sizes) {
  hr_type type;
  hr_value value = hr_graph_input_value(g, index);
  HR_ASSERT_OK(hr_graph_type(g, value, &type));
  int64_t count = 1;
  for (int d = 0; d < type.rank; ++d) {
    type.dims[d] = type.symbols[d] != NULL ? size_of(sizes, type.symbols[d]) : type.dims[d];
    count *= type.dims[d];
  }
  static double doubles[MOST];
  static float floats[MOST];
  static uint8_t bools[MOST];
  HR_ASSERT(count <= MOST);
  for (int64_t i = 0; i < count; ++i) {
    doubles[i] = element_of(hr_graph_value_name(g, value), i, type.dims[type.rank - 1]);
    floats[i] = (float)doubles[i], bools[i] = doubles[i] != 0;
  }
  const void *elements = type.dtype == HR_DTYPE_F64    ? (void *)doubles
                         : type.dtype == HR_DTYPE_BOOL ? (void *)bools
                                                       : (void *)floats;
  return tensor_of(type.dtype, type.rank, type.dims, elements);
}

enum { INPUTS_MOST = 5 };

static void apply_to(const hr_graph *g, const hr_tensor *inputs, hr_tensor *out) {
  const hr_tensor *places[INPUTS_MOST];
  for (int i = 0; i < hr_graph_input_count(g); ++i) {
    places[i] = &inputs[i];
  }
  HR_ASSERT_OK(hr_graph_apply(g, stream, hr_graph_input_count(g), places, 1, out));
}

/* The deviation of the results, of the finite numbers among them. */
static void expect_same(const hr_tensor *x, const hr_tensor *y) {
  static double a[MOST], b[MOST];
  int64_t count = hr_tensor_count(x), finite = 0;
  double sum = 0, square = 0;
  HR_ASSERT_EQ(count, hr_tensor_count(y));
  read_doubles(x, a);
  read_doubles(y, b);
  for (int64_t i = 0; i < count; ++i) {
    bool is_number = isfinite(b[i]) != 0;
    sum += is_number ? b[i] : 0, square += is_number ? b[i] * b[i] : 0, finite += is_number;
  }
  double deviation = finite > 1 ? sqrt(square / (double)finite - sum / (double)finite * sum / (double)finite) : 1;
  for (int64_t i = 0; i < count; ++i) {
    if (!((isnan(a[i]) && isnan(b[i])) || a[i] == b[i] || fabs(a[i] - b[i]) <= 1e-5 * deviation)) {
      HR_FAIL("element %d is %.9g, expected %.9g", (int)i, a[i], b[i]);
    }
  }
}

static void compare(const hr_graph *g, const hr_graph *joined, const int64_t *sizes) {
  hr_tensor inputs[INPUTS_MOST], expected, actual;
  for (int i = 0; i < hr_graph_input_count(g); ++i) {
    inputs[i] = make_input(g, i, sizes);
  }
  apply_to(g, inputs, &expected);
  apply_to(joined, inputs, &actual);
  expect_same(&actual, &expected);
  for (int i = 0; i < hr_graph_input_count(g); ++i) {
    hr_tensor_release(&inputs[i]);
  }
  hr_tensor_release(&expected);
  hr_tensor_release(&actual);
}

/* wanted: a part of the simplified text; NULL: no attention. */
static void check(const char *text, const char *wanted) {
  hr_graph *g = graph_of(text), *simple = NULL;
  open_stream();
  HR_ASSERT_OK(hr_graph_simplify(g, NULL, &simple));
  char *printed = print_of(simple);
  const char *found = strstr(printed, "attention(");
  if (wanted == NULL ? found != NULL : found == NULL || strstr(printed, wanted) == NULL) {
    HR_FAIL("%s\nin place of\n%s\nexpected %s", printed, text, wanted != NULL ? wanted : "no attention");
  }
  HR_ASSERT(wanted == NULL || (strstr(printed, "softmax") == NULL && strstr(printed, "exp(") == NULL));
  free(printed);
  hr_graph_release(read_back(simple));
  for (size_t i = 0; i < sizeof symbol_sizes / sizeof *symbol_sizes; ++i) {
    const int64_t *sizes = symbol_sizes[i];
    if (wanted != NULL || (sizes[0] > 0 && sizes[1] > 0)) { /* a maximum needs elements */
      compare(g, simple, sizes);
    }
  }
  hr_graph_release(simple);
  hr_graph_release(g);
}

HR_TEST(scales_at_any_place_are_joined) {
  check(FACTORS PRODUCT "%t = multiply(%s, %scale)\n" REST, "attention(%q, %0, %v, _, scale=0.5)");
  check(FACTORS PRODUCT "%t = divide(%s, 4.0)\n" REST, "scale=0.25)");
  check(FACTORS PRODUCT "%t = multiply(%scale, %s)\n" REST, "scale=0.5)");
  check(FACTORS "%a = multiply(%q, 0.75)\n%c = multiply(2.0, %k)\n%t = matmul(%a, %c)\n" REST, "scale=1.5)");
  check(FACTORS "%t = matmul(%q, %k)\n" REST, "scale=1.0)");
}

/* The root of a dim, as exporters write it: of a shape of which other dims are symbols. */
HR_TEST(a_scale_of_a_dim_is_a_number) {
  check(FACTORS
        "%dims = shape(%q)\n%width = slice(%dims, begin=[3], count=[1], step=[1])\n%f = astype(%width, dtype=f32)\n"
        "%r = sqrt(%f)\n%i = divide(1.0, %r)\n%root = sqrt(%i)\n%a = multiply(%q, %root)\n"
        "%c = multiply(%k, %root)\n%t = matmul(%a, %c)\n" REST,
        "scale=0.5");
  check(FACTORS
        "%dims = shape(%q)\n%width = slice(%dims, begin=[2], count=[1], step=[1])\n%f = astype(%width, dtype=f32)\n"
        "%r = sqrt(%f)\n" PRODUCT "%t = divide(%s, %r)\n" REST,
        NULL);
}

HR_TEST(added_masks_are_joined) {
  check(FACTORS "input %added f32[n, m]\n" PRODUCT "%c = multiply(%s, 0.5)\n%t = add(%c, %added)\n" REST,
        "%added, scale=0.5, hidden=-inf)");
  check(FACTORS "input %added f32[b, 1, 1, m]\n" PRODUCT "%t = add(%added, %s)\n" REST, "hidden=-inf)");
  check(FACTORS "input %added f32[b, 2, n, m]\n" PRODUCT "%t = add(%s, %added)\n" REST, "hidden=-inf)");
}

/* Rows without a visible key: NaN with -infinity, the mean of v with a finite number. */
HR_TEST(selecting_masks_are_joined) {
  check(FACTORS "input %mask bool[b, 1, n, m]\n" PRODUCT "%t = where(%mask, %s, -inf)\n" REST, "hidden=-inf)");
  check(FACTORS "input %mask bool[n, m]\n" PRODUCT "%t = where(%mask, %s, -3.4028234663852886e+38)\n" REST,
        "%mask, scale=1.0, hidden=-3.4028234663852886e+38)");
  check(FACTORS "input %mask bool[n, m]\n" PRODUCT "%t = where(%mask, 0.25, %s)\n" REST, "hidden=0.25)");
  check(FACTORS "input %mask bool[1, m]\n" PRODUCT "%t = masked_fill(%s, %mask, -1.5)\n" REST, "hidden=-1.5)");
}

HR_TEST(triangles_are_causal) {
  check(SQUARE PRODUCT ONES "%l = tril(%ones)\n%z = equal(%l, 0.0)\n%mask = where(%z, -inf, 0.0)\n"
                            "%t = add(%s, %mask)\n" REST,
        "%v, _, causal=true, scale=1.0)");
  check(SQUARE PRODUCT "%w = number(-inf)\n%full = full(%w, shape=[n, n], dtype=f32)\n"
                       "%mask = triu(%full, k=1)\n%t = add(%s, %mask)\n" REST,
        "causal=true, scale=1.0)");
  check(SQUARE PRODUCT "%columns = arange(stop=n, dtype=i64)\n%rows = reshape(%columns, shape=[n, 1])\n"
                       "%mask = greater_equal(%rows, %columns)\n%t = where(%mask, %s, -inf)\n" REST,
        "causal=true, scale=1.0)");
  check("graph 1\ninput %q f32[b, 2, 3, 4]\ninput %k f32[b, 2, 4, 3]\ninput %v f32[b, 2, 3, 3]\n"
        "constant %mask f32[1, 1, 3, 3] = [0.0, -inf, -inf, 0.0, 0.0, -inf, 0.0, 0.0, 0.0]\n" PRODUCT
        "%t = add(%s, %mask)\n" REST,
        "causal=true, scale=1.0)");
}

/* Almost triangles: they stay masks. */
HR_TEST(other_masks_are_not_causal) {
  check(SQUARE PRODUCT ONES "%l = tril(%ones, k=1)\n%z = equal(%l, 0.0)\n%mask = where(%z, -inf, 0.0)\n"
                            "%t = add(%s, %mask)\n" REST,
        "hidden=-inf)");
  check(SQUARE PRODUCT ONES "%l = triu(%ones)\n%z = equal(%l, 0.0)\n%mask = where(%z, -inf, 0.0)\n"
                            "%t = add(%s, %mask)\n" REST,
        "hidden=-inf)");
  check(SQUARE PRODUCT ONES "%l = tril(%ones)\n%mask = equal(%l, 1.0)\n%t = where(%mask, %s, -1e9)\n" REST,
        "hidden=-1e+09)");
  check(SQUARE PRODUCT "%columns = arange(stop=n, dtype=i64)\n%rows = reshape(%columns, shape=[n, 1])\n"
                       "%mask = greater(%rows, %columns)\n%t = where(%mask, %s, -inf)\n" REST,
        "hidden=-inf)");
  check("graph 1\ninput %q f32[b, 2, 2, 4]\ninput %k f32[b, 2, 4, 2]\ninput %v f32[b, 2, 2, 3]\n"
        "constant %mask f32[2, 2] = [0.0, -inf, 0.25, 0.0]\n" PRODUCT "%t = add(%s, %mask)\n" REST,
        "hidden=-inf)");
}

HR_TEST(attention_of_other_ranks_and_dtypes) {
  check("graph 1\ninput %q f64[n, 4]\ninput %k f64[4, m]\ninput %v f64[m, 3]\n" PRODUCT "%t = divide(%s, 2.0)\n" REST,
        "scale=0.5)");
  check("graph 1\ninput %q f32[b, n, 4]\ninput %k f32[b, 4, m]\ninput %v f32[b, m, 3]\n" PRODUCT
        "%t = divide(%s, 2.0)\n" REST,
        "scale=0.5)");
}

HR_TEST(attention_whose_parts_are_used_stays) {
  check(FACTORS PRODUCT "%t = multiply(%s, 0.5)\n%p = softmax(%t)\n%y = matmul(%p, %v)\n%e = sum(%p)\n"
                        "%w = add(%y, %e)\noutput y = %w\n",
        NULL);
  check(FACTORS PRODUCT "%t = multiply(%s, 0.5)\n%p = softmax(%t)\n%y = matmul(%p, %v)\n%e = sum(%t)\n"
                        "%w = add(%y, %e)\noutput y = %w\n",
        NULL);
  check(FACTORS PRODUCT "%t = multiply(%s, 0.5)\n%p = softmax(%t)\n%y = matmul(%p, %v)\n%e = max(%s)\n"
                        "%w = add(%y, %e)\noutput y = %w\n",
        NULL);
}

HR_TEST(what_is_no_attention_stays) {
  check(SQUARE PRODUCT "%p = softmax(%s, axis=-2)\n%y = matmul(%p, %v)\noutput y = %y\n", NULL);
  check(FACTORS "input %w2 f32[m]\n" PRODUCT "%t = multiply(%s, %w2)\n" REST, NULL);
  check("graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[2, 4, m]\ninput %v f32[b, 2, m, 3]\n" PRODUCT
        "%t = multiply(%s, 0.5)\n" REST,
        NULL); /* keys are broadcast */
  check("graph 1\ninput %q f32[1, 2, n, 4]\ninput %k f32[1, 2, 4, m]\ninput %v f32[1, 2, m, 3]\n"
        "input %added f32[b, 1, n, m]\n" PRODUCT "%t = add(%s, %added)\n" REST,
        NULL); /* the mask has more examples */
  check("graph 1\ninput %q f16[b, 2, n, 4]\ninput %k f16[b, 2, 4, m]\ninput %v f16[b, 2, m, 3]\n" PRODUCT
        "%t = multiply(%s, 0.5)\n" REST,
        NULL); /* scores are rounded */
  check("graph 1\ninput %q f32[b, 2, n, m]\ninput %k f32[b, 2, m, 4]\ninput %v f32[b, 2, 4, 3]\n" PRODUCT
        "%t = multiply(%s, 0.5)\n" REST,
        NULL); /* columns may be none */
}

/* A softmax of t, composed. */
#define BEST(x) "%h = max(" x ", axis=[-1], keepdims=true)\n"
#define POWERS(x) "%d = subtract(" x ", %h)\n%e = exp(%d)\n"
#define SHARES "%z = sum(%e, axis=[-1], keepdims=true)\n%p = divide(%e, %z)\n"
#define LAST "%y = matmul(%p, %v)\noutput y = %y\n"
#define COMPOSED BEST("%t") POWERS("%t") SHARES LAST

HR_TEST(composed_softmaxes_are_joined) {
  check(FACTORS "%t = matmul(%q, %k)\n" COMPOSED, "%v, _, scale=1.0)");
  check(FACTORS PRODUCT "%t = multiply(%s, 0.5)\n" COMPOSED, "%v, _, scale=0.5)");
  check(FACTORS "input %added f32[n, m]\n" PRODUCT "%c = divide(%s, 2.0)\n%t = add(%c, %added)\n" COMPOSED,
        "%added, scale=0.5, hidden=-inf)");
  check(FACTORS "input %mask bool[b, 1, n, m]\n" PRODUCT "%t = where(%mask, %s, -inf)\n" COMPOSED, "%mask, scale=1.0");
  check(FACTORS "input %mask bool[n, m]\n" PRODUCT "%t = where(%mask, %s, -1.5)\n" COMPOSED, "hidden=-1.5)");
  check("graph 1\ninput %q f64[n, 4]\ninput %k f64[4, m]\ninput %v f64[m, 3]\n" PRODUCT
        "%t = divide(%s, 2.0)\n" COMPOSED,
        "scale=0.5");
  check(FACTORS PRODUCT "%t = multiply(%s, 0.5)\n%u = max(%t, axis=[3])\n%o = maximum(-inf, %u)\n"
                        "%h = expand_dims(%o, axis=[3])\n" POWERS(
                            "%t") "%x = sum(%e, axis=[3])\n%w = add(%x, 0.0)\n%z = expand_dims(%w, axis=[3])\n"
                                  "%p = divide(%e, %z)\n" LAST,
        "scale=0.5");
}

HR_TEST(values_that_are_not_finite_stay) {
  check("graph 1\ninput %wq f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n"
        "%t = matmul(%wq, %k)\n" COMPOSED,
        "attention(%wq");
  check("graph 1\ninput %q f32[b, 2, n, 4]\ninput %wk f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n"
        "%t = matmul(%q, %wk)\n" COMPOSED,
        "attention(%q");
  check("graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n"
        "input %wa f32[n, m]\n" PRODUCT "%t = add(%s, %wa)\n" COMPOSED,
        "%wa, scale=1.0");
  check("graph 1\ninput %wq f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n"
        "input %mask bool[n, m]\n" PRODUCT_OF("%wq") "%t = where(%mask, %s, -3.4e38)\n" COMPOSED,
        "%mask, scale=1.0");
}

/* Most probabilities are less than the least normal number. */
HR_TEST(scores_that_are_far_apart_are_joined) {
  check(FACTORS PRODUCT "%t = multiply(%s, 100.0)\n" COMPOSED, "scale=100.0");
  check(FACTORS PRODUCT "%t = multiply(%s, 10.0)\n" COMPOSED, "scale=10.0");
}

/* Hidden elements of v, too, which a probability of 0 multiplies. */
HR_TEST(hidden_values_that_are_not_finite_stay) {
  check("graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %wv f32[b, 2, m, 3]\n"
        "input %mask bool[n, m]\n" PRODUCT "%t = where(%mask, %s, -3.4e38)\n" BEST("%t") POWERS("%t") SHARES
        "%y = matmul(%p, %wv)\noutput y = %y\n",
        "%wv, %mask, scale=1.0");
  check("graph 1\ninput %q f32[1, 2, 48, 32]\ninput %k f32[1, 2, 32, 48]\ninput %wv f32[1, 2, 48, 32]\n"
        "input %mask bool[48, 48]\n" PRODUCT "%t = where(%mask, %s, -3.4e38)\n" BEST("%t") POWERS("%t") SHARES
        "%y = matmul(%p, %wv)\noutput y = %y\n",
        "%wv, %mask, scale=1.0");
}

HR_TEST(composed_softmaxes_whose_parts_are_used_stay) {
#define USED(value) "%g = sum(" value ")\n%y = matmul(%p, %v)\n%w = add(%y, %g)\noutput y = %w\n"
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%t"), NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%h"), NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%d"), NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%e"), NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%z"), NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t") POWERS("%t") SHARES USED("%p"), NULL);
#undef USED
}

HR_TEST(almost_softmaxes_stay) {
  check(FACTORS "%t = matmul(%q, %k)\n%e = exp(%t)\n" SHARES LAST, NULL); /* overflows */
  check(FACTORS "%t = matmul(%q, %k)\n%h = min(%t, axis=[-1], keepdims=true)\n" POWERS("%t") SHARES LAST, NULL);
  check(FACTORS "%t = matmul(%q, %k)\n%h = max(%t, axis=[-2], keepdims=true)\n" POWERS("%t") SHARES LAST, NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t")
            POWERS("%t") "%z = sum(%e, axis=[-2], keepdims=true)\n%p = divide(%e, %z)\n" LAST,
        NULL);
  check(FACTORS "%t = matmul(%q, %k)\n" BEST("%t")
            POWERS("%t") "%x = sum(%e, axis=[-1], keepdims=true)\n%z = add(%x, 1.0)\n%p = divide(%e, %z)\n" LAST,
        NULL);
  check(FACTORS "%t = matmul(%q, %k)\n%u = max(%t, axis=[-1], keepdims=true)\n%h = maximum(%u, 0.5)\n" POWERS("%t")
            SHARES LAST,
        NULL);
  check(FACTORS "input %t2 f32[b, 2, n, m]\n%t = matmul(%q, %k)\n" BEST("%t2") POWERS("%t") SHARES LAST, NULL);
  check(SQUARE "%t = matmul(%q, %k)\n" BEST("%t")
            POWERS("%t") "%x = sum(%e, axis=[3])\n%z = expand_dims(%x, axis=[2])\n%p = divide(%e, %z)\n" LAST,
        NULL); /* sums of rows divide columns */
  check("graph 1\ninput %q f32[3, 3, 3, 4]\ninput %k f32[3, 3, 4, 3]\ninput %v f32[3, 3, 3, 3]\n"
        "%t = matmul(%q, %k)\n" BEST("%t") POWERS(
            "%t") "%x = sum(%e, axis=[3])\n%z = broadcast_to(%x, shape=[3, 3, 3, 3])\n%p = divide(%e, %z)\n" LAST,
        NULL);
}

/* ---- as JAX writes it ---- */

/* q, k, v of 2 examples, 3 heads, `n` queries and keys; the product's factors. */
#define JAX_FACTORS(n)                                                                                  \
  "graph 1\ninput %q f32[2, " n ", 3, 4]\ninput %k f32[2, " n ", 3, 4]\ninput %v f32[2, " n ", 3, 4]\n" \
  "%qh = permute_dims(%q, axes=[0, 2, 1, 3])\n%kh = permute_dims(%k, axes=[0, 2, 3, 1])\n"              \
  "%low = full(-inf, shape=[], dtype=f32)\n%zero = full(0.0, shape=[], dtype=f32)\n"                    \
  "%half = full(0.5, shape=[], dtype=f32)\n%r = matmul(%qh, %kh)\n"                                     \
  "%c = astype(%r, dtype=f32, copy=false)\n%f = reshape(%half, shape=[1, 1, 1, 1])\n"                   \
  "%g = broadcast_to(%f, shape=[2, 3, " n ", " n "])\n%s = multiply(%c, %g)\n"
#define JAX_MASK(n, offset, low)                                                                             \
  "%count = arange(start=0.0, stop=" n ".0, step=1.0, dtype=i32)\n%ra = reshape(%count, shape=[" n ", 1])\n" \
  "%rows = broadcast_to(%ra, shape=[" n ", " n "])\nconstant %o i32[1, 1] = [" offset "]\n"                  \
  "%ob = broadcast_to(%o, shape=[" n ", " n "])\n%ro = add(%rows, %ob)\n"                                    \
  "%ca = reshape(%count, shape=[1, " n "])\n%columns = broadcast_to(%ca, shape=[" n ", " n "])\n"            \
  "%seen = greater_equal(%ro, %columns)\n%s4 = reshape(%seen, shape=[1, 1, " n ", " n "])\n"                 \
  "%mask = broadcast_to(%s4, shape=[2, 3, " n ", " n "])\n%hidden = full(" low ", shape=[], dtype=f32)\n"    \
  "%ha = broadcast_to(%hidden, shape=[2, 3, " n ", " n "])\n%t = where(%mask, %s, %ha)\n"
#define JAX_SOFTMAX(n)                                                                                              \
  "%u = max(%t, axis=[3])\n%lb = broadcast_to(%low, shape=[2, 3, " n "])\n%w = maximum(%lb, %u)\n"                  \
  "%wr = reshape(%w, shape=[2, 3, " n ", 1])\n%h = broadcast_to(%wr, shape=[2, 3, " n ", " n                        \
  "])\n" POWERS("%t") "%x = sum(%e, axis=[3], dtype=f32)\n%xs = add(%zero, %x)\n%xr = reshape(%xs, shape=[2, 3, " n \
                      ", 1])\n"                                                                                     \
                      "%z = broadcast_to(%xr, shape=[2, 3, " n ", " n                                               \
                      "])\n%p = divide(%e, %z)\n%vh = permute_dims(%v, axes=[0, 2, 3, 1])\n"
#define JAX_END                                                                                                    \
  "%pt = permute_dims(%p, axes=[0, 1, 3, 2])\n%yt = matmul(%vh, %pt)\n%y = permute_dims(%yt, axes=[0, 3, 1, 2])\n" \
  "output y = %y\n"

HR_TEST(attention_of_jax_is_joined) {
  check(JAX_FACTORS("5") "%t = astype(%s, dtype=f32)\n" JAX_SOFTMAX("5") JAX_END, "_, scale=0.5");
  check(JAX_FACTORS("5") JAX_MASK("5", "0", "-inf") JAX_SOFTMAX("5") JAX_END, "_, causal=true, scale=0.5");
  check(JAX_FACTORS("1") JAX_MASK("1", "0", "-inf") JAX_SOFTMAX("1") JAX_END, NULL);
  check(JAX_FACTORS("33") JAX_MASK("33", "0", "-3.4028234663852886e+38") JAX_SOFTMAX("33") JAX_END,
        "%mask, scale=0.5, hidden=-3.4028234663852886e+38)");
  check(JAX_FACTORS("5") JAX_MASK("5", "1", "-inf") JAX_SOFTMAX("5") JAX_END, "%mask, scale=0.5");  /* sees one more */
  check(JAX_FACTORS("5") JAX_MASK("5", "-1", "-inf") JAX_SOFTMAX("5") JAX_END, "%mask, scale=0.5"); /* row 0: NaN */
  check(JAX_FACTORS("5") JAX_MASK("5", "-1", "-1e9") JAX_SOFTMAX("5") JAX_END, "%mask, scale=0.5");
}

/* Factors in the wrong order, which only the dims allow. */
HR_TEST(probabilities_of_another_order_stay) {
  check(JAX_FACTORS("4") "%t = astype(%s, dtype=f32)\n" JAX_SOFTMAX("4") "%y = matmul(%vh, %p)\noutput y = %y\n", NULL);
  check(JAX_FACTORS("4") "%t = astype(%s, dtype=f32)\n" JAX_SOFTMAX(
            "4") "%pt = permute_dims(%p, axes=[0, 1, 3, 2])\n%y = matmul(%pt, %vh)\noutput y = %y\n",
        NULL);
  check("graph 1\ninput %q f32[3, 3, 5, 4]\ninput %k f32[3, 3, 4, 5]\ninput %v f32[3, 3, 5, 2]\n"
        "%t = matmul(%q, %k)\n%o = softmax(%t)\n%p = permute_dims(%o, axes=[1, 0, 2, 3])\n" LAST,
        NULL);
  check("graph 1\ninput %q f32[3, 3, 4]\ninput %k f32[3, 4, 3]\ninput %v f32[3, 3, 2]\n"
        "%s = matmul(%q, %k)\n%t = permute_dims(%s, axes=[1, 0, 2])\n%p = softmax(%t)\n" LAST,
        NULL);
  check("graph 1\ninput %q f32[3, 4, 4]\ninput %k f32[3, 4, 6]\ninput %v f32[3, 6, 2]\n"
        "%s = matmul(%q, %k)\n%t = reshape(%s, shape=[3, 6, 4])\n%o = softmax(%t)\n"
        "%p = reshape(%o, shape=[3, 4, 6])\n" LAST,
        NULL); /* other rows */
}

/* Dims of 1 at other places, as jax.nn.dot_product_attention has them for groups of one head. */
HR_TEST(dims_of_one_do_not_matter) {
#define GROUPED                                                                               \
  "graph 1\ninput %q f32[2, 3, 5, 4]\ninput %k f32[2, 3, 4, 7]\ninput %v f32[2, 3, 6, 7]\n"   \
  "%r = matmul(%q, %k)\n%s5 = reshape(%r, shape=[2, 3, 5, 1, 7])\n%m5 = multiply(%s5, 0.5)\n" \
  "%s = permute_dims(%m5, axes=[3, 0, 1, 2, 4])\n"
#define UNGROUPED                                                                                            \
  "%p = softmax(%t)\n%p5 = permute_dims(%p, axes=[1, 2, 4, 0, 3])\n%pt = reshape(%p5, shape=[2, 3, 7, 5])\n" \
  "%y = matmul(%v, %pt)\noutput y = %y\n"
  check(GROUPED "%t = astype(%s, dtype=f32)\n" UNGROUPED, "_, scale=0.5");
  check(GROUPED "input %mask bool[1, 2, 1, 5, 7]\n%t = where(%mask, %s, -inf)\n" UNGROUPED, "scale=0.5, hidden=-inf)");
  check(GROUPED "input %mask bool[3, 1, 7]\n%t = where(%mask, %s, -2.5)\n" UNGROUPED, "scale=0.5, hidden=-2.5)");
  check(GROUPED "input %added f32[2, 3, 5, 1]\n%t = add(%added, %s)\n" UNGROUPED, "scale=0.5, hidden=-inf)");
  check(GROUPED "input %added f32[1, 2, 3, 5, 7]\n%t = add(%added, %s)\n" UNGROUPED, "scale=0.5, hidden=-inf)");
#undef GROUPED
#undef UNGROUPED
}

/* The number of a single row is that of all rows. */
HR_TEST(counts_of_other_dims_are_not_triangles) {
  check("graph 1\ninput %q f32[2, 2, 5, 4]\ninput %k f32[2, 2, 4, 5]\ninput %v f32[2, 2, 5, 3]\n" PRODUCT
        "%c1 = arange(stop=1, dtype=i64)\n%row = reshape(%c1, shape=[1, 1])\n%c5 = arange(stop=5, dtype=i64)\n"
        "%columns = broadcast_to(%c5, shape=[5, 5])\n%mask = greater_equal(%row, %columns)\n"
        "%t = where(%mask, %s, -inf)\n" REST,
        "%mask, scale=1.0");
}
