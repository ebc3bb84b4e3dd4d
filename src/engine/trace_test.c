/* Traces: the contents of a key, the position of cuts, and decoding of the words. */
#include "hr_test.h"

#include "base/table.h"
#include "engine/trace.h"

static hr_device *device; /* opened by the first buffer of any test */

static hr_buffer *make_buffer(size_t bytes) {
  hr_buffer *buffer;
  if (device == NULL) {
    HR_ASSERT_OK(hr_device_open("null", &device));
  }
  HR_ASSERT_OK(hr_buffer_create(device, bytes, &buffer));
  return buffer;
}

static hr_view make_view(hr_buffer *buffer, const int64_t *dims, const int64_t *strides) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

/* Records c = a op b on [rows, 4]. */
static void record(hr_trace *trace, hr_op op, hr_buffer *a, hr_buffer *b, hr_buffer *c, int64_t rows) {
  int64_t dims[2] = {rows, 4}, strides[2] = {4, 1};
  hr_view inputs[2] = {make_view(a, dims, strides), make_view(b, dims, strides)};
  hr_view output = make_view(c, dims, strides);
  HR_ASSERT_OK(hr__trace_record(trace, op, NULL, 2, inputs, 1, &output));
}

HR_TEST(records_decode_to_their_operations) {
  hr_trace trace;
  hr__trace_init(&trace, 1);
  hr_buffer *x = make_buffer(400), *y = make_buffer(160);
  int64_t dims[2] = {5, 4}, strides[2] = {1, 5}, whole[2] = {4, 1}, ints[3] = {7, -8, 9};
  hr_scalar scalars[2] = {hr_scalar_f64(0.5), hr_scalar_i64(3)}, alpha = hr_scalar_c128(1, 2);
  hr_attrs attrs = {.int_count = 3, .scalar_count = 2, .ints = ints, .scalars = scalars};
  hr_view inputs[3] = {make_view(x, dims, strides), {.scalar = &alpha, .dtype = HR_DTYPE_C128}, {0}};
  hr_view output = make_view(y, dims, whole);
  inputs[0].offset = 11;
  HR_ASSERT_OK(hr__trace_record(&trace, HR_OP_ADD_SCALED, &attrs, 3, inputs, 1, &output));
  record(&trace, HR_OP_MUL, y, y, y, 5);
  hr_buffer_release(x);

  hr_key key;
  hr_program program;
  HR_ASSERT_OK(hr__trace_key(&trace, false, &key));
  HR_ASSERT_OK(hr__key_decode(&key, &program));
  HR_ASSERT_EQ(program.node_count, 2);
  HR_ASSERT_EQ(program.buffer_count, 2);
  HR_ASSERT_EQ(program.bound_count, 2);
  HR_ASSERT_EQ(program.argument_count, 3);
  HR_ASSERT(program.buffers[0].is_dead && program.buffers[0].is_fresh && !program.buffers[1].is_dead);
  HR_ASSERT_EQ(program.buffers[1].bytes, 160);
  const hr_node *node = &program.nodes[0];
  HR_ASSERT_EQ(node->op, HR_OP_ADD_SCALED);
  HR_ASSERT(node->int_count == 3 && node->ints[1] == -8 && node->scalar_count == 2 && node->scalar_base == 0);
  HR_ASSERT_EQ(program.scalars[1].dtype, HR_DTYPE_I64);
  HR_ASSERT(node->inputs[0].offset == 11 && node->inputs[0].strides[1] == 5 && node->inputs[0].dims[0] == 5);
  HR_ASSERT(node->inputs[1].kind == HR_OPERAND_SCALAR && node->inputs[1].index == 2);
  HR_ASSERT_EQ(program.scalars[2].dtype, HR_DTYPE_C128);
  HR_ASSERT_EQ(node->inputs[2].kind, HR_OPERAND_NONE);
  HR_ASSERT(node->outputs[0].index == 1 && node->outputs[0].strides[0] == 4 && node->outputs[0].strides[1] == 1);
  HR_ASSERT(program.nodes[1].inputs[1].index == 1 && program.nodes[1].outputs[0].index == 1);
  hr_program_fini(&program);
  hr__trace_fini(&trace);
  hr_buffer_release(y);
}

/* The key of one add whose third buffer is dead or not, and fresh or not. */
static uint64_t hash_of_add(bool is_dead, bool is_fresh, double scalar, int64_t rows) {
  hr_trace trace;
  hr_key key;
  hr__trace_init(&trace, 9);
  hr_buffer *a = make_buffer(64), *c = make_buffer(64);
  int64_t dims[2] = {rows, 4}, strides[2] = {4, 1};
  hr_scalar number = hr_scalar_f64(scalar);
  hr_view inputs[2] = {make_view(a, dims, strides), {.scalar = &number, .dtype = HR_DTYPE_F64}};
  hr_view output = make_view(c, dims, strides);
  if (!is_fresh) {
    HR_ASSERT_OK(hr__buffer_bind(c));
  }
  HR_ASSERT_OK(hr__trace_record(&trace, HR_OP_ADD, NULL, 2, inputs, 1, &output));
  if (is_dead) {
    hr_buffer_release(c);
  }
  HR_ASSERT_OK(hr__trace_key(&trace, false, &key));
  uint64_t hash = hr__key_hash(&key);
  hr__trace_fini(&trace);
  hr_buffer_release(a);
  if (!is_dead) {
    hr_buffer_release(c);
  }
  return hash;
}

HR_TEST(keys_know_shapes_death_and_freshness_but_no_values) {
  uint64_t hash = hash_of_add(false, true, 0.1, 4);
  HR_ASSERT(hash == hash_of_add(false, true, 0.2, 4));
  HR_ASSERT(hash != hash_of_add(true, true, 0.1, 4));
  HR_ASSERT(hash != hash_of_add(false, false, 0.1, 4));
  HR_ASSERT(hash != hash_of_add(false, true, 0.1, 3));
}

HR_TEST(two_streams_may_share_a_buffer) {
  hr_trace first, second;
  hr__trace_init(&first, 1);
  hr__trace_init(&second, 2);
  hr_buffer *a = make_buffer(64), *b = make_buffer(64);
  for (int i = 0; i < 3; ++i) {
    record(&first, HR_OP_ADD, a, b, a, 4);
    record(&second, HR_OP_ADD, b, a, b, 4);
  }
  HR_ASSERT_EQ(first.buffers.count, 2);
  HR_ASSERT_EQ(second.buffers.count, 2);
  HR_ASSERT_EQ(hr__trace_find(&first, b), 1);
  HR_ASSERT_EQ(hr__trace_find(&second, b), 0);
  hr__trace_fini(&first);
  hr__trace_fini(&second);
  hr_buffer_release(a);
  hr_buffer_release(b);
}

HR_TEST(splitting_renumbers_the_records_after_the_cut) {
  hr_trace whole, rest, alone;
  hr_buffer *b[5];
  hr__trace_init(&whole, 1);
  hr__trace_init(&rest, 1);
  hr__trace_init(&alone, 2);
  for (int i = 0; i < 5; ++i) {
    b[i] = make_buffer(64);
  }
  record(&whole, HR_OP_ADD, b[0], b[1], b[2], 4);
  record(&whole, HR_OP_MUL, b[2], b[1], b[3], 4);
  record(&whole, HR_OP_SUB, b[3], b[1], b[4], 4);
  record(&whole, HR_OP_DIV, b[4], b[3], b[2], 4);
  HR_ASSERT_OK(hr__trace_split(&whole, 2, &rest));
  HR_ASSERT_EQ(whole.records.count, 2);
  HR_ASSERT_EQ(whole.buffers.count, 4);
  HR_ASSERT_EQ(rest.records.count, 2);
  HR_ASSERT_EQ(rest.buffers.count, 4);
  HR_ASSERT(rest.buffers.data[0] == b[3] && rest.buffers.data[1] == b[1] && rest.buffers.data[2] == b[4]);
  HR_ASSERT_EQ(atomic_load(&b[0]->count), 2);
  HR_ASSERT_EQ(atomic_load(&b[1]->count), 3);
  HR_ASSERT_EQ(atomic_load(&b[4]->count), 2);
  record(&alone, HR_OP_SUB, b[3], b[1], b[4], 4);
  record(&alone, HR_OP_DIV, b[4], b[3], b[2], 4);
  hr_key key, key_alone;
  hr__trace_clear(&whole);
  HR_ASSERT_OK(hr__trace_key(&alone, false, &key_alone));
  HR_ASSERT_OK(hr__trace_key(&rest, false, &key));
  HR_ASSERT(hr__key_hash(&key) == hr__key_hash(&key_alone));
  hr__trace_fini(&rest);
  hr__trace_fini(&alone);
  hr__trace_fini(&whole);
  for (int i = 0; i < 5; ++i) {
    HR_ASSERT_EQ(atomic_load(&b[i]->count), 1);
    hr_buffer_release(b[i]);
  }
}

/* ---- loops that never synchronise ---- */

enum { LIVE = 6 };

typedef struct loop {
  hr_trace pending, rest;
  size_t limit;
  hr_table keys;
  int traces, last_new; /* cuts so far; the last one whose key was not seen before */
} loop;

/* Stands for a commit: looks the key up, and gives memory to buffers that live on. */
static void cut(loop *l) {
  hr_key key;
  HR_ASSERT_OK(hr__trace_split(&l->pending, hr__trace_cut(&l->pending), &l->rest));
  HR_ASSERT_OK(hr__trace_key(&l->pending, false, &key));
  ++l->traces;
  if (hr_table_get(&l->keys, hr__key_hash(&key)) == NULL) {
    HR_ASSERT(hr_table_put(&l->keys, key.hash, l));
    l->last_new = l->traces;
  }
  for (size_t i = 0; i < key.buffer_count; ++i) {
    if (!hr_shape_is_dead(key.shapes[i])) {
      HR_ASSERT_OK(hr__buffer_bind(l->pending.buffers.data[i]));
    }
  }
  hr__trace_clear(&l->pending);
  hr_trace committed = l->pending;
  l->pending = l->rest;
  l->rest = committed;
}

/* An operation of a body: its row, its rows and its operands are a function of its place. */
static void loop_step(loop *l, hr_buffer **live, uint32_t place) {
  uint32_t random = place * 2654435761u ^ (place >> 3) * 40503u;
  hr_buffer *result = make_buffer(4096);
  uint32_t a = random >> 4 & 3, b = random >> 9 & 3, to = random >> 13 & 3;
  record(&l->pending, (hr_op)(HR_OP_ADD + random % 4), live[a], live[b], result, 1 + (random >> 20) % 9);
  hr_buffer_release(live[to]);
  live[to] = result;
  if (l->pending.records.count >= l->limit) {
    cut(l);
  }
}

/* A body that runs again `inner` times in each iteration, before its last operation. */
static void run_loop(uint32_t body, uint32_t inner, size_t limit) {
  loop l = {.limit = limit};
  hr_buffer *live[LIVE];
  hr__trace_init(&l.pending, 3);
  hr__trace_init(&l.rest, 3);
  for (int i = 0; i < LIVE; ++i) {
    live[i] = make_buffer(4096);
    HR_ASSERT_OK(hr__buffer_bind(live[i]));
  }
  for (uint32_t i = 0; i < 11; ++i) { /* the records before the loop */
    loop_step(&l, live, 100000 + i);
  }
  size_t length = (size_t)(body - 1) * inner + 1, iterations = 8 * (1 + limit / length);
  int settled = 0;
  for (size_t i = 0; i < iterations; ++i) {
    for (uint32_t k = 0; k < inner; ++k) {
      for (uint32_t place = 0; place + 1 < body; ++place) {
        loop_step(&l, live, place);
      }
    }
    loop_step(&l, live, body - 1);
    settled = i + 1 == 3 + 2 * limit / length ? l.traces : settled; /* the third one; of short loops the third trace */
  }
  if (l.last_new > settled) {
    HR_FAIL("body %u, %u times, limit %zu: trace %d of %d is new", body, inner, limit, l.last_new, l.traces);
  }
  hr__trace_fini(&l.pending);
  hr__trace_fini(&l.rest);
  hr_table_fini(&l.keys);
  for (int i = 0; i < LIVE; ++i) {
    hr_buffer_release(live[i]);
  }
}

HR_TEST(loops_are_cut_at_the_same_operations_in_each_iteration) {
  static const uint32_t bodies[] = {1, 2, 7, 8, 31, 100, 127, 504, 1000, 1433, 3000};
  static const size_t limits[] = {16, 64, 512};
  for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; ++i) {
    for (size_t j = 0; j < sizeof limits / sizeof limits[0]; ++j) {
      run_loop(bodies[i], 1, limits[j]);
    }
  }
}

HR_TEST(loops_inside_of_loops_are_cut_at_the_same_operations) {
  static const uint32_t bodies[] = {2, 3, 6, 9, 20};
  for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; ++i) {
    for (uint32_t inner = 8; inner <= 50; inner += 7) {
      run_loop(bodies[i], inner, 2048);
    }
  }
}

HR_TEST(recording_without_memory_changes_nothing) {
  hr_buffer *a = make_buffer(64), *b = make_buffer(64);
  int64_t dims[2] = {4, 4}, strides[2] = {4, 1};
  hr_view inputs[2] = {make_view(a, dims, strides), make_view(b, dims, strides)}, output = make_view(a, dims, strides);
  for (int n = 0;; ++n) {
    hr_trace trace;
    hr__trace_init(&trace, 1);
    hr__allocator_fail_after(n);
    hr_status status = hr__trace_record(&trace, HR_OP_ADD, NULL, 2, inputs, 1, &output);
    hr__allocator_fail_after(-1);
    bool failed = status != HR_OK;
    hr_status_ignore(status);
    HR_ASSERT_EQ(trace.records.count, failed ? 0 : 1);
    HR_ASSERT_EQ(atomic_load(&a->count), failed ? 1 : 2);
    hr__trace_fini(&trace);
    HR_ASSERT_EQ(atomic_load(&a->count), 1);
    if (!failed) {
      break;
    }
  }
  hr_buffer_release(a);
  hr_buffer_release(b);
}
