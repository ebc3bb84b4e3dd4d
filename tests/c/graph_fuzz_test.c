/* Graphs with every function, on random inputs and attributes, as a file of unknown origin may have them: each
 * operation is added or refused. HEADRACE_TEST_CASES sets the number of cases for each function, HEADRACE_TEST_SEED the
 * first. So is text of control flow, of which tokens are changed: what is read prints as it was read. */
#include <ctype.h>

#include "file_limits.h"
#include "functional/functions.h"
#include "graph/graph_node.h"
#include "graph/graph_test.h"

static uint64_t state;

static int64_t draw(int64_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(state >> 33) % below;
}

/* Mostly small, sometimes at the ends of 64 bits. */
static int64_t draw_integer(void) {
  static const int64_t odd[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 2, INT32_MAX, INT32_MIN, 1LL << 32,
                                1LL << 40, -1,        1LL << 62,     1LL << 31,     65536};
  return draw(6) == 0 ? odd[draw(12)] : draw(8) - 2;
}

static double draw_real(void) {
  static const double odd[] = {INFINITY, -INFINITY, NAN, 1e300, -1e300, 1e-300, 0x1p63, -0x1p63};
  return draw(6) == 0 ? odd[draw(8)] : (double)(draw(9) - 3) / 2;
}

static hr_scalar draw_scalar(void) {
  return draw(2) == 0 ? hr_scalar_f64(draw_real()) : hr_scalar_i64(draw_integer());
}

/* ---- values ---- */

static hr_value draw_input(hr_graph *graph) {
  static const hr_dtype likely[] = {HR_DTYPE_F32, HR_DTYPE_I64, HR_DTYPE_BOOL,
                                    HR_DTYPE_C64, HR_DTYPE_U32, HR_DTYPE_F16};
  static const char *const symbols[] = {"n", "m"};
  static const int64_t numbers[8] = {3, 0, 2, -1, 1, 5, -4, 6};
  if (draw(10) == 0) {
    return hr_graph_number(graph, draw_scalar());
  }
  hr_type type = {.dtype =
                      draw(8) == 0 ? (hr_dtype)(1 + draw(HR_DTYPE_COUNT - 1)) : likely[draw(draw(2) == 0 ? 1 : 6)]};
  type.rank = (int)draw(draw(12) == 0 ? HR_RANK_MAX + 1 : 5);
  if (draw(5) == 0) { /* of integers that are known on the host */
    type = (hr_type){.dtype = HR_DTYPE_I64, .rank = (int)draw(2), .dims = {draw(6)}};
    return hr_graph_constant(graph, &type, numbers);
  }
  for (int d = 0; d < type.rank; ++d) {
    bool is_symbol = draw(5) == 0;
    type.dims[d] = is_symbol ? -1 : draw(24) == 0 ? 1LL << (20 + draw(20)) : draw(5);
    type.symbols[d] = is_symbol ? symbols[draw(2)] : NULL;
  }
  char name[24];
  snprintf(name, sizeof name, "x%d", hr_graph_input_count(graph));
  return hr_graph_input(graph, name, &type);
}

/* ---- attributes ---- */

typedef struct drawn {
  hr_graph_attribute attribute;
  int64_t ints[HR_RANK_MAX];
  double reals[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
} drawn;

static const char *draw_text(const hr__attribute_row *row) {
  static const char *const texts[] = {
      "",       "error",   "clip",  "drop",   "set",  "add",      "ij,jk->ik",      "...i,...i", "i->",
      "affine", "mxfp4",   "tanh",  "valid",  "same", "right",    "reduced",        "ortho",     "->ij",
      "ii->i",  "nearest", "cubic", "linear", "i j",  "explicit", "bf01,oi01->bf01"};
  return row->word != NULL && draw(2) == 0 ? row->word : texts[draw(25)];
}

static void draw_attribute(hr_graph *graph, const hr__attribute_row *row, drawn *d) {
  hr_attribute *value = &d->attribute.value;
  *d = (drawn){.attribute = {.name = row->name, .value = {.kind = row->kind, .count = (int)draw(5)}}};
  for (int i = 0; i < value->count; ++i) {
    d->ints[i] = draw_integer(), d->reals[i] = draw_real();
    d->values[i] = draw(4) == 0 ? hr_graph_symbol(graph, "n") : 0;
  }
  switch (row->kind) {
    case HR_ATTRIBUTE_INT:
      value->value.integer = draw_integer();
      break;
    case HR_ATTRIBUTE_FLAG:
      value->value.integer = draw(2);
      break;
    case HR_ATTRIBUTE_REAL:
      value->value.number = draw_scalar();
      break;
    case HR_ATTRIBUTE_INTS:
      value->value.ints = d->ints;
      d->attribute.values = draw(3) == 0 ? d->values : NULL;
      break;
    case HR_ATTRIBUTE_REALS:
      value->value.reals = d->reals;
      break;
    case HR_ATTRIBUTE_DTYPE:
      value->value.dtype = (hr_dtype)(1 + draw(HR_DTYPE_COUNT - 1));
      break;
    default:
      value->value.text = draw_text(row);
  }
}

static int draw_attributes(hr_graph *graph, const hr__function_row *row, drawn *all, hr_graph_attribute *attributes) {
  int count = 0;
  for (int i = 0; row->attributes[i].name != NULL; ++i) {
    if (row->attributes[i].is_required || draw(2) == 0) {
      draw_attribute(graph, &row->attributes[i], &all[count]);
      attributes[count] = all[count].attribute;
      ++count;
    }
  }
  return count;
}

/* ---- cases ---- */

static void expect_fact(const hr__fact *fact, const hr__fact *expected) {
  HR_ASSERT_EQ(fact->is_set, expected->is_set);
  int64_t count = 1;
  if (!fact->is_set) {
    return;
  }
  HR_ASSERT(fact->dtype == expected->dtype && fact->rank == expected->rank);
  for (int d = 0; d < fact->rank; ++d) {
    HR_ASSERT_EQ(fact->dims[d], expected->dims[d]);
    count *= fact->dims[d];
  }
  HR_ASSERT_EQ(fact->numbers != NULL, expected->numbers != NULL);
  for (int64_t i = 0; fact->numbers != NULL && i < count; ++i) {
    HR_ASSERT_EQ(fact->numbers[i], expected->numbers[i]);
  }
}

/* Infers the facts of a node at a point, and compares them with those of the graph. */
static void check_node(const hr_graph *graph, const hr__node *node, int point, hr_arena *arena) {
  int64_t host_bytes = 0;
  const hr__frame frame = {
      .graph = graph, .point = point, .arena = arena, .scratch = arena, .host_bytes = &host_bytes, .is_typing = true};
  hr__fact *facts = hr_arena_calloc(arena, (size_t)node->result_count, sizeof *facts);
  hr_status_ignore(hr__frame_infer(&frame, node, facts));
  for (int i = 0; i < node->result_count; ++i) {
    expect_fact(hr__frame_fact(&frame, node->first + i), &facts[i]);
  }
}

/* A graph's copy has the facts that would be inferred, though most are copied. */
static void check_facts(const hr_graph *graph) {
  hr_arena arena = {0};
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    bool varies = hr__graph_value_of(graph, node->first)->varies;
    for (int p = 0; p < (varies ? HR__GRAPH_POINTS : 1); ++p) {
      check_node(graph, node, p, &arena);
    }
    hr_arena_reset(&arena);
  }
  hr_arena_fini(&arena);
}

/* Its text, which has the types, is that of a graph whose facts are inferred. */
static void check_copy(const hr_graph *graph) {
  check_facts(graph);
  hr_graph_release(read_back(graph));
}

/* A graph of one function; true if it is accepted. */
static bool try_function(hr_functional function) {
  const hr__function_row *row = hr__function_row_of(function);
  hr_graph *graph = NULL, *simple = NULL;
  drawn all[32];
  hr_graph_attribute attributes[32];
  hr_value inputs[32];
  HR_ASSERT_OK(hr_graph_create(&graph));
  int input_count = row->is_variadic ? 1 + (int)draw(4) : row->input_count;
  for (int i = 0; i < input_count; ++i) {
    inputs[i] = i > 0 && draw(3) == 0 ? inputs[i - 1] : draw(12) == 0 ? 0 : draw_input(graph);
  }
  int count = draw_attributes(graph, row, all, attributes);
  hr_status status = hr_graph_status(graph);
  bool are_inputs = status == HR_OK;
  hr_status_ignore(status);
  hr_value result = are_inputs ? hr_graph_add(graph, function, input_count, inputs, count, attributes) : 0;
  if (result > 0) {
    hr_graph_output(graph, "y", result);
    HR_ASSERT_OK(hr_graph_simplify(graph, NULL, &simple));
    check_copy(simple);
  }
  hr_graph_release(simple);
  hr_graph_release(graph);
  return result > 0;
}

HR_TEST(functions_on_any_arguments_are_added_or_refused) {
  const char *cases = getenv("HEADRACE_TEST_CASES"), *first = getenv("HEADRACE_TEST_SEED");
  int64_t count = cases != NULL ? atoll(cases) : hr_test_count(400);
  int64_t accepted = 0;
  file_limits_begin(); /* time alone: operations may have tens of thousands of results */
  for (int f = 1; f < HR_FUNCTIONAL_COUNT; ++f) {
    for (int64_t i = 0; i < count; ++i) {
      state = (uint64_t)i * HR_FUNCTIONAL_COUNT + (uint64_t)f + (first != NULL ? (uint64_t)atoll(first) : 0) * 1000003u;
      (void)draw(2);
      file_limits_start(i * HR_FUNCTIONAL_COUNT + f);
      accepted += try_function((hr_functional)f);
    }
  }
  file_limits_end();
  HR_ASSERT(accepted > 0);
}

/* ---- control flow as text ---- */

static const char *const seeds[] = {
    "graph 2\nfunction @0 {\ninput %a f32[n]\ninput %i i64[]\n%0 = multiply(%a, 2)\n%1 = add(%i, 1)\noutput y = %0\n"
    "output i = %1\n}\nfunction @1 {\ninput %a f32[n]\ninput %i i64[]\n%0 = less(%i, 3)\noutput c = %0\n}\n"
    "input %x f32[n]\nconstant %z i64[] = [0]\n%0, %1 = while(@0, @1, %x, %z, carried=2)\n"
    "%2, %3 = if(@0, @0, %1, %x, %z)\n%4, %5 = call(@0, %2, %3)\noutput y = %4\noutput i = %5\n",
    "graph 2\nfunction @0 {\ninput %i i64[]\ninput %a f32[n]\ninput %b f32[m]\n%r = read(%i)\n%0 = concat(%a, %b)\n"
    "%s = sum(%0)\noutput y = %0\noutput s = %s\n}\nfunction @1 {\ninput %a f32[n]\ninput %b f32[n]\n"
    "%0, %1 = for(@0, 2, %a, %b, carried=1)\noutput y = %a\noutput s = %1\n}\ninput %k i64[]\ninput %x f32[n, 3]\n"
    "constant %z f32[3] = [1.0, 2.0, 3.0]\n%0, %1 = scan(@1, %z, %x, carried=1, sequences=1)\n"
    "%2, %3 = for(@0, %k, %z, %0, carried=1)\n%g = gradient(%1, %x)\noutput y = %2\noutput s = %3\noutput g = %g\n",
    "graph 2\nvariable %w f32[2] = [1.0, 2.0]\nvariable %v i64[] = [3]\ninput %x f32[n]\n%0 = nonzero(%x)\n"
    "%1 = greater(%x, 1)\n%2 = compress(%1, %x)\n%3, %4, %5, %6 = unique(%2)\n%7 = read(%v)\n%8 = arange(stop=%7)\n"
    "%9 = add(%w, 1)\nassign %w = %9\nassign %v = %v\noutput a = %0\noutput b = %8\noutput c = %6\n",
    "graph 2\nfunction @0 {\ninput %a f32[n]\n%b = negative(%a)\noutput b = %b\n}\n"
    "function @1 {\ninput %i i64[]\ninput %x f32[n]\ninput %c f32[]\n%0 = add(%x, %c)\noutput x = %0\n}\n"
    "function @2 {\ninput %x f32[n]\ninput %k i64[]\ninput %c f32[]\n%0 = less(%c, 0)\n%1 = if(@0, @0, %0, %x)\n"
    "%2 = for(@1, %k, %1, %c, carried=1)\n%3 = negative(%x)\n%4 = read(%k)\n%5 = sum(%2)\noutput y = %2\n"
    "output z = %5\noutput w = %4\n}\n"
    "input %xs f32[m,n]\ninput %k i64[]\ninput %c f32[]\n"
    "%0, %1, %2 = vmap(@2, %xs, %k, %c, in=[0, _, _], out=[0, 0, _])\noutput y = %0\noutput z = %1\n"};

static const char *const tokens[] = {
    "%x",   "%z",       "%a",      "%0",        "%1",    "%2",       "@0",         "@1",       "@2",
    "n",    "m",        "f32[",    "i64[",      "bool[", "carried=", "sequences=", "1",        "0",
    "-1",   "3",        "2",       "65536",     "}",     "{",        ", ",         ")",        "]",
    "_",    "if(",      "while(",  "for(",      "scan(", "call",     "read(",      "gradient", "\n",
    "add(", "function", "assign ", "variable ", "vmap(", "in=[",     "out=[",      "nonzero("};

/* True at the begin of a token: at a change between kinds of characters. */
static size_t find_token(const char *text, size_t length, size_t from) {
  while (from > 0 && from < length && isalnum((unsigned char)text[from]) != 0 &&
         isalnum((unsigned char)text[from - 1]) != 0) {
    ++from;
  }
  return from;
}

/* Replaces, removes or inserts tokens, or repeats a part of the text. */
static size_t change_text(char *text, size_t length, size_t room) {
  for (int64_t change = draw(4); change >= 0; --change) {
    size_t at = find_token(text, length, (size_t)draw((int64_t)length)), end = at;
    size_t removed = draw(3) == 0 ? 0 : find_token(text, length, at + 1 < length ? at + 1 : length) - at;
    const char *with = draw(4) == 0 ? "" : tokens[draw((int64_t)(sizeof tokens / sizeof *tokens))];
    size_t added = strlen(with);
    end = at + removed;
    if (length - removed + added < room) {
      memmove(text + at + added, text + end, length - end);
      memcpy(text + at, with, added);
      length += added - removed;
    }
  }
  return length;
}

/* True if the text is a graph: then its own text is the same when it is read again, and so is that of a simpler one. */
static bool try_text(const char *text, size_t length) {
  hr_graph *graph = NULL, *simple = NULL;
  hr_status status = hr_graph_parse(text, length, NULL, &graph);
  if (status != HR_OK) {
    hr_status_ignore(status);
    return false;
  }
  hr_graph_release(read_back(graph));
  HR_ASSERT_OK(hr_graph_simplify(graph, NULL, &simple));
  check_copy(simple);
  hr_graph_release(simple);
  hr_graph_release(graph);
  return true;
}

HR_TEST(texts_of_control_flow_are_read_or_refused) {
  enum { ROOM = 4096, SEEDS = sizeof seeds / sizeof *seeds };
  const char *cases = getenv("HEADRACE_TEST_CASES"), *first = getenv("HEADRACE_TEST_SEED");
  int64_t count = (cases != NULL ? atoll(cases) : hr_test_count(400)) * 50, accepted = 0;
  file_limits_begin();
  for (int64_t i = 0; i < count; ++i) {
    char text[ROOM];
    state = (uint64_t)i + (first != NULL ? (uint64_t)atoll(first) : 0) * 1000003u;
    (void)draw(2);
    const char *from = seeds[i % SEEDS];
    size_t length = strlen(from);
    memcpy(text, from, length);
    file_limits_start(i);
    HR_ASSERT(i >= SEEDS || try_text(text, length));
    accepted += try_text(text, change_text(text, length, ROOM));
    file_limits_check(length);
  }
  file_limits_end();
  HR_ASSERT(accepted > count / 100 && accepted < count);
}
