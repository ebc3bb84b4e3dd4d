/* ops_selected.c: rules of results whose dims depend on numbers: places of elements, distinct ones, parts by number,
 * their join.
 *
 * Such a kernel waits for the work before it, and reads the dims. So these operations stay kernels (plan.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scope.h"

static htf_value integer(htf_node *node, int64_t number) {
  return htf_number_of(node, hr_scalar_i64(number));
}

static htf_value full(htf_node *node, int64_t number, int64_t count) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(integer(node, number)),
                  ATTRIBUTES(htf_attr_ints(&count, 1), htf_attr_dtype(HR_DTYPE_I64)));
}

static htf_value first_of(htf_node *node, htf_value x, int64_t count) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  dims[0] = count;
  return htf_has_failed(node) ? &htf_nothing : htf_view(node, x, x->rank, dims, x->strides, x->offset);
}

htf_value htf_taken_rows(htf_node *node, htf_value x, htf_value indices) {
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    return x;
  }
  return htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(x, indices), ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop")));
}

/* ---- places ---- */

/* The coordinates of elements that are not 0: a row each. */
void htf_where_true(htf_node *node) {
  static const int order[2] = {1, 0};
  static const int64_t one = 1;
  htf_value x = htf_input(node, 0);
  int rank = x->rank;
  htf_value found = htf_call1(node, HR_FUNCTIONAL_NONZERO, rank > 0 ? x : htf_reshape(node, x, 1, &one));
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t none[2] = {found->dims[1], 0}, strides[2] = {1, 1};
  htf_output(node, 0, rank > 0 ? htf_transpose(node, found, order) : htf_view(node, found, 2, none, strides, 0));
}

/* ---- distinct elements ---- */

typedef struct distinct {
  htf_value first, numbers, counts; /* of each: its first place, how often it occurs; and the number of each element */
} distinct;

static int64_t read_number(htf_node *node, htf_value x) {
  int64_t number = 0;
  const hr_view view = hr_tensor_view(x);
  return !htf_has_failed(node) && htf_keep(node, hr_stream_read(node->stream, &view, &number)) ? 0 : number;
}

/* The distinct rows of a matrix with rows, in the order of their first places. */
static distinct find_distinct(htf_node *node, htf_value rows) {
  enum { FIRST, NUMBERS, COUNTS, FOUND, RESULTS };
  static const int64_t is_sorted = 0, one = 1;
  const int64_t *count = rows->dims;
  hr_view views[RESULTS];
  htf_value results[RESULTS], row_major = htf_settle(node, rows, rows->dtype);
  for (int i = 0; i < RESULTS; ++i) {
    results[i] = htf_new(node, HR_DTYPE_I64, 1, i == FOUND ? &one : count);
    views[i] = hr_tensor_view(results[i]);
  }
  if (!htf_has_failed(node)) {
    const hr_attrs attrs = {.int_count = 1, .ints = &is_sorted};
    const hr_view view = hr_tensor_view(row_major);
    (void)htf_keep(node, hr_stream_record(node->stream, HR_OP_UNIQUE, &attrs, 1, &view, RESULTS, views));
  }
  int64_t found = read_number(node, results[FOUND]);
  htf_value first = first_of(node, results[FIRST], found), counts = first_of(node, results[COUNTS], found);
  htf_value order = htf_call1(node, HR_FUNCTIONAL_ARGSORT, first),
            place = htf_call1(node, HR_FUNCTIONAL_ARGSORT, order);
  return (distinct){htf_taken_rows(node, first, order), htf_taken_rows(node, place, results[NUMBERS]),
                    htf_taken_rows(node, counts, order)};
}

static void output_distinct(htf_node *node, htf_value x, int axis) {
  int64_t dims[2] = {1, 1}, none = 0;
  int order[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    order[d] = d == 0 ? axis : d <= axis ? d - 1 : d;
    dims[d == axis ? 0 : 1] *= x->dims[d];
  }
  htf_value moved = htf_transpose(node, x, order), empty = htf_new(node, HR_DTYPE_I64, 1, &none);
  distinct found = {empty, empty, empty};
  if (!htf_has_failed(node) && hr_tensor_count(x) > 0) {
    found = find_distinct(node, htf_reshape(node, moved, 2, dims));
  } else if (!htf_has_failed(node) && dims[0] > 0) { /* equal rows without elements */
    found = (distinct){full(node, 0, 1), full(node, 0, dims[0]), full(node, dims[0], 1)};
  }
  if (htf_has_failed(node)) {
    return;
  }
  for (int d = 0; d < x->rank; ++d) {
    order[d] = d == axis ? 0 : d < axis ? d + 1 : d;
  }
  htf_value rows =
      hr_tensor_count(x) > 0 ? htf_taken_rows(node, moved, found.first) : first_of(node, moved, found.first->dims[0]);
  htf_output(node, 0, htf_transpose(node, rows, order));
  htf_output(node, 1, found.numbers);
  if (htf_output_count(node) > 2) {
    htf_output(node, 2, found.counts);
  }
}

void htf_unique(htf_node *node) {
  htf_value x = htf_input(node, 0);
  if (!htf_has_failed(node) && x->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "unique expects a 1D vector, not %d dims", x->rank);
  }
  if (!htf_has_failed(node)) {
    output_distinct(node, x, 0);
  }
}

/* Input 1: the axis, or nothing for a vector. */
void htf_unique_slices(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t axis = 0;
  int count = htf_host_ints(node, 1, &axis, 1);
  if (!htf_has_failed(node) && count == 0 && x->rank != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "unique expects a 1D vector, not %d dims", x->rank);
  }
  axis += axis < 0 ? x->rank : 0;
  if (!htf_has_failed(node) && (axis < 0 || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "axis has to be between [0, %d), it is %lld", x->rank, (long long)axis);
  }
  if (!htf_has_failed(node)) {
    output_distinct(node, x, (int)axis);
  }
}

/* ---- parts by number ---- */

/* Slices of data (input 0) by the numbers (input 1) of their parts. */
void htf_dynamic_partition(htf_node *node) {
  htf_value data = htf_input(node, 0), numbers = htf_input(node, 1);
  bool fits =
      htf_has_failed(node) || (numbers->rank <= data->rank &&
                               memcmp(numbers->dims, data->dims, sizeof *data->dims * (size_t)numbers->rank) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "data.shape must start with partitions.shape: %d and %d dims",
             data->rank, numbers->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t count = hr_tensor_count(numbers), dims[HR_RANK_MAX];
  int rank = 1 + data->rank - numbers->rank;
  dims[0] = count;
  memcpy(dims + 1, data->dims + numbers->rank, sizeof *dims * (size_t)(rank - 1));
  if (rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "DynamicPartition: a result of %d dims, at most %d are supported", rank,
             HR_RANK_MAX);
    return;
  }
  data = htf_reshape(node, data, rank, dims), numbers = htf_reshape(node, numbers, 1, &count);
  for (int i = 0; i < htf_output_count(node); ++i) {
    htf_value is_here = htf_call2(node, HR_FUNCTIONAL_EQUAL, numbers, integer(node, i));
    htf_output(node, i, htf_call(node, HR_FUNCTIONAL_COMPRESS, INPUTS(is_here, data), ATTRIBUTES(htf_attr_int(0))));
  }
}

/* Places (host) of the rows of one of the pieces, whose dims begin with theirs. */
typedef struct piece {
  int64_t *places, *numbers; /* numbers: of pieces in the host's memory */
  int64_t count, inner;
} piece;

static void read_piece(htf_node *node, int index, int pieces, bool is_host, piece *out_piece) {
  int64_t dims[HR_RANK_MAX], data_dims[HR_RANK_MAX];
  int rank = htf_host_dims(node, index, dims), data_rank = 0;
  if (is_host) {
    data_rank = htf_host_dims(node, pieces + index, data_dims);
  } else {
    htf_value data = htf_input(node, pieces + index);
    data_rank = data->rank;
    memcpy(data_dims, data->dims, sizeof data_dims);
  }
  bool fits = rank <= data_rank && memcmp(dims, data_dims, sizeof *dims * (size_t)rank) == 0;
  if (!htf_has_failed(node) && !fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "data[%d].shape must start with indices[%d].shape: %d and %d dims",
             index, index, data_rank, rank);
  }
  *out_piece = (piece){.count = 1, .inner = 1};
  for (int d = 0; d < data_rank; ++d) {
    *(d < rank ? &out_piece->count : &out_piece->inner) *= data_dims[d];
  }
  int64_t total = out_piece->count * (is_host ? out_piece->inner : 0);
  out_piece->places = htf_new_argument(node, (size_t)(out_piece->count + total + 1) * sizeof *out_piece->places);
  if (htf_has_failed(node)) {
    return;
  }
  (void)htf_host_ints(node, index, out_piece->places, (int)out_piece->count);
  out_piece->numbers = out_piece->places + out_piece->count;
  if (is_host) {
    (void)htf_host_ints(node, pieces + index, out_piece->numbers, (int)total);
  }
}

/* The rows of the result. */
static int64_t count_rows(htf_node *node, const piece *pieces, int count) {
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) {
    for (int64_t j = 0; j < pieces[i].count && !htf_has_failed(node); ++j) {
      if (pieces[i].places[j] < 0) {
        htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "indices[%d] has %lld, expected at least 0", i,
                 (long long)pieces[i].places[j]);
      }
      rows = pieces[i].places[j] >= rows ? pieces[i].places[j] + 1 : rows;
    }
    if (!htf_has_failed(node) && pieces[i].inner != pieces[0].inner) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "data[%d] has rows of %lld elements, data[0] of %lld", i,
               (long long)pieces[i].inner, (long long)pieces[0].inner);
    }
  }
  return rows;
}

static void stitch_on_host(htf_node *node, const piece *pieces, int count, int rank, const int64_t *dims) {
  int32_t *out = htf_new_host_output(node, 0, rank, dims);
  if (out == NULL) {
    return;
  }
  memset(out, 0, (size_t)(dims[0] * pieces[0].inner) * sizeof *out);
  for (int i = 0; i < count; ++i) {
    for (int64_t j = 0; j < pieces[i].count * pieces[i].inner; ++j) {
      int64_t inner = pieces[i].inner;
      out[pieces[i].places[j / inner] * inner + j % inner] = (int32_t)pieces[i].numbers[j];
    }
  }
}

/* For each row of the result its number among the rows of all pieces, the last of those with this place; -1: none. */
static htf_value sources_of(htf_node *node, const piece *pieces, int count, int64_t rows) {
  int64_t *sources = htf_new_argument(node, (size_t)(rows + 1) * sizeof *sources), number = 0;
  for (int64_t i = 0; i < rows && !htf_has_failed(node); ++i) {
    sources[i] = -1;
  }
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    for (int64_t j = 0; j < pieces[i].count; ++j) {
      sources[pieces[i].places[j]] = number++;
    }
  }
  htf_value result = htf_constant(node, HR_DTYPE_I64, rows, sources);
  free(sources);
  return result;
}

static void stitch(htf_node *node, const piece *pieces, int count, int rank, int64_t *dims) {
  int64_t rows = dims[0];
  htf_value joined = NULL;
  for (int i = 0; i < count; ++i) {
    dims[0] = pieces[i].count;
    htf_value rest = htf_reshape(node, htf_input(node, count + i), rank, dims);
    joined =
        joined == NULL ? rest : htf_call(node, HR_FUNCTIONAL_CONCAT, INPUTS(joined, rest), ATTRIBUTES(htf_attr_int(0)));
  }
  dims[0] = rows;
  if (!htf_has_failed(node) && (hr_tensor_count(joined) == 0 || rows == 0)) {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(integer(node, 0)),
                        ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(joined->dtype))));
  } else if (!htf_has_failed(node)) {
    htf_output(node, 0, htf_taken_rows(node, joined, sources_of(node, pieces, count, rows)));
  }
}

/* Inputs: places of n pieces, in the host's memory, and the pieces; those of i32 are there, too. */
void htf_dynamic_stitch(htf_node *node) {
  int count = htf_input_count(node) / 2, index_rank = 0, rank = 0;
  bool is_host = htf_output_dtype(node, 0) == HR_DTYPE_I32;
  int64_t dims[HR_RANK_MAX + 1], index_dims[HR_RANK_MAX];
  piece *pieces = htf_new_argument(node, (size_t)count * sizeof *pieces);
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    read_piece(node, i, count, is_host, &pieces[i]);
  }
  int64_t rows = htf_has_failed(node) ? 0 : count_rows(node, pieces, count);
  if (!htf_has_failed(node)) {
    index_rank = htf_host_dims(node, 0, index_dims);
    htf_value first = is_host ? &htf_nothing : htf_input(node, count);
    int64_t data_dims[HR_RANK_MAX];
    rank = is_host ? htf_host_dims(node, count, data_dims) : first->rank;
    memcpy(dims + 1, (is_host ? data_dims : first->dims) + index_rank, sizeof *dims * (size_t)(rank - index_rank));
    dims[0] = rows, rank += 1 - index_rank;
  }
  if (!htf_has_failed(node) && is_host) {
    stitch_on_host(node, pieces, count, rank, dims);
  } else if (!htf_has_failed(node)) {
    stitch(node, pieces, count, rank, dims);
  }
  for (int i = 0; pieces != NULL && i < count; ++i) {
    free(pieces[i].places);
  }
  free(pieces);
}

/* ---- boxes ---- */

/* Inputs: boxes [n, 4], scores [n], the most boxes, the largest overlap, and maybe the least score. */
void htf_non_max_suppression(htf_node *node) {
  htf_value boxes = htf_input(node, 0), scores = htf_input(node, 1);
  bool fits = htf_has_failed(node) ||
              (boxes->rank == 2 && boxes->dims[1] == 4 && scores->rank == 1 && scores->dims[0] == boxes->dims[0]);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: boxes must be a matrix of 4 columns, with a score for each row",
             node->kernel->row->op);
  }
  int64_t most = htf_host_int(node, 2);
  double overlap = htf_host_real(node, 3), least = htf_input_count(node) > 4 ? htf_host_real(node, 4) : -INFINITY;
  if (!htf_has_failed(node) && !(overlap >= 0 && overlap <= 1)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "iou_threshold must be in [0, 1], it is %g", overlap);
  }
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t box_dims[3] = {1, boxes->dims[0], 4}, score_dims[3] = {1, 1, boxes->dims[0]};
  htf_value found = htf_call(node, HR_FUNCTIONAL_NON_MAX_SUPPRESSION,
                             INPUTS(htf_reshape(node, boxes, 3, box_dims), htf_reshape(node, scores, 3, score_dims)),
                             ATTRIBUTES(htf_attr_int(most), htf_attr_real(overlap), htf_attr_real(least)));
  if (htf_has_failed(node)) {
    return;
  }
  int64_t count = found->dims[0];
  bool pads = htf_has_flag(node, "pad_to_max_output_size") && count < most;
  htf_value kept = htf_view(node, found, 1, &count, found->strides, found->offset + 2 * found->strides[1]);
  const int64_t before = 0, after = most - count;
  kept = pads ? htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(kept),
                         ATTRIBUTES(htf_attr_ints(&before, 1), htf_attr_ints(&after, 1)))
              : kept;
  htf_output(node, 0, kept);
  if (htf_output_count(node) > 1) {
    htf_output(node, 1, integer(node, count));
  }
}
