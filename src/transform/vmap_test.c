/* Batches of examples: records on views of them, memory, captures, nests with tapes, errors, failing allocations. */
#include "transform/vmap.h"

#include "base/allocator.h"
#include "tensor_test.h"

enum { MOST = 128 };

static hr_tensor new_counted(int rank, const int64_t *dims) {
  hr_tensor x = new_tensor(HR_DTYPE_F64, rank, dims);
  hr_view view = hr_tensor_view(&x);
  double values[MOST];
  HR_ASSERT(hr_tensor_count(&x) <= MOST);
  for (int i = 0; i < hr_tensor_count(&x); ++i) {
    values[i] = i;
  }
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
  return x;
}

static void expect(const hr_tensor *x, const double *values) {
  double found[MOST];
  hr_view view = hr_tensor_view(x);
  HR_ASSERT_OK(hr_stream_read(stream, &view, found));
  for (int i = 0; i < hr_tensor_count(x); ++i) {
    HR_ASSERT(found[i] == values[i]);
  }
}

/* Another view of x's buffer; borrowed. */
static hr_tensor as_strided(const hr_tensor *x, int64_t offset, int rank, const int64_t *dims, const int64_t *strides) {
  hr_tensor view = *x;
  view.rank = rank, view.offset = offset;
  for (int d = 0; d < rank; ++d) {
    view.dims[d] = dims[d], view.strides[d] = strides[d];
  }
  return view;
}
#define STRIDES(...)  \
  (const int64_t[]) { \
    __VA_ARGS__       \
  }

static hr_status record(hr_op op, const hr_tensor *out, const hr_tensor *a, const hr_tensor *b) {
  hr_view inputs[2] = {hr_tensor_view(a), b != NULL ? hr_tensor_view(b) : (hr_view){0}}, output = hr_tensor_view(out);
  return hr_stream_record(stream, op, NULL, b != NULL ? 2 : 1, inputs, 1, &output);
}

/* All examples of y, along axis 0. */
static void expect_all(hr_vmap *vmap, const hr_tensor *y, const double *values) {
  hr_tensor all;
  HR_ASSERT(hr_vmap_is_example(vmap, y));
  HR_ASSERT_OK(hr_vmap_join(vmap, y, 0, &all));
  HR_ASSERT_EQ(all.dims[0], vmap->size);
  expect(&all, values);
  hr_tensor_release(&all);
}

HR_TEST(views_and_in_place_records_of_examples) {
  hr_vmap *vmap;
  hr_tensor xs = new_counted(DIMS(4, 2)), x;
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 1, &x)); /* 0 2 4 6, 1 3 5 7 */
  HR_ASSERT(x.rank == 1 && x.dims[0] == 4 && x.strides[0] == 2);
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(4)),
            windows = as_strided(&x, 2, 2, (const int64_t[]){2, 2}, STRIDES(2, 2));
  hr_tensor square = as_strided(&y, 0, 2, (const int64_t[]){2, 2}, STRIDES(2, 1));
  HR_ASSERT_OK(record(HR_OP_ADD, &square, &windows, &windows)); /* twice 2 4 4 6, 3 5 5 7 */
  expect_all(vmap, &y, (const double[]){4, 8, 8, 12, 6, 10, 10, 14});
  hr_tensor odd = as_strided(&y, 3, 1, (const int64_t[]){2}, STRIDES(-2)),
            even = as_strided(&y, 0, 1, odd.dims, STRIDES(2));
  HR_ASSERT_OK(record(HR_OP_SUB, &even, &odd, &even));
  expect_all(vmap, &y, (const double[]){8, 8, 0, 12, 8, 10, 0, 14});
  HR_ASSERT_OK(record(HR_OP_NEG, &x, &x, NULL)); /* in memory of its own */
  expect_all(vmap, &x, (const double[]){0, -2, -4, -6, -1, -3, -5, -7});
  hr_vmap_end(vmap);
  expect(&xs, (const double[]){0, 1, 2, 3, 4, 5, 6, 7});
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_tensor_release(&xs);
}

HR_TEST(tensors_that_are_the_same_in_all_become_examples_by_writes) {
  hr_vmap *vmap;
  hr_tensor xs = new_counted(DIMS(3)), x, three = new_counted(DIMS(3));
  const double two[3] = {2, 2, 2};
  HR_ASSERT_OK(hr_vmap_begin(stream, 3, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  hr_tensor written = new_tensor(HR_DTYPE_F64, DIMS(3)), recorded = new_tensor(HR_DTYPE_F64, DIMS(3));
  hr_view view = hr_tensor_view(&written);
  HR_ASSERT_OK(hr_stream_write(stream, &view, two));
  HR_ASSERT_OK(record(HR_OP_NEG, &recorded, &written, NULL));
  HR_ASSERT(!hr_vmap_is_example(vmap, &written) && !hr_vmap_is_example(vmap, &recorded));
  hr_tensor first = as_strided(&written, 0, 0, NULL, NULL), last = as_strided(&recorded, 2, 0, NULL, NULL);
  HR_ASSERT_OK(record(HR_OP_COPY, &first, &x, NULL));
  HR_ASSERT_OK(record(HR_OP_MUL, &last, &x, &last));
  expect_all(vmap, &written, (const double[]){0, 2, 2, 1, 2, 2, 2, 2, 2});
  expect_all(vmap, &recorded, (const double[]){-2, -2, 0, -2, -2, -2, -2, -2, -4});
  HR_ASSERT_OK(hr_stream_write(stream, &view, two)); /* to all examples */
  expect_all(vmap, &written, (const double[]){2, 2, 2, 2, 2, 2, 2, 2, 2});
  HR_ASSERT_ERROR(record(HR_OP_MUL, &three, &three, &x), HR_STATUS_INVALID_ARGUMENT,
                  "vmap: mul writes values that differ between examples to a tensor that is not mapped");
  hr_vmap_end(vmap);
  expect(&three, (const double[]){0, 1, 2});
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
  hr_tensor_release(&three);
  hr_tensor_release(&written);
  hr_tensor_release(&recorded);
}

/* Three bytes an example: a view of two is not aligned in the next example. */
HR_TEST(views_of_other_dtypes) {
  hr_vmap *vmap;
  hr_tensor xs = new_tensor(HR_DTYPE_U8, DIMS(2, 3)), x;
  hr_view all = hr_tensor_view(&xs);
  HR_ASSERT_OK(hr_stream_write(stream, &all, (const uint8_t[]){1, 2, 3, 4, 5, 6}));
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  hr_tensor wide = as_strided(&x, 0, 1, (const int64_t[]){1}, STRIDES(1)), y = new_tensor(HR_DTYPE_I16, DIMS(1)), ys;
  wide.dtype = HR_DTYPE_I16;
  int16_t found[2];
  HR_ASSERT_OK(record(HR_OP_COPY, &y, &wide, NULL));
  HR_ASSERT_OK(hr_vmap_join(vmap, &y, 0, &ys));
  hr_view view = hr_tensor_view(&ys);
  HR_ASSERT_OK(hr_stream_read(stream, &view, found));
  HR_ASSERT(found[0] == 0x201 && found[1] == 0x504);
  hr_vmap_end(vmap);
  hr_tensor_release(&ys);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

HR_TEST(lists_of_tensors) {
  hr_vmap *vmap;
  hr_tensor xs = new_counted(DIMS(2, 2)), x, y = new_counted(DIMS(3));
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  hr_tensor outs[2] = {new_tensor(HR_DTYPE_F64, DIMS(2)), new_tensor(HR_DTYPE_F64, DIMS(3))};
  const hr_scalar ten = hr_scalar_f64(10);
  const hr_view number = {.scalar = &ten}, inputs[4] = {hr_tensor_view(&x), hr_tensor_view(&y), number, number};
  const hr_view outputs[2] = {hr_tensor_view(&outs[0]), hr_tensor_view(&outs[1])};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_ADD, NULL, 4, inputs, 2, outputs));
  expect_all(vmap, &outs[0], (const double[]){10, 11, 12, 13});
  expect_all(vmap, &outs[1], (const double[]){10, 11, 12, 10, 11, 12});
  hr_vmap_end(vmap);
  hr_tensor_release(&outs[0]);
  hr_tensor_release(&outs[1]);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_tensor_release(&xs);
}

HR_TEST(intermediate_results_are_released) {
  hr_vmap *vmap;
  hr_tensor xs = new_counted(DIMS(3)), x, y;
  HR_ASSERT_OK(hr_vmap_begin(stream, 3, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  const hr_tensor *inputs[1] = {&x};
  for (int i = 0; i < 1000; ++i) {
    HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_SQUARE, 1, inputs, 0, NULL, 1, &y));
    hr_tensor_release(&y);
  }
  HR_ASSERT(vmap->mapped.count < 100);
  expect_all(vmap, &x, (const double[]){0, 1, 2});
  hr_vmap_end(vmap);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

/* A gradient of examples in one of all, on a capture; records of a stream are the same. */
HR_TEST(tapes_in_and_around_a_vmap) {
  hr_vmap *vmap;
  hr_tape *around, *within;
  hr_tensor xs = new_counted(DIMS(2, 2)), x, y, g, gs, all;
  const hr_tensor *watched = &xs, *example = &x, *end = &y, *inputs[1] = {&x}, *last = &gs;
  HR_ASSERT_OK(hr_tape_begin(stream, &around));
  HR_ASSERT_OK(hr_tape_watch(around, 1, &watched));
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  HR_ASSERT_OK(hr_tape_begin(stream, &within));
  HR_ASSERT_OK(hr_tape_watch(within, 1, &example));
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_SQUARE, 1, inputs, 0, NULL, 1, &y));
  HR_ASSERT_OK(hr_tape_gradient(within, 1, &end, NULL, 1, &example, &g)); /* 2 x */
  hr_tape_destroy(within);
  HR_ASSERT_OK(hr_vmap_join(vmap, &g, 1, &gs));
  hr_vmap_end(vmap);
  HR_ASSERT_OK(hr_tape_gradient(around, 1, &last, NULL, 1, &watched, &all));
  hr_tape_destroy(around);
  expect(&gs, (const double[]){0, 4, 2, 6});
  expect(&all, (const double[]){2, 2, 2, 2});
  hr_tensor_release(&all);
  hr_tensor_release(&gs);
  hr_tensor_release(&g);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

HR_TEST(captures_run_for_all_examples) {
  hr_stream *capture;
  hr_vmap *vmap;
  hr_part *part;
  hr_tensor xs = new_counted(DIMS(2, 3)), x, y, ys;
  const hr_tensor *inputs[1] = {&x};
  HR_ASSERT_OK(hr_capture_create(device, &capture));
  HR_ASSERT_OK(hr_vmap_begin(capture, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  HR_ASSERT_OK(hr_functional_apply(capture, HR_FUNCTIONAL_SUM, 1, inputs, 0, NULL, 1, &y));
  HR_ASSERT_OK(hr_vmap_join(vmap, &y, 0, &ys));
  hr_vmap_end(vmap);
  hr_buffer *params[1] = {xs.buffer}, *results[1] = {ys.buffer};
  const hr_part_spec spec = {.param_count = 1, .result_count = 1, .params = params, .results = results};
  HR_ASSERT_OK(hr_part_create(capture, &spec, &part));
  HR_ASSERT_OK(hr_part_run(stream, part, params, results, NULL));
  expect(&ys, (const double[]){3, 12});
  hr_part_release(part);
  hr_stream_release(capture);
  hr_tensor_release(&ys);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

HR_TEST(wrong_calls_are_errors) {
  hr_vmap *vmap;
  hr_tensor xs = new_counted(DIMS(2, 3)), x, y, deep = new_tensor(HR_DTYPE_F64, 0, NULL), none = {0};
  const hr_tensor *inputs[1] = {&x};
  double value;
  HR_ASSERT_ERROR(hr_vmap_begin(stream, -1, &vmap), HR_STATUS_INVALID_ARGUMENT, "vmap: -1 examples");
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_ERROR(hr_vmap_split(vmap, &xs, 2, &x), HR_STATUS_INVALID_ARGUMENT, "vmap: axis 2, expected 0 to 1");
  HR_ASSERT_ERROR(hr_vmap_split(vmap, &xs, 1, &x), HR_STATUS_INVALID_ARGUMENT, "axis 1 has size 3, expected 2");
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  HR_ASSERT_ERROR(hr_vmap_join(vmap, &x, 2, &y), HR_STATUS_INVALID_ARGUMENT, "vmap: axis 2, expected 0 to 1");
  HR_ASSERT_ERROR(hr_vmap_join(vmap, &none, 0, &y), HR_STATUS_INVALID_ARGUMENT, "without a buffer");
  deep.rank = HR_RANK_MAX;
  for (int d = 0; d < deep.rank; ++d) {
    deep.dims[d] = 1, deep.strides[d] = 1;
  }
  HR_ASSERT_ERROR(hr_vmap_join(vmap, &deep, 0, &y), HR_STATUS_INVALID_ARGUMENT, "an example of 16 dims");
  HR_ASSERT_ERROR(record(HR_OP_ADD, &x, &x, &xs), HR_STATUS_INVALID_ARGUMENT, "add: input 1 of dims [2,3]");
  HR_ASSERT_OK(hr_functional_apply(stream, HR_FUNCTIONAL_SUM, 1, inputs, 0, NULL, 1, &y));
  hr_view view = hr_tensor_view(&y);
  HR_ASSERT_ERROR(hr_stream_read(stream, &view, &value), HR_STATUS_INVALID_ARGUMENT,
                  "vmap: a value that differs between examples can't be read");
  hr_vmap_end(vmap);
  hr_vmap_end(NULL);
  HR_ASSERT_ERROR(hr_stream_read(stream, &view, &value), HR_STATUS_INVALID_ARGUMENT, "vmap: a value that differs");
  HR_ASSERT_ERROR(record(HR_OP_NEG, &deep, &y, NULL), HR_STATUS_INVALID_ARGUMENT, "vmap: a value that differs");
  HR_ASSERT_OK(hr_stream_synchronize(stream));
  hr_tensor_release(&deep);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

/* Tensors of the most dims have no room for one more: the row is recorded for each example. */
HR_TEST(examples_of_the_most_dims) {
  hr_vmap *vmap;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  hr_tensor xs = new_counted(DIMS(2, 3)), x, ys;
  HR_ASSERT_OK(hr_vmap_begin(stream, 2, &vmap));
  HR_ASSERT_OK(hr_vmap_split(vmap, &xs, 0, &x));
  hr_tensor y = new_tensor(HR_DTYPE_F64, DIMS(3));
  for (int d = 0; d < HR_RANK_MAX; ++d) {
    dims[d] = d == 7 ? 3 : 1, strides[d] = 1;
  }
  hr_tensor deep = as_strided(&x, 0, HR_RANK_MAX, dims, strides), out = as_strided(&y, 0, HR_RANK_MAX, dims, strides);
  HR_ASSERT_OK(record(HR_OP_ADD, &out, &deep, &deep));
  HR_ASSERT_OK(hr_vmap_join(vmap, &y, 1, &ys));
  hr_vmap_end(vmap);
  expect(&ys, (const double[]){0, 6, 2, 8, 4, 10});
  hr_tensor_release(&ys);
  hr_tensor_release(&y);
  hr_tensor_release(&x);
  hr_tensor_release(&xs);
}

/* ---- memory ---- */

static hr_status run_some(hr_vmap *vmap, const hr_tensor *xs) {
  hr_tensor x = {0}, y = {0}, z = {0}, all = {0};
  const hr_tensor *x_only[1] = {&x}, *both[2] = {&x, &y};
  hr_status status = hr_vmap_split(vmap, xs, 0, &x);
  status = status == HR_OK ? hr_functional_apply(stream, HR_FUNCTIONAL_SORT, 1, x_only, 0, NULL, 1, &y) : status;
  status = status == HR_OK ? hr_functional_apply(stream, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL, 1, &z) : status;
  status = status == HR_OK ? record(HR_OP_NEG, &x, &x, NULL) : status;
  status = status == HR_OK ? hr_vmap_join(vmap, &z, 0, &all) : status;
  hr_tensor_release(&x);
  hr_tensor_release(&y);
  hr_tensor_release(&z);
  hr_tensor_release(&all);
  return status;
}

static hr_status vmap_all(const hr_tensor *xs) {
  hr_vmap *vmap;
  HR_RETURN_IF_ERROR(hr_vmap_begin(stream, 2, &vmap));
  hr_status status = run_some(vmap, xs);
  hr_vmap_end(vmap);
  return status;
}

/* Every allocation fails once. The stream has no hook afterwards, and records as before. */
HR_TEST(failing_allocations_leave_the_stream_without_a_vmap) {
  hr_tensor xs = new_counted(DIMS(2, 3));
  HR_ASSERT_OK(vmap_all(&xs));
  for (int64_t n = 0;; ++n) {
    hr__allocator_fail_after(n);
    hr_status status = vmap_all(&xs);
    int64_t failures = hr__allocator_failures();
    hr__allocator_fail_after(-1);
    if (status != HR_OK) {
      HR_ASSERT_STATUS(status, HR_STATUS_RESOURCE_EXHAUSTED);
    }
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    if (failures == 0) {
      break;
    }
  }
  HR_ASSERT_OK(vmap_all(&xs));
  hr_tensor_release(&xs);
}
