/* Graphs with attention of several operations against the same graphs with the operations joined. */
#include "graph_test.h"

/* Declarations of q, keys (transposed) and v, and the product of the scores. */
#define FACTORS                                                                             \
  "graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, m]\ninput %v f32[b, 2, m, 3]\n" \
  "constant %scale f32[] = [0.5]\n"
#define PRODUCT "%s = matmul(%q, %k)\n"
#define REST "%p = softmax(%t)\n%y = matmul(%p, %v)\noutput y = %y\n"
/* The same with one number of queries and keys. */
#define SQUARE "graph 1\ninput %q f32[b, 2, n, 4]\ninput %k f32[b, 2, 4, n]\ninput %v f32[b, 2, n, 3]\n"

#define ONES "%one = number(1.0)\n%ones = full(%one, shape=[n, n], dtype=f32)\n"

static const int64_t symbol_sizes[][3] = {{2, 33, 20}, {1, 5, 40}, {3, 1, 1}}; /* b, n, m */

static int64_t size_of(const int64_t *sizes, const char *symbol) {
  return sizes[symbol[0] == 'b' ? 0 : symbol[0] == 'n' ? 1 : 2];
}

/* Numbers from -2 to 2; of a mask: true for two of three, and none of the first row. Row 0 of an added mask is
 * -infinity, the others are so at each fifth element. */
static double element_of(const char *name, int64_t i, int64_t columns) {
  bool is_mask = name[0] == 'm', is_added = name[0] == 'a';
  if (is_mask || is_added) {
    bool is_hidden = i < columns || i % 5 == 4;
    return is_mask ? !is_hidden : is_hidden ? -(double)INFINITY : (double)(i % 7) / 4;
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
    bool is_number = isfinite(b[i]);
    sum += is_number ? b[i] : 0, square += is_number ? b[i] * b[i] : 0, finite += is_number;
  }
  double deviation = finite > 1 ? sqrt(square / (double)finite - sum / (double)finite * sum / (double)finite) : 1;
  for (int64_t i = 0; i < count; ++i) {
    if (!((isnan(a[i]) && isnan(b[i])) || fabs(a[i] - b[i]) <= 1e-5 * deviation)) {
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
  HR_ASSERT(wanted == NULL || strstr(printed, "softmax") == NULL);
  free(printed);
  hr_graph_release(read_back(simple));
  for (size_t i = 0; i < sizeof symbol_sizes / sizeof *symbol_sizes; ++i) {
    compare(g, simple, symbol_sizes[i]);
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
