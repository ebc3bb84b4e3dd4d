/* ops_ragged.c: rules of ragged tensors: values [n, ...] and, for each level, the rows that they are in.
 *
 * The dims of results follow from the rows, which these kernels have in the host's memory. So they stay kernels
 * (plan_kinds.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

/* ---- rows ---- */

/* The rows of a level: `splits` has count + 1 numbers, row r has the items from splits[r] to splits[r + 1]. */
typedef struct level {
  int64_t *splits;
  int64_t count;
} level;

/* Levels of one tensor; dims of the result, and how many of them are ragged. */
typedef struct ragged {
  level levels[HR_RANK_MAX];
  int count;
  int rank;
  int64_t dims[HR_RANK_MAX];
} ragged;

/* A level from its splits, of which it becomes the owner. `rows`: how many the level above has; -1: the first one. */
static level level_of_splits(htf_node *node, int64_t *splits, int64_t count, int64_t rows) {
  bool is_sorted = count > 0 && splits[0] == 0;
  for (int64_t i = 1; i < count && is_sorted; ++i) {
    is_sorted = splits[i] >= splits[i - 1];
  }
  if (!htf_has_failed(node) && count == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Invalid first partition input. Tensor requires at least one element.");
  } else if (!htf_has_failed(node) && (!is_sorted || (rows >= 0 && count - 1 != rows))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Invalid row split size. Splits must begin with 0 and not decrease, for %lld rows", (long long)rows);
  }
  return (level){splits, htf_has_failed(node) ? 0 : count - 1};
}

/* A level from the row of each of its items. Frees `ids`. */
static level level_of_ids(htf_node *node, int64_t *ids, int64_t count, int64_t rows) {
  level found = {htf_has_failed(node) ? NULL : htf_new_argument(node, (size_t)(rows + 1) * sizeof *found.splits), 0};
  for (int64_t i = 0; i < count && !htf_has_failed(node); ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Got next_value_rowid=%lld which is not less than %lld",
               (long long)ids[i], (long long)rows);
    } else if (i > 0 && ids[i] < ids[i - 1]) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "value_rowids must not decrease: %lld is behind %lld",
               (long long)ids[i], (long long)ids[i - 1]);
    } else {
      ++found.splits[ids[i] + 1];
    }
  }
  for (int64_t r = 0; r < rows && !htf_has_failed(node); ++r) {
    found.splits[r + 1] += found.splits[r];
  }
  free(ids);
  found.count = htf_has_failed(node) ? 0 : rows;
  return found;
}

/* Reads an input as the next level, or as the number of the first one's rows. */
static void read_level(htf_node *node, int input, const char *kind, ragged *r, int64_t *rows) {
  int64_t count = 0, *numbers = htf_host_numbers(node, input, &count);
  bool is_ids = strcmp(kind, "VALUE_ROWIDS") == 0;
  if (!htf_has_failed(node) && is_ids && *rows < 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Cannot handle VALUE_ROWIDS in first dimension.");
  } else if (!htf_has_failed(node) && !is_ids && strcmp(kind, "ROW_SPLITS") != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Cannot handle type %s", kind);
  } else if (!htf_has_failed(node) && r->count >= HR_RANK_MAX - 1) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: at most %d ragged dims are supported", node->kernel->row->op,
             HR_RANK_MAX - 1);
  }
  if (htf_has_failed(node)) {
    free(numbers);
    return;
  }
  level *found = &r->levels[r->count++];
  *found = is_ids ? level_of_ids(node, numbers, count, *rows) : level_of_splits(node, numbers, count, *rows);
  r->dims[0] = r->count == 1 ? found->count : r->dims[0];
  *rows = htf_has_failed(node) ? 0 : found->splits[found->count];
}

/* Levels from the inputs 3 and on. Without any, or with FIRST_DIM_SIZE, dims[0] is the number of rows. */
static void read_levels(htf_node *node, ragged *r) {
  const char *kinds = htf_text(node, "row_partition_types");
  char kind[32];
  int64_t rows = -1;
  for (int input = 3; !htf_has_failed(node) && htf_next_word(&kinds, kind, sizeof kind); ++input) {
    if (input == 3 && strcmp(kind, "FIRST_DIM_SIZE") == 0) {
      rows = r->dims[0] = htf_host_int(node, input);
      if (!htf_has_failed(node) && (rows < 0 || rows > INT32_MAX)) {
        htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "The first dim is %lld, expected 0 to %d", (long long)rows,
                 INT32_MAX);
      }
    } else {
      read_level(node, input, kind, r, &rows);
    }
  }
}

static void free_levels(ragged *r) {
  for (int i = 0; i < r->count; ++i) {
    free(r->levels[i].splits);
  }
}

static int64_t widest(const level *l) {
  int64_t most = 0;
  for (int64_t i = 0; i < l->count; ++i) {
    int64_t width = l->splits[i + 1] - l->splits[i];
    most = width > most ? width : most;
  }
  return most;
}

/* ---- to dense tensors ---- */

/* The dims of the result. Input 0 has those that the program wants, -1 for others, or is one -1. */
static void find_dims(htf_node *node, ragged *r, htf_value values) {
  int64_t wanted[HR_RANK_MAX], dims[HR_RANK_MAX];
  bool is_open = htf_host_dims(node, 0, dims) == 0;
  int count = htf_host_ints(node, 0, wanted, HR_RANK_MAX);
  r->rank = r->count + values->rank;
  if (!htf_has_failed(node) && r->rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: a result of %d dims, at most %d are supported", node->kernel->row->op,
             r->rank, HR_RANK_MAX);
  } else if (!htf_has_failed(node) && !is_open && count != r->rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "rt_input.shape and shape are incompatible: rt_input.rank = %d but shape.rank = %d", r->rank, count);
  }
  for (int d = 0; d < r->rank && !htf_has_failed(node); ++d) {
    bool is_ragged = d > 0 && d <= r->count, is_inner = d > r->count;
    int64_t want = is_open ? -1 : wanted[d];
    int64_t have = is_ragged ? widest(&r->levels[d - 1]) : is_inner ? values->dims[d - r->count] : r->dims[0];
    if (is_inner && want >= 0 && want != have) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
               "rt_input.shape and shape are incompatible: rt_input.shape[%d] = %lld but shape[%d] = %lld", d,
               (long long)have, d, (long long)want);
    }
    r->dims[d] = want >= 0 ? want : have;
  }
}

/* For each place in the dims of rows and levels the number of its value; -1: none. `items`: places of the items of a
 * level, one for each; -1: cut off. */
static void fill_sources(const ragged *r, int64_t values, int64_t *items, int64_t *next, int64_t *sources) {
  int64_t count = r->count > 0 ? r->levels[0].count : r->dims[0];
  for (int64_t i = 0; i < count && (r->count > 0 || i < values); ++i) {
    items[i] = i < r->dims[0] ? i : -1;
  }
  for (int d = 1; d <= r->count; ++d) {
    const level *l = &r->levels[d - 1];
    for (int64_t row = 0; row < l->count; ++row) {
      for (int64_t i = l->splits[row]; i < l->splits[row + 1]; ++i) {
        int64_t place = i - l->splits[row];
        next[i] = items[row] >= 0 && place < r->dims[d] ? items[row] * r->dims[d] + place : -1;
      }
    }
    count = l->splits[l->count];
    int64_t *swapped = items;
    items = next, next = swapped;
  }
  for (int64_t i = 0; i < count && i < values; ++i) {
    if (items[i] >= 0) {
      sources[items[i]] = i;
    }
  }
}

/* The most items of a level, or rows. */
static int64_t most_items(const ragged *r) {
  int64_t most = r->dims[0];
  for (int i = 0; i < r->count; ++i) {
    int64_t items = r->levels[i].splits[r->levels[i].count];
    most = r->levels[i].count > most ? r->levels[i].count : most;
    most = items > most ? items : most;
  }
  return most;
}

/* Numbers of the values for all places, of which there are `count`. */
static htf_value sources_of(htf_node *node, const ragged *r, int64_t values, int64_t count) {
  int64_t most = most_items(r), total = 0;
  bool is_large = __builtin_add_overflow(2 * most, count, &total) || total > INT64_MAX / 16;
  if (is_large) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %lld places", node->kernel->row->op,
             (long long)count);
    return &htf_nothing;
  }
  int64_t *numbers = htf_new_argument(node, (size_t)(total + 1) * sizeof *numbers);
  if (numbers == NULL) {
    return &htf_nothing;
  }
  int64_t *sources = numbers + 2 * most;
  for (int64_t i = 0; i < count; ++i) {
    sources[i] = -1;
  }
  fill_sources(r, values, numbers, numbers + most, sources);
  htf_value result = htf_constant(node, HR_DTYPE_I64, count, sources);
  free(numbers);
  return result;
}

/* The values at their places, `otherwise` elsewhere. */
static void output_dense(htf_node *node, const ragged *r, htf_value values, htf_value otherwise) {
  int64_t places = 1, ones[HR_RANK_MAX], dims[HR_RANK_MAX];
  int rank = values->rank;
  for (int d = 0; d <= r->count; ++d) {
    if (__builtin_mul_overflow(places, r->dims[d], &places)) {
      htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "%s: too many elements", node->kernel->row->op);
      return;
    }
  }
  htf_value sources = sources_of(node, r, values->dims[0], places);
  for (int d = 0; d < rank; ++d) {
    ones[d] = d == 0 ? places : 1, dims[d] = d == 0 ? places : values->dims[d];
  }
  htf_value all = htf_broadcast(node, otherwise, rank, dims);
  if (!htf_has_failed(node) && hr_tensor_count(values) > 0 && hr_tensor_count(all) > 0) {
    htf_value is_here = htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, sources, htf_number_of(node, hr_scalar_i64(0)));
    htf_value rows = htf_taken_rows(node, values, sources);
    all = htf_where(node, htf_reshape(node, is_here, rank, ones), rows, all);
  }
  htf_output(node, 0, htf_reshape(node, all, r->rank, r->dims));
}

/* Inputs: dims, values, the value of places without one, and the rows of each level. */
void htf_ragged_to_dense(htf_node *node) {
  htf_value values = htf_input(node, 1), otherwise = htf_input(node, 2);
  ragged r = {.count = 0};
  read_levels(node, &r);
  if (!htf_has_failed(node) && values->rank == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "RaggedTensorToTensor: values must have a dim");
  }
  if (!htf_has_failed(node)) {
    find_dims(node, &r, values);
  }
  bool fits = htf_has_failed(node) || otherwise->rank < values->rank;
  for (int d = 1; fits && !htf_has_failed(node) && d <= otherwise->rank; ++d) {
    int64_t dim = otherwise->dims[otherwise->rank - d];
    fits = dim == 1 || dim == values->dims[values->rank - d];
  }
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "default_value.shape and rt_input.flat_values.shape are incompatible: default_value has %d dims, a value "
             "%d",
             otherwise->rank, values->rank - 1);
  }
  if (!htf_has_failed(node)) {
    output_dense(node, &r, values, otherwise);
  }
  free_levels(&r);
}

/* ---- ranges ---- */

/* Begin, end and step of a row, in the type of the result. */
typedef struct range {
  double real[3];
  int64_t whole[3];
} range;

/* The number of a range's numbers; -1 if its step is 0. */
static double range_size(const range *r, bool is_whole) {
  if (is_whole) {
    int64_t begin = r->whole[0], end = r->whole[1], step = r->whole[2];
    uint64_t width = step > 0 ? (uint64_t)end - (uint64_t)begin : (uint64_t)begin - (uint64_t)end;
    uint64_t size = step > 0 ? (uint64_t)step : -(uint64_t)step;
    bool is_empty = step > 0 ? begin >= end : begin <= end;
    return step == 0 ? -1 : is_empty ? 0 : (double)(width / size + (width % size != 0));
  }
  double begin = r->real[0], end = r->real[1], step = r->real[2];
  return step == 0 ? -1 : (step > 0 && begin > end) || (step < 0 && begin < end) ? 0 : ceil(fabs((end - begin) / step));
}

/* Adds the numbers of a range behind others of the type, as TensorFlow does: step by step. */
static void append_range(hr_dtype dtype, const range *r, int64_t count, char *out) {
  double real = r->real[0];
  uint64_t whole = (uint64_t)r->whole[0];
  for (int64_t i = 0; i < count; ++i) {
    switch (dtype) {
      case HR_DTYPE_F32:
        ((float *)out)[i] = (float)real;
        real = (double)((float)real + (float)r->real[2]);
        break;
      case HR_DTYPE_F64:
        ((double *)out)[i] = real;
        real += r->real[2];
        break;
      case HR_DTYPE_I32:
        ((int32_t *)out)[i] = (int32_t)whole;
        whole += (uint64_t)r->whole[2];
        break;
      default:
        ((int64_t *)out)[i] = (int64_t)whole;
        whole += (uint64_t)r->whole[2];
        break;
    }
  }
}

/* The number of ranges; fails unless all vectors have as many numbers. */
static int64_t count_ranges(htf_node *node, int64_t sizes[3]) {
  int64_t count = -1, dims[HR_RANK_MAX];
  for (int i = 0; i < 3; ++i) {
    int rank = htf_host_dims(node, i, dims);
    sizes[i] = rank == 1 ? dims[0] : -1;
    if (!htf_has_failed(node) && rank > 1) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "RaggedRange: input %d must be a number or a vector, it has %d dims",
               i, rank);
    } else if (!htf_has_failed(node) && rank == 1 && count >= 0 && dims[0] != count) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "starts, limits, and deltas must have the same shape");
    }
    count = rank == 1 ? dims[0] : count;
  }
  if (!htf_has_failed(node) && count > INT32_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "RaggedRange: %lld rows, at most %d are supported", (long long)count,
             INT32_MAX);
  }
  return count < 0 ? 1 : count;
}

/* Reads an input with `size` numbers (-1: one for all ranges). */
static void read_part(htf_node *node, int input, int64_t size, bool is_whole, range *ranges, int64_t count) {
  int numbers = size < 0 ? 1 : (int)size;
  double *real = htf_new_argument(node, ((size_t)numbers + 1) * sizeof *real);
  int64_t *whole = htf_new_argument(node, ((size_t)numbers + 1) * sizeof *whole);
  if (!htf_has_failed(node) && is_whole) {
    (void)htf_host_ints(node, input, whole, numbers);
  } else if (!htf_has_failed(node)) {
    htf_host_reals(node, input, real, numbers);
  }
  for (int64_t i = 0; i < count && !htf_has_failed(node); ++i) {
    ranges[i].whole[input] = whole[size < 0 ? 0 : i], ranges[i].real[input] = real[size < 0 ? 0 : i];
  }
  free(real);
  free(whole);
}

/* The first place of each range's numbers among all of them. */
static void find_splits(htf_node *node, const range *ranges, int64_t count, bool is_whole, int64_t *splits) {
  for (int64_t i = 0; i < count && !htf_has_failed(node); ++i) {
    double size = range_size(&ranges[i], is_whole);
    if (size < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Requires delta != 0");
    } else if (!(size + (double)splits[i] < 0x1p40)) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Requires ((limit - start) / delta) to be less than 2^40, it is %g",
               size);
    } else {
      splits[i + 1] = splits[i] + (int64_t)size;
    }
  }
}

static void output_ranges(htf_node *node, const range *ranges, int64_t count, hr_dtype dtype, const int64_t *splits) {
  size_t size = hr_dtype_size(dtype);
  char *numbers = htf_new_argument(node, ((size_t)splits[count] + 1) * size);
  for (int64_t i = 0; i < count && numbers != NULL; ++i) {
    append_range(dtype, &ranges[i], splits[i + 1] - splits[i], numbers + (size_t)splits[i] * size);
  }
  htf_output(node, 0, htf_constant(node, HR_DTYPE_I64, count + 1, splits));
  htf_output(node, 1, htf_constant(node, dtype, splits[count], numbers));
  free(numbers);
}

/* Inputs: begins, ends and steps, each a number for all rows or a vector. Outputs: splits and numbers. */
void htf_ragged_range(htf_node *node) {
  int64_t sizes[3], count = count_ranges(node, sizes);
  hr_dtype dtype = htf_output_dtype(node, 1);
  bool is_whole = dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
  range *ranges = htf_has_failed(node) ? NULL : htf_new_argument(node, ((size_t)count + 1) * sizeof *ranges);
  int64_t *splits = htf_has_failed(node) ? NULL : htf_new_argument(node, ((size_t)count + 1) * sizeof *splits);
  for (int i = 0; i < 3 && !htf_has_failed(node); ++i) {
    read_part(node, i, sizes[i], is_whole, ranges, count);
  }
  if (!htf_has_failed(node)) {
    find_splits(node, ranges, count, is_whole, splits);
  }
  if (!htf_has_failed(node)) {
    output_ranges(node, ranges, count, dtype, splits);
  }
  free(splits);
  free(ranges);
}
