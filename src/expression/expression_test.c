/* Expressions: what is parsed and refused, the numbers of the rows, gradients, instances, and random damage to texts.
 */
#include "hr_test.h"

#include "expression/expression_types.h"
#include "headrace/expression.h"

enum { COUNT = 4 };
static const int64_t dims[1] = {COUNT}, strides[1] = {1};

static hr_expression *parse(const char *text, const char *signature) {
  hr_expression *e = NULL;
  HR_ASSERT_OK(hr_expression_parse(text, signature, &e));
  return e;
}

/* ---- running ---- */

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
} fixture;

static fixture open_fixture(void) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static hr_view view_of(hr_buffer *buffer, hr_dtype dtype) {
  return (hr_view){.buffer = buffer, .dtype = dtype, .rank = 1, .dims = dims, .strides = strides};
}

static hr_buffer *make_floats(fixture *f, const float *values) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &buffer));
  hr_view view = view_of(buffer, HR_DTYPE_F32);
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  return buffer;
}

/* Runs an expression of two inputs and one output; the second input is a number. Releases it. */
static void run_once(hr_expression *e, const float *x, hr_scalar number, size_t size, void *out) {
  fixture f = open_fixture();
  HR_ASSERT_EQ(hr_expression_input_count(e), 2);
  hr_dtype dtype = hr_expression_output(e, 0).dtype;
  hr_buffer *input = make_floats(&f, x), *output;
  HR_ASSERT_OK(hr_buffer_create(f.device, COUNT * size, &output));
  hr_view inputs[2] = {view_of(input, HR_DTYPE_F32), {.scalar = &number, .dtype = number.dtype}};
  hr_view outputs[1] = {view_of(output, dtype)};
  HR_ASSERT_OK(hr_expression_record(f.stream, e, HR_DTYPE_F32, inputs, outputs));
  HR_ASSERT_OK(hr_stream_read(f.stream, &outputs[0], out));
  hr_buffer_release(input);
  hr_buffer_release(output);
  hr_expression_release(e);
  close_fixture(&f);
}

static void run(const char *text, const char *signature, const float *x, hr_scalar number, size_t size, void *out) {
  run_once(parse(text, signature), x, number, size, out);
}

static void check(const char *text, const float *x, double number, const float *wanted) {
  float y[COUNT];
  run(text, "float x, float l -> float y", x, hr_scalar_f64(number), sizeof(float), y);
  for (int i = 0; i < COUNT; ++i) {
    if (y[i] != wanted[i] && !(isnan(y[i]) && isnan(wanted[i]))) {
      hr_test_fail(__FILE__, __LINE__, "%s: element %d is %g, expected %g", text, i, (double)y[i], (double)wanted[i]);
    }
  }
}

HR_TEST(computes_what_c_computes) {
  const float x[COUNT] = {-2, -0.25f, 0.5f, 3};
  check("y = x > l ? x - l : (x < -l ? x + l : 0)", x, 0.5, (const float[]){-1.5f, 0, 0, 2.5f});
  check("y = x + l * 2 - 1", x, 0.5, (const float[]){-2, -0.25f, 0.5f, 3});
  check("t = x * x; y = t + t; y -= 1; y *= 2", x, 0, (const float[]){14, -1.75f, -1, 34});
  check("y = 2 + 3 * 4 - 10 / 4 % 3 << 1", x, 0, (const float[]){24, 24, 24, 24});
  check("y = (int)x / 2 + (int)x % 2", x, 0, (const float[]){-1, 0, 0, 2});
  check("y = !(x > 0) + (x < 0 && l) * 2 + (x > 2 || l == 0) * 4", x, 1, (const float[]){3, 3, 0, 4});
  check("y = round(x) + fdim(x, 0)", (const float[]){-2.5f, -0.5f, 0.5f, 2.5f}, 0, (const float[]){-3, -1, 1.5f, 5.5f});
  check("y = fmax(x, l) + fabs(x) - floor(x)", x, 0, (const float[]){4, 1.25f, 1, 3});
  check("y = i + index(0) * 10 + size(-1) * 100", x, 0, (const float[]){400, 411, 422, 433});
  check("y = isfinite(x) ? pow(x, 2) : 7", (const float[]){2, INFINITY, NAN, -3}, 0, (const float[]){4, 7, 7, 9});
  check("y = l", x, 0.1, (const float[]){0.1f, 0.1f, 0.1f, 0.1f});
  check("y = 1e-3f", x, 0, (const float[]){1e-3f, 1e-3f, 1e-3f, 1e-3f});
  check("y = x", x, 0, x);
  check("y = x < 0 ? 1 : x < 1 ? 2 : 3", x, 0, (const float[]){1, 1, 2, 3});
  check("y = 0x10 + 1u + 2UL", x, 0, (const float[]){19, 19, 19, 19});
  check("y = -x - -l", x, 2, (const float[]){4, 2.25f, 1.5f, -1});
}

HR_TEST(integers_divide_by_zero_as_the_rows_do) {
  const float x[COUNT] = {-2, 0, 1, 3};
  check("y = 7 / (int)x + 7 % (int)x", x, 0, (const float[]){-2, 0, 7, 3});
  check("y = 1 / 0", x, 0, (const float[]){0, 0, 0, 0});
}

HR_TEST(narrow_types_compute_wide_and_wrap_when_assigned) {
  const float x[COUNT] = {100, 200, -1, 3};
  int8_t y[COUNT];
  run("y = (char)100 + (int)x", "float x, float l -> char y", x, hr_scalar_f64(0), 1, y);
  HR_ASSERT_EQ(y[0], (int8_t)200);
  HR_ASSERT_EQ(y[1], 44);
  HR_ASSERT_EQ(y[2], 99);
  bool b[COUNT];
  run("y = x", "float x, float l -> bool y", x, hr_scalar_f64(0), 1, b);
  HR_ASSERT(b[0] && b[2]);
  float half[COUNT]; /* 2049 is no half */
  run("half h = x + 1949; y = h", "float x, float l -> float y", x, hr_scalar_f64(0), sizeof(float), half);
  HR_ASSERT_EQ((int)half[0], 2048);
}

HR_TEST(an_output_may_be_an_input) {
  fixture f = open_fixture();
  const float x[COUNT] = {1, 2, 3, 4}, z[COUNT] = {10, 20, 30, 40};
  hr_buffer *a = make_floats(&f, x), *b = make_floats(&f, z);
  hr_expression *e = parse("p = y; q = x + y", "float x, float y -> float p, float q");
  hr_view views[2] = {view_of(a, HR_DTYPE_F32), view_of(b, HR_DTYPE_F32)};
  HR_ASSERT_OK(hr_expression_record(f.stream, e, HR_DTYPE_NONE, views, views));
  float p[COUNT], q[COUNT];
  HR_ASSERT_OK(hr_stream_read(f.stream, &views[0], p));
  HR_ASSERT_OK(hr_stream_read(f.stream, &views[1], q));
  HR_ASSERT_EQ((int)p[3], 40);
  HR_ASSERT_EQ((int)q[3], 44);
  hr_expression_release(e);
  hr_buffer_release(a);
  hr_buffer_release(b);
  close_fixture(&f);
}

HR_TEST(instances_run_with_the_numbers_of_each_run) {
  fixture f = open_fixture();
  const float x[COUNT] = {-2, -0.25f, 0.5f, 3};
  hr_expression *e = parse("y = x > l ? x - l : (x < -l ? x + l : 0)", "float x, float l -> float y");
  hr_scalar number = hr_scalar_f64(1);
  hr_view inputs[2] = {view_of(NULL, HR_DTYPE_F32), {.scalar = &number, .dtype = HR_DTYPE_F64}};
  hr_view outputs[1] = {view_of(NULL, HR_DTYPE_F32)};
  hr_expression_instance *instance;
  HR_ASSERT_OK(hr_expression_instance_create(f.device, e, HR_DTYPE_NONE, inputs, outputs, &instance));
  hr_buffer *buffers[2] = {make_floats(&f, x), NULL};
  for (int step = 0; step < 3; ++step) {
    hr_scalar numbers[2] = {hr_scalar_f64(9), hr_scalar_f64(step * 0.5)};
    hr_buffer *output;
    HR_ASSERT_OK(hr_buffer_create(f.device, sizeof x, &output));
    HR_ASSERT_OK(hr_expression_instance_run(f.stream, instance, buffers, &output, numbers));
    hr_view view = view_of(output, HR_DTYPE_F32);
    float y[COUNT];
    HR_ASSERT_OK(hr_stream_read(f.stream, &view, y));
    HR_ASSERT_EQ((int)(y[3] * 2), 6 - step);
    HR_ASSERT_EQ((int)(y[0] * 2), -4 + step);
    hr_buffer_release(output);
  }
  hr_expression_instance_destroy(instance);
  hr_buffer_release(buffers[0]);
  hr_expression_release(e);
  close_fixture(&f);
}

/* ---- refusals ---- */

static void refuse(const char *text, const char *signature, const char *message) {
  hr_expression *e = NULL;
  hr_status status = hr_expression_parse(text, signature, &e);
  if (status == HR_OK) {
    hr_test_fail(__FILE__, __LINE__, "\"%s\" was accepted", text);
  }
  if (strstr(hr_status_message(status), message) == NULL) {
    hr_test_fail(__FILE__, __LINE__, "\"%s\" gave \"%s\", expected \"%s\"", text, hr_status_message(status), message);
  }
  hr_status_free(status);
}

static void refuse_text(const char *text, const char *message) {
  refuse(text, "float x, float l -> float y", message);
}

HR_TEST(messages_name_the_text_the_column_and_what_was_expected) {
  refuse_text("x[", "expression \"x[\", column 1: expected an output or a temporary, not an input, found x");
  refuse_text("y = x[", "expression \"y = x[\", column 6: expected ';' or an operator, found '['");
  refuse_text("", "expression \"\", column 1: expected a name, found the end");
  refuse_text(";", "column 1: expected a name, found ';'");
  refuse_text("y", "column 2: expected '=', found the end");
  refuse_text("y = ", "column 5: expected an operand, found the end");
  refuse_text("y = x +", "column 8: expected an operand, found the end");
  refuse_text("y = (x", "column 7: expected ')' or an operator, found the end");
  refuse_text("y = x \xc3\xa9", "column 7: expected ';' or an operator, found byte 0xc3");
  refuse_text("y = \xc3\xa9; y = $", "column 5: expected an operand, found byte 0xc3");
  refuse_text("y = 1; \"\xc3\xa9\xc3\xa9\"", "column 8: expected a name, found '\"'");
  refuse_text("#include <stdio.h>\ny = x", "column 1: expected a name, found '#'");
  refuse_text("y = x; } int main() {", "column 8: expected a name, found '}'");
  refuse_text("y = \"x\"", "column 5: expected an operand, found '\"'");
  refuse_text("y = system(x)", "column 5: expected a known function, found system");
  refuse_text("y = foo + 1", "column 5: expected a name of the signature or an assigned one, found foo");
  refuse_text("z = x", "expected an assignment to the output y, found the end");
  refuse_text("y = t; t = x", "found t");
  refuse_text("y += x", "expected a variable that has a value, found y");
  refuse_text("x = y", "expected an output or a temporary, not an input, found x");
  refuse_text("float y = x", "expected a new name, found y");
  refuse_text("y = pow(x)", "column 5: expected 2 operands of pow, found 1");
  refuse_text("y = exp(x, x, x, x, x)", "expected 1 operand of exp, found 5");
  refuse_text("y = x ? 1", "expected ':' or an operator, found the end");
  refuse_text("y = 07", "without leading zeros");
  refuse_text("y = 1.5.2", "expected the end of the number, found '.'");
  refuse_text("y = 1e", "expected digits after the exponent's e");
  refuse_text("y = 99999999999999999999", "expected an integer below 2^63");
  refuse_text("y = ++x", "expected no ++ or --");
  refuse_text("y = index(x)", "expected the number of a dim");
  refuse_text("y = size(16)", "expected the number of a dim");
  refuse_text("y = (float x", "expected ')' after the type of a cast");
  refuse_text("y == x", "expected '='");
  refuse("y = x", "float x", "signature \"float x\", column 8: expected ',' or '->', found the end");
  refuse("y = x", "", "signature \"\", column 1: expected a type");
  refuse("y = x", "vec x -> float y", "column 1: expected a type");
  refuse("y = x", "float x, float x -> float y", "column 16: expected a new name, found x");
  refuse("y = x", "float x -> float x", "expected a new name, found x");
  refuse("y = x", "float x -> float y z", "expected ',' or the end, found 'z'");
  refuse("y = x", "float float -> float y", "expected a name that is no type, found float");
}

HR_TEST(nesting_and_size_are_bounded) {
  enum { DEEP = 10000 };
  static char text[4 * DEEP + 16];
  for (int kind = 0; kind < 4; ++kind) {
    const char *opens[] = {"(", "-", "x?x:", "exp("};
    strcpy(text, "y = ");
    size_t length = 4, step = strlen(opens[kind]);
    for (int i = 0; i < DEEP; ++i, length += step) {
      memcpy(text + length, opens[kind], step);
    }
    text[length] = '\0';
    refuse_text(text, kind == 1 ? "expected no ++ or --" : "expected at most 200 levels of nesting");
  }
  strcpy(text, "y = x");
  size_t length = 5;
  for (int i = 0; i < DEEP; ++i, length += 2) {
    memcpy(text + length, "+x", 2);
  }
  text[length] = '\0';
  refuse_text(text, "expected at most 8192 operations");
  char signature[1024] = "float a0";
  for (int i = 1; i < 40; ++i) {
    snprintf(signature + strlen(signature), 32, ", float a%d", i);
  }
  strcat(signature, " -> float y");
  refuse("y = a0", signature, "expected at most 32 inputs");
}

static void refuse_type(const char *text, const char *signature, hr_dtype t, const char *message) {
  hr_expression *e = parse(text, signature);
  hr_status status = hr_expression_check(e, t);
  HR_ASSERT(status != HR_OK);
  if (strstr(hr_status_message(status), message) == NULL) {
    hr_test_fail(__FILE__, __LINE__, "%s", hr_status_message(status));
  }
  hr_status_free(status);
  hr_expression_release(e);
}

HR_TEST(types_are_checked) {
  refuse_type("y = x % 2", "float x -> float y", HR_DTYPE_NONE, "column 7: expected integers as operands of %");
  refuse_type("y = x & 1", "T x -> T y", HR_DTYPE_F32, "expected integers as operands, found f32");
  refuse_type("y = x << 1", "T x -> T y", HR_DTYPE_F16, "expected integers as operands of a shift");
  refuse_type("y = x", "T x -> T y", HR_DTYPE_C64, "expected T to be an integer or a floating dtype, found c64");
}

/* ---- gradients ---- */

/* The gradient of y by x at each element of x, with gy = 1. */
static void gradient(const char *text, const char *backward, const float *x, float *out) {
  hr_expression *e = parse(text, "float x -> float y"), *g;
  HR_ASSERT_OK(hr_expression_gradient(e, backward, &g));
  hr_expression_release(e);
  run_once(g, x, hr_scalar_f64(1), sizeof(float), out);
}

static void check_gradient(const char *text, const char *backward, const float *wanted) {
  const float x[COUNT] = {-2, 0.5f, 1, 3};
  float g[COUNT];
  gradient(text, backward, x, g);
  for (int i = 0; i < COUNT; ++i) {
    if (!(fabsf(g[i] - wanted[i]) <= 1e-5f * fabsf(wanted[i]))) {
      hr_test_fail(__FILE__, __LINE__, "%s at %g: %g, expected %g", text, (double)x[i], (double)g[i],
                   (double)wanted[i]);
    }
  }
}

HR_TEST(gradients_are_derived) {
  check_gradient("y = x * x * x", NULL, (const float[]){12, 0.75f, 3, 27});
  check_gradient("y = x > 1 ? x - 1 : x < -1 ? x + 1 : 0", NULL, (const float[]){1, 0, 0, 1});
  check_gradient("t = x * 2; t = t * t; y = t + floor(x) + (int)x", NULL, (const float[]){-16, 4, 8, 24});
  check_gradient("y = pow(x, 2) + pow(x, 3) / 3", NULL, (const float[]){0, 1.25f, 3, 15});
  check_gradient("y = (double)x * 3 + (float)(x * 0.5)", NULL, (const float[]){3.5f, 3.5f, 3.5f, 3.5f});
  check_gradient("y = fabs(x) + fmax(x, 1) + fmin(x, 1)", NULL, (const float[]){0, 2, 3, 2});
  check_gradient("y = x * x", "gx = gy * y", (const float[]){4, 0.25f, 1, 9});
}

HR_TEST(gradients_without_a_rule_are_refused) {
  hr_expression *e = parse("y = nextafter(x, 1)", "float x -> float y"), *g = NULL;
  hr_status status = hr_expression_gradient(e, NULL, &g);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "column 5: the derivative of nextafter is not known") != NULL);
  hr_status_free(status);
  status = hr_expression_gradient(e, "gz = gy", &g);
  HR_ASSERT(strstr(hr_status_message(status), "expected an assignment to the gradient of an input, gx") != NULL);
  hr_status_free(status);
  HR_ASSERT_OK(hr_expression_gradient(e, "gx = gy", &g));
  hr_expression_release(g);
  hr_expression_release(e);
}

HR_TEST(inputs_of_a_gradient_are_those_of_the_expression_and_gradients_of_outputs) {
  hr_expression *e = parse("y = x * n; k = n", "T x, int n, float z -> T y, int k"), *g, *gg;
  HR_ASSERT_OK(hr_expression_gradient(e, NULL, &g));
  HR_ASSERT_EQ(hr_expression_input_count(g), 4);
  HR_ASSERT_STR_EQ(hr_expression_input(g, 3).name, "gy");
  HR_ASSERT_EQ(hr_expression_output_count(g), 2);
  HR_ASSERT_STR_EQ(hr_expression_output(g, 0).name, "gx");
  HR_ASSERT(hr_expression_output(g, 0).is_used && !hr_expression_output(g, 1).is_used);
  HR_ASSERT(hr_expression_input(g, 1).is_used && !hr_expression_input(g, 0).is_used);
  HR_ASSERT_OK(hr_expression_gradient(g, NULL, &gg));
  HR_ASSERT_EQ(hr_expression_input_count(gg), 6);
  HR_ASSERT_STR_EQ(hr_expression_output(gg, 2).name, "ggy");
  hr_expression_release(gg);
  hr_expression_release(g);
  hr_expression_release(e);
}

/* Differences of each function against its derivative, in double. */
HR_TEST(every_derivative_is_that_of_its_function) {
  fixture f = open_fixture();
  const double points[4] = {0.3, 0.55, 0.7, 0.85}, step = 1e-6;
  for (int k = 0; k < HR_EXPR_FUNCTION_COUNT; ++k) {
    const hr_expr_row *row = hr__expr_row((hr_expr_function)k);
    bool is_known = row->gradients[0][0] != '\0' && row->gradients[0][0] != '?';
    if (!is_known || row->rule != HR_EXPR_RULE_FLOATING) {
      continue;
    }
    char text[96];
    bool is_acosh = strcmp(row->name, "acosh") == 0;
    snprintf(text, sizeof text, row->arity == 1 ? "y = %s(x%s)" : "y = %s(x, z%s)", row->name, is_acosh ? " + 1" : "");
    hr_expression *e = parse(text, "double x, double z -> double y"), *g;
    HR_ASSERT_OK(hr_expression_gradient(e, NULL, &g));
    for (int wrt = 0; wrt < row->arity; ++wrt) {
      double input[2][4], moved[2][2][4], results[3][4];
      for (int i = 0; i < 4; ++i) {
        input[0][i] = points[i], input[1][i] = points[3 - i] * 0.9;
        for (int side = 0; side < 2; ++side) {
          moved[side][0][i] = input[0][i] + (wrt == 0 ? (side ? step : -step) : 0);
          moved[side][1][i] = input[1][i] + (wrt == 1 ? (side ? step : -step) : 0);
        }
      }
      for (int which = 0; which < 3; ++which) {
        hr_view views[3], outputs[2] = {{0}};
        hr_buffer *buffers[3];
        const double one = 1;
        hr_scalar number = hr_scalar_f64(one);
        for (int i = 0; i < 3; ++i) {
          HR_ASSERT_OK(hr_buffer_create(f.device, sizeof input[0], &buffers[i]));
          views[i] = view_of(buffers[i], HR_DTYPE_F64);
          if (i < 2) {
            HR_ASSERT_OK(hr_stream_write(f.stream, &views[i], which < 2 ? moved[which][i] : input[i]));
          }
        }
        hr_view inputs[3] = {views[0], views[1], {.scalar = &number, .dtype = HR_DTYPE_F64}};
        outputs[which < 2 ? 0 : wrt] = views[2];
        HR_ASSERT_OK(hr_expression_record(f.stream, which < 2 ? e : g, HR_DTYPE_NONE, inputs, outputs));
        HR_ASSERT_OK(hr_stream_read(f.stream, &views[2], results[which]));
        for (int i = 0; i < 3; ++i) {
          hr_buffer_release(buffers[i]);
        }
      }
      for (int i = 0; i < 4; ++i) {
        double wanted = (results[1][i] - results[0][i]) / (2 * step);
        if (!(fabs(results[2][i] - wanted) <= 1e-6 * (1 + fabs(wanted)))) {
          hr_test_fail(__FILE__, __LINE__, "%s by operand %d at %g: %.9g, expected %.9g", text, wrt, input[0][i],
                       results[2][i], wanted);
        }
      }
    }
    hr_expression_release(e);
    hr_expression_release(g);
  }
  close_fixture(&f);
}

/* ---- damage ---- */

HR_TEST(damaged_texts_are_parsed_or_refused) {
  static const char *const texts[] = {
      "y = x > l ? x - l : (x < -l ? x + l : 0)",
      "float t = exp(-x * x) / sqrt(2 * M_PI); y = t; y += pow(t, 2) * l; z = (int)x % 3 << 1 | 4",
      "y = i * index(-1) + size(0); z = isnan(x) || !(x == l) && x != 0x1f ? 1e-3f : fmod(x, 0.5) ; y -= 7 - ~7u",
      "T a = tanh(x); T b = fmax(a, l); y = round(b) + fdim(a, b); z = b >= a ? 1 : -1;"};
  static const char *const signatures[] = {"T x, float l -> T y", "float x, T l -> half y, long z",
                                           "double x, unsigned short l -> double y, bool z", "T x, T l -> T y, int z"};
  static const char letters[] = "()?:;=+-*/%<>!&|~,.xylizTf019eE \t";
  uint64_t state = 12345;
  int accepted = 0, count = (int)hr_test_count(100000);
  for (int run = 0; run < count; ++run) {
    char text[160], signature[80];
    strcpy(text, texts[run % 4]);
    strcpy(signature, signatures[run % 4]);
    for (int flips = 1 + run % 3; flips > 0; --flips) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      char *target = run % 5 == 4 ? signature : text;
      size_t length = strlen(target);
      if (length > 0) {
        target[(state >> 33) % length] = run % 2 ? (char)(state >> 20) : letters[(state >> 20) % (sizeof letters - 1)];
      }
    }
    hr_expression *e = NULL, *g = NULL;
    hr_status status = hr_expression_parse(text, signature, &e);
    HR_ASSERT(status == HR_OK ? e != NULL : hr_status_code_of(status) == HR_STATUS_INVALID_ARGUMENT);
    hr_status_free(status);
    if (e != NULL) {
      ++accepted;
      hr_status_ignore(hr_expression_check(e, HR_DTYPE_F16));
      hr_status_ignore(hr_expression_gradient(e, NULL, &g));
      hr_status_ignore(hr_expression_gradient(e, text, &g));
    }
    hr_expression_release(g);
    hr_expression_release(e);
  }
  HR_ASSERT(accepted > count / 50);
}

HR_TEST(failing_allocations_are_reported) {
  for (int64_t after = 0; after < 40; ++after) {
    hr_expression *e = NULL, *g = NULL;
    hr__allocator_fail_after(after);
    hr_status status = hr_expression_parse("t = x * l; y = exp(t) + t", "T x, T l -> T y", &e);
    if (status == HR_OK) {
      status = hr_expression_gradient(e, NULL, &g);
    }
    if (status == HR_OK) {
      status = hr_expression_check(g, HR_DTYPE_F32);
    }
    hr__allocator_fail_after(-1);
    hr_status_free(status);
    hr_expression_release(g);
    hr_expression_release(e);
  }
}
