/* program_composites.c: random composites and contractions of random programs, with operands of suitable shapes. See
 * program_generator.h. */
#include "program_maker.h"

static int64_t product(int begin, int end, const int64_t *dims) {
  int64_t count = 1;
  for (int d = begin; d < end; ++d) {
    count *= dims[d];
  }
  return count;
}

/* An operand, or none, each half of the time. */
static hr_operand maybe(hr__maker *m, hr_operand x) {
  return hr__chance(m, 2) ? x : hr__absent();
}

static hr_operand maybe_output(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims) {
  return hr__chance(m, 2) ? hr__new_output(m, dtype, rank, dims) : hr__absent();
}

static void copy_dims(const hr_operand *x, int64_t *out_dims) {
  if (x->rank > 0) {
    memcpy(out_dims, x->dims, (size_t)x->rank * sizeof *out_dims);
  }
}

/* The dtype of statistics: f64 for f64, else f32. */
static hr_dtype wide(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
}

/* ---- reductions and rows ---- */

static void add_moments(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_VAR_MEAN, HR_OP_NORM, HR_OP_LOGSUMEXP};
  hr__draft draft = hr__begin(HR__PICK_FROM(m, pool));
  hr_operand x = hr__any_tensor(m, true, 1);
  int64_t dims[HR_RANK_MAX], mask = 1 + hr__pick(m, (1 << x.rank) - 1);
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = (mask >> d & 1) != 0 ? 1 : x.dims[d];
  }
  hr__in(&draft, x);
  hr__int(&draft, mask);
  hr__out(&draft, hr__output(m, wide(x.dtype), x.rank, dims));
  if (draft.op == HR_OP_VAR_MEAN) {
    hr__int(&draft, hr__pick(m, 2));
    hr__scalar(&draft, hr__pick(m, 2));
    hr__out(&draft, maybe_output(m, wide(x.dtype), x.rank, dims));
  } else if (draft.op == HR_OP_NORM) {
    static const double orders[] = {3, 0, 1, 2, INFINITY, -INFINITY};
    int kind = hr__pick(m, 6);
    hr__int(&draft, kind);
    hr__scalar(&draft, orders[kind]);
  }
  hr__end(m, &draft);
}

static void add_softmax(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_SOFTMAX, HR_OP_SOFTMAX, HR_OP_LOG_SOFTMAX, HR_OP_SOFTMAX_BACKWARD,
                               HR_OP_LOG_SOFTMAX_BACKWARD};
  hr__draft draft = hr__begin(HR__PICK_FROM(m, pool));
  hr_operand x = hr__any_tensor(m, true, 1);
  bool is_backward = draft.op == HR_OP_SOFTMAX_BACKWARD || draft.op == HR_OP_LOG_SOFTMAX_BACKWARD;
  hr__in(&draft, x);
  if (is_backward) {
    hr__in(&draft, hr__real_input(m, x.rank, x.dims));
  }
  hr__int(&draft, hr__pick(m, x.rank));
  hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
  hr__end(m, &draft);
}

static void add_layer_norm(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 1);
  int n = 1 + hr__pick(m, x.rank), kept = x.rank - n;
  int64_t dims[HR_RANK_MAX] = {0};
  copy_dims(&x, dims);
  for (int d = kept; d < x.rank; ++d) {
    dims[d] = 1;
  }
  hr__draft draft = hr__begin(hr__chance(m, 2) ? HR_OP_LAYER_NORM : HR_OP_LAYER_NORM_BACKWARD);
  hr__int(&draft, n);
  if (draft.op == HR_OP_LAYER_NORM) {
    hr__in(&draft, x);
    hr__in(&draft, maybe(m, hr__real_input(m, n, x.dims + kept)));
    hr__in(&draft, maybe(m, hr__real_input(m, n, x.dims + kept)));
    hr__scalar(&draft, 1e-5);
    hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, wide(x.dtype), x.rank, dims));
    hr__out(&draft, maybe_output(m, wide(x.dtype), x.rank, dims));
  } else {
    hr__in(&draft, hr__real_input(m, x.rank, x.dims));
    hr__in(&draft, x);
    hr__in(&draft, hr__real_input(m, x.rank, dims));
    hr__in(&draft, hr__real_input(m, x.rank, dims));
    hr__in(&draft, maybe(m, hr__real_input(m, n, x.dims + kept)));
    hr__out(&draft, hr__chance(m, 4) ? hr__absent() : hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, n, x.dims + kept));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, n, x.dims + kept));
  }
  hr__end(m, &draft);
}

static void add_group_norm(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 2);
  int64_t channels = x.dims[1], groups = channels % 4 == 0 && channels > 0 ? 4 : channels % 3 == 0 ? 3 : 1;
  groups = groups == 3 && channels == 0 ? 1 : groups;
  int64_t stats[2] = {x.dims[0], groups};
  hr__draft draft = hr__begin(hr__chance(m, 2) ? HR_OP_GROUP_NORM : HR_OP_GROUP_NORM_BACKWARD);
  hr__int(&draft, groups);
  if (draft.op == HR_OP_GROUP_NORM) {
    hr__in(&draft, x);
    hr__in(&draft, maybe(m, hr__real_input(m, 1, &channels)));
    hr__in(&draft, maybe(m, hr__real_input(m, 1, &channels)));
    hr__scalar(&draft, 1e-5);
    hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, wide(x.dtype), 2, stats));
    hr__out(&draft, maybe_output(m, wide(x.dtype), 2, stats));
  } else {
    hr__in(&draft, hr__real_input(m, x.rank, x.dims));
    hr__in(&draft, x);
    hr__in(&draft, hr__real_input(m, 2, stats));
    hr__in(&draft, hr__real_input(m, 2, stats));
    hr__in(&draft, maybe(m, hr__real_input(m, 1, &channels)));
    hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
  }
  hr__end(m, &draft);
}

/* Channels in the middle, as in images; running statistics in place. */
static void add_batch_norm(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 2);
  int64_t channels = x.dims[1];
  bool is_training = !hr__chance(m, 3), is_backward = hr__chance(m, 2);
  hr__draft draft = hr__begin(is_backward ? HR_OP_BATCH_NORM_BACKWARD : HR_OP_BATCH_NORM);
  hr__int(&draft, is_training);
  if (is_backward) {
    hr__in(&draft, hr__real_input(m, x.rank, x.dims));
  }
  hr__in(&draft, x);
  hr__in(&draft, maybe(m, hr__real_input(m, 1, &channels)));
  if (!is_backward) {
    hr__in(&draft, maybe(m, hr__real_input(m, 1, &channels)));
  }
  bool has_running = !is_training || hr__chance(m, 2);
  hr_operand running[2] = {hr__absent(), hr__absent()};
  for (int i = 0; i < 2; ++i) {
    running[i] = has_running ? hr__new_tensor(m, HR_DTYPE_F32, 1, &channels) : running[i];
    hr__in(&draft, running[i]);
  }
  if (is_backward) {
    hr__in(&draft, hr__real_input(m, 1, &channels));
    hr__in(&draft, hr__real_input(m, 1, &channels));
    hr__scalar(&draft, 1e-5);
    hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
  } else {
    hr__scalar(&draft, 0.1), hr__scalar(&draft, 1e-5);
    hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 1, &channels));
    for (int i = 0; i < 2 && has_running && is_training; ++i) {
      hr__out(&draft, running[i]);
    }
  }
  hr__end(m, &draft);
}

/* ---- losses ---- */

static void add_loss(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_MSE_LOSS, HR_OP_BCE_LOSS, HR_OP_SMOOTH_L1_LOSS, HR_OP_HUBER_LOSS};
  int kind = hr__pick(m, 4), reduction = hr__pick(m, 3);
  bool is_backward = hr__chance(m, 2), has_number = kind >= 2, is_whole = reduction == 0 || is_backward;
  hr_operand x = hr__any_tensor(m, true, 1);
  hr__draft draft = hr__begin((hr_op)(pool[kind] + (is_backward ? 1 : 0)));
  hr__int(&draft, reduction);
  if (is_backward) {
    int64_t one = 1;
    hr__in(&draft, reduction == 0 ? hr__real_input(m, x.rank, x.dims) : hr__real_input(m, 0, &one));
  }
  hr__in(&draft, x);
  hr__in(&draft, hr__real_input(m, x.rank, x.dims));
  if (has_number) {
    hr__scalar(&draft, 0.75);
  }
  hr__out(&draft, hr__output(m, x.dtype, is_whole ? x.rank : 0, x.dims));
  hr__end(m, &draft);
}

static void add_nll_loss(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 2);
  int64_t dims[HR_RANK_MAX], classes = x.dims[1];
  int rank = 0, reduction = hr__pick(m, 3);
  for (int d = 0; d < x.rank; ++d) {
    if (d != 1) {
      dims[rank++] = x.dims[d];
    }
  }
  hr_operand target = hr__new_index(m, rank, dims, classes);
  hr_operand weight = maybe(m, hr__real_input(m, 1, &classes));
  hr__draft draft = hr__begin(hr__chance(m, 2) ? HR_OP_NLL_LOSS : HR_OP_NLL_LOSS_BACKWARD);
  hr__int(&draft, reduction);
  hr__scalar_integer(&draft, hr__chance(m, 2) ? -100 : 0);
  if (draft.op == HR_OP_NLL_LOSS) {
    hr__in(&draft, x), hr__in(&draft, target), hr__in(&draft, weight);
    hr__out(&draft, hr__new_output(m, x.dtype, reduction == 0 ? rank : 0, dims));
    hr__out(&draft, maybe_output(m, x.dtype, 0, NULL));
  } else {
    hr__in(&draft, hr__real_input(m, reduction == 0 ? rank : 0, dims));
    hr__in(&draft, target), hr__in(&draft, weight);
    hr__in(&draft, hr__real_input(m, 0, NULL));
    hr__out(&draft, hr__new_output(m, x.dtype, x.rank, x.dims));
  }
  hr__end(m, &draft);
}

/* ---- windows ---- */

/* Planes: a tensor of rank 3, or one of rank 4 with a dim of 1 in front. */
static hr_operand planes(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 3);
  int64_t dims[4] = {1};
  if (x.rank > 4 || hr__count(&x) > 30000) {
    int64_t small[3] = {2, 9, 7};
    return hr__new_tensor(m, HR_DTYPE_F32, 3, small);
  }
  if (x.rank == 3 && hr__is_contiguous(&x) && hr__chance(m, 3)) {
    memcpy(dims + 1, x.dims, 3 * sizeof *dims);
    return hr__reshape(m, x, 4, dims);
  }
  return x;
}

/* How many of the last dims the plane of a pool has. */
static int plane_of(hr__maker *m, const hr_operand *x) {
  return x->rank - 1 - hr__pick(m, 2);
}

static void add_pool(hr__maker *m) {
  hr_operand x = planes(m);
  int64_t dims[4], ints[12];
  copy_dims(&x, dims);
  bool is_max = hr__chance(m, 2), fits = true;
  int n = plane_of(m, &x);
  for (int i = 0; i < n; ++i) {
    int64_t *dim = &dims[x.rank - n + i], kernel = 1 + hr__pick(m, 3), stride = 1 + hr__pick(m, 3);
    int64_t padding = hr__pick(m, (int)kernel / 2 + 1), dilation = is_max ? 1 + hr__chance(m, 4) : 1;
    int64_t room = *dim + 2 * padding - dilation * (kernel - 1) - 1;
    ints[i] = kernel, ints[n + i] = stride, ints[2 * n + i] = padding, ints[3 * n + i] = dilation;
    fits &= room >= 0 && dilation <= *dim; /* otherwise a window may be in the padding alone */
    *dim = room < 0 ? 0 : room / stride + 1;
  }
  if (!fits) {
    return;
  }
  hr__draft forward = hr__begin(is_max ? HR_OP_MAX_POOL : HR_OP_AVG_POOL), backward;
  for (int k = 0; k < 4 * n; ++k) {
    hr__int(&forward, ints[k]);
  }
  if (!is_max) {
    hr__int(&forward, hr__pick(m, 2)), hr__int(&forward, hr__chance(m, 3) ? 3 : 0);
  }
  backward = forward;
  backward.op = is_max ? HR_OP_MAX_POOL_BACKWARD : HR_OP_AVG_POOL_BACKWARD;
  hr__in(&forward, x);
  hr_operand y = hr__output(m, x.dtype, x.rank, dims);
  hr__out(&forward, y);
  hr__in(&backward, hr__real_input(m, x.rank, dims));
  if (is_max) {
    hr_operand index = hr__new_output(m, HR_DTYPE_I64, x.rank, dims);
    hr__out(&forward, index), hr__in(&backward, index);
  }
  hr__end(m, &forward);
  if (hr__chance(m, 2)) {
    hr__out(&backward, hr__output(m, x.dtype, x.rank, x.dims));
    hr__end(m, &backward);
  }
}

static void add_adaptive_pool(hr__maker *m) {
  hr_operand x = planes(m);
  int64_t dims[4];
  copy_dims(&x, dims);
  int n = plane_of(m, &x), kind = hr__pick(m, 3);
  for (int d = x.rank - n; d < x.rank; ++d) {
    dims[d] = dims[d] > 64 ? dims[d] / 2 + 1 : 1 + hr__pick(m, 2 * (int)dims[d] + 3);
  }
  static const hr_op ops[] = {HR_OP_ADAPTIVE_AVG_POOL, HR_OP_ADAPTIVE_AVG_POOL_BACKWARD, HR_OP_ADAPTIVE_MAX_POOL};
  hr__draft draft = hr__begin(ops[kind]);
  hr__int(&draft, n);
  hr__in(&draft, kind == 1 ? hr__real_input(m, x.rank, dims) : x);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, kind == 1 ? x.dims : dims));
  if (kind == 2) {
    hr__out(&draft, hr__new_output(m, HR_DTYPE_I64, x.rank, dims));
  }
  hr__end(m, &draft);
}

static void add_resize(hr__maker *m) {
  static const hr_op ops[] = {HR_OP_UPSAMPLE_NEAREST2D, HR_OP_UPSAMPLE_BILINEAR2D};
  hr_operand x = planes(m);
  int64_t dims[4];
  copy_dims(&x, dims);
  for (int d = x.rank - 2; d < x.rank; ++d) {
    dims[d] = dims[d] > 64 ? dims[d] / 2 + 1 : 1 + hr__pick(m, 2 * (int)dims[d] + 3);
  }
  bool is_backward = hr__chance(m, 2);
  hr__draft draft = hr__begin((hr_op)(ops[hr__pick(m, 2)] + (is_backward ? 1 : 0)));
  hr__int(&draft, hr__pick(m, 2));
  hr__scalar(&draft, 0), hr__scalar(&draft, 0);
  hr__in(&draft, is_backward ? hr__real_input(m, x.rank, dims) : x);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, is_backward ? x.dims : dims));
  hr__end(m, &draft);
}

/* Other numbers of elements along one dim. */
static void add_resample(hr__maker *m) {
  hr_operand x = planes(m);
  int64_t dims[4];
  copy_dims(&x, dims);
  int dim = hr__pick(m, x.rank), kind = hr__pick(m, 7);
  bool is_backward = hr__chance(m, 2);
  if (dims[dim] == 0) {
    return;
  }
  dims[dim] = dims[dim] > 64 ? dims[dim] / 2 + 1 : 1 + hr__pick(m, 2 * (int)dims[dim] + 3);
  hr__draft draft = hr__begin(is_backward ? HR_OP_RESAMPLE_BACKWARD : HR_OP_RESAMPLE);
  int64_t taps = 3 * (2 * (x.dims[dim] / dims[dim] + 1)) + 1;
  hr__int(&draft, dim), hr__int(&draft, kind), hr__int(&draft, hr__pick(m, 2)), hr__int(&draft, taps);
  if (is_backward) {
    hr__int(&draft, hr__chance(m, 4) ? 0 : dims[dim]);
  }
  hr__scalar(&draft, 0);
  hr__in(&draft, is_backward ? hr__real_input(m, x.rank, dims) : x);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, is_backward ? x.dims : dims));
  hr__end(m, &draft);
}

static void add_grid_sample(hr__maker *m) {
  int64_t dims[4] = {1 + hr__pick(m, 2), 1 + hr__pick(m, 3), 1 + hr__pick(m, 6), 1 + hr__pick(m, 6)};
  int64_t places[4] = {dims[0], 1 + hr__pick(m, 5), 1 + hr__pick(m, 5), 2};
  int64_t out[4] = {dims[0], dims[1], places[1], places[2]};
  bool is_backward = hr__chance(m, 3);
  hr__draft draft = hr__begin(is_backward ? HR_OP_GRID_SAMPLE_BACKWARD : HR_OP_GRID_SAMPLE);
  hr__int(&draft, hr__pick(m, 3)), hr__int(&draft, hr__pick(m, 3)), hr__int(&draft, hr__pick(m, 2));
  if (is_backward) {
    hr__in(&draft, hr__real_input(m, 4, out));
  }
  hr_operand x = hr__real_input(m, 4, dims), grid = hr__real_input(m, 4, places);
  hr__in(&draft, x), hr__in(&draft, grid);
  if (is_backward) {
    hr__out(&draft, hr__output(m, x.dtype, 4, dims));
    hr__out(&draft, hr__output(m, grid.dtype, 4, places));
  } else {
    hr__out(&draft, hr__output(m, x.dtype, 4, out));
  }
  hr__end(m, &draft);
}

static void add_columns(hr__maker *m) {
  hr_operand x = planes(m);
  int64_t dims[6], ints[8];
  copy_dims(&x, dims);
  bool is_backward = hr__chance(m, 2);
  hr__draft draft = hr__begin(is_backward ? HR_OP_COL2IM : HR_OP_IM2COL);
  int lead = x.rank - 2;
  for (int i = 0; i < 2; ++i) {
    int64_t kernel = 1 + hr__pick(m, 3), stride = 1 + hr__pick(m, 3), padding = hr__pick(m, 2),
            dilation = 1 + hr__chance(m, 4);
    int64_t room = x.dims[lead + i] + 2 * padding - dilation * (kernel - 1) - 1;
    if (room < 0) {
      return;
    }
    ints[i] = kernel, ints[2 + i] = stride, ints[4 + i] = padding, ints[6 + i] = dilation;
    dims[lead + i] = kernel, dims[lead + 2 + i] = room / stride + 1;
  }
  for (int k = 0; k < 8; ++k) {
    hr__int(&draft, ints[k]);
  }
  hr__in(&draft, is_backward ? hr__real_input(m, x.rank + 2, dims) : x);
  hr__out(&draft, hr__output(m, x.dtype, is_backward ? x.rank : x.rank + 2, is_backward ? x.dims : dims));
  hr__end(m, &draft);
}

/* ---- index maps ---- */

static void add_cat(hr__maker *m) {
  hr_operand like = hr__any_tensor(m, false, 1);
  hr__draft draft = hr__begin(HR_OP_CAT);
  int dim = hr__pick(m, like.rank), count = 1 + hr__pick(m, 4);
  int64_t dims[HR_RANK_MAX], total = 0;
  copy_dims(&like, dims);
  for (int i = 0; i < count; ++i) {
    dims[dim] = hr__chance(m, 2) ? like.dims[dim] : hr__pick(m, 5);
    hr__in(&draft, hr__input(m, hr__chance(m, 3) ? HR_DTYPE_NONE : like.dtype, like.rank, dims));
    total += dims[dim];
  }
  dims[dim] = total;
  hr__int(&draft, dim);
  hr__out(&draft, hr__output(m, like.dtype, like.rank, dims));
  hr__end(m, &draft);
}

static void add_pad(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, false, 1);
  hr__draft draft = hr__begin(HR_OP_PAD);
  int64_t dims[HR_RANK_MAX], before[HR_RANK_MAX], after[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    before[d] = hr__chance(m, 2) ? 0 : hr__pick(m, 4) - 1, after[d] = hr__chance(m, 2) ? 0 : hr__pick(m, 4) - 1;
    if (x.dims[d] + before[d] + after[d] < 0) {
      before[d] = after[d] = 0;
    }
    dims[d] = x.dims[d] + before[d] + after[d];
    draft.ints[d] = before[d], draft.ints[x.rank + d] = after[d];
  }
  draft.int_count = 2 * x.rank;
  hr__scalar(&draft, hr__chance(m, 2) ? 0 : -2.5);
  hr__in(&draft, x);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, dims));
  hr__end(m, &draft);
}

static void add_pad_border(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, true, 1);
  int kind = hr__pick(m, 4); /* reflect, replicate, symmetric, wrap */
  bool is_backward = hr__chance(m, 2);
  hr__draft draft = hr__begin(is_backward ? HR_OP_PAD_BORDER_BACKWARD : HR_OP_PAD_BORDER);
  int64_t dims[HR_RANK_MAX];
  hr__int(&draft, kind);
  for (int d = 0; d < x.rank; ++d) {
    int64_t size = x.dims[d], most = size == 0 ? 0 : kind == 0 ? size - 1 : kind == 1 ? 4 : size;
    most = most < 4 ? most : 4;
    int64_t before = hr__chance(m, 2) ? 0 : hr__pick(m, (int)most + 1), after = hr__pick(m, (int)most + 1);
    dims[d] = x.dims[d] + before + after;
    draft.ints[1 + d] = before, draft.ints[1 + x.rank + d] = after;
  }
  draft.int_count = 2 * x.rank + 1;
  hr__in(&draft, is_backward ? hr__real_input(m, x.rank, dims) : x);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, is_backward ? x.dims : dims));
  hr__end(m, &draft);
}

static void add_index_select(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, false, 1);
  int dim = hr__pick(m, x.rank);
  int64_t dims[HR_RANK_MAX], count = 1 + hr__pick(m, 12);
  copy_dims(&x, dims);
  dims[dim] = count;
  hr__draft draft = hr__begin(HR_OP_INDEX_SELECT);
  hr__in(&draft, x), hr__in(&draft, hr__new_index(m, 1, &count, x.dims[dim]));
  hr__int(&draft, dim);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, dims));
  hr__end(m, &draft);
}

static void add_gather(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, false, 1);
  int dim = hr__pick(m, x.rank);
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = d == dim ? 1 + hr__pick(m, 6) : x.dims[d] - (x.dims[d] > 1 && hr__chance(m, 4));
  }
  hr__draft draft = hr__begin(HR_OP_GATHER);
  hr__in(&draft, x), hr__in(&draft, hr__new_index(m, x.rank, dims, x.dims[dim]));
  hr__int(&draft, dim);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, dims));
  hr__end(m, &draft);
}

/* Elements of a temporary made only by element-wise rows: x - a - b, as in a loss; it may be read as a whole, too. */
static void add_picks(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_SUB, HR_OP_SUB, HR_OP_MUL, HR_OP_ADD, HR_OP_NEG, HR_OP_EXP};
  hr_operand x = hr__any_tensor(m, true, 1);
  int dim = hr__pick(m, x.rank);
  int64_t dims[HR_RANK_MAX], picked[HR_RANK_MAX];
  copy_dims(&x, dims);
  copy_dims(&x, picked);
  picked[dim] = 1;
  for (int k = 1 + hr__pick(m, 3); k > 0; --k) {
    hr__draft row = hr__begin(HR__PICK_FROM(m, pool));
    hr__in(&row, x);
    if (hr_op_table(row.op)->arity == 2) {
      hr__in(&row, hr__spreadable(m, x.rank, dims));
    }
    x = hr__apart(m, hr__real_dtype(m), x.rank, dims, true, true);
    hr__out(&row, x);
    hr__end(m, &row);
  }
  hr_operand from = hr__chance(m, 3) && dims[dim] > 1 ? hr__slice(m, x, dim, 1, dims[dim] - 1, 1) : x;
  hr__draft draft = hr__begin(HR_OP_GATHER);
  hr__in(&draft, from), hr__in(&draft, hr__new_index(m, x.rank, picked, from.dims[dim]));
  hr__int(&draft, dim);
  hr__out(&draft, hr__output(m, x.dtype, x.rank, picked));
  hr__end(m, &draft);
  if (hr__chance(m, 2)) {
    hr__draft reader = hr__begin(HR_OP_NEG);
    hr__in(&reader, x);
    hr__out(&reader, hr__output(m, x.dtype, x.rank, dims));
    hr__end(m, &reader);
  }
}

static void add_scatter(hr__maker *m) {
  hr_operand like = hr__any_tensor(m, false, 1);
  hr_operand y = hr__target(m, like.dtype, like.rank, like.dims);
  int dim = hr__pick(m, y.rank);
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < y.rank; ++d) {
    dims[d] = d == dim ? 1 + hr__pick(m, 6) : y.dims[d] - (y.dims[d] > 1 && hr__chance(m, 4));
  }
  hr__draft draft = hr__begin(HR_OP_SCATTER);
  hr__in(&draft, hr__new_index(m, y.rank, dims, y.dims[dim]));
  hr__in(&draft, hr__chance(m, 4) ? hr__some_number(m) : hr__input(m, y.dtype, y.rank, dims));
  hr__int(&draft, dim), hr__int(&draft, y.dtype == HR_DTYPE_BOOL ? 0 : hr__pick(m, 5)), hr__int(&draft, 0);
  hr__out(&draft, y);
  hr__end(m, &draft);
}

static void add_index_add(hr__maker *m) {
  hr_operand like = hr__any_tensor(m, true, 1);
  hr_operand y = hr__target(m, like.dtype, like.rank, like.dims);
  int dim = hr__pick(m, y.rank);
  int64_t dims[HR_RANK_MAX], count = 1 + hr__pick(m, 9);
  copy_dims(&y, dims);
  dims[dim] = count;
  hr__draft draft = hr__begin(HR_OP_INDEX_ADD);
  hr__in(&draft, hr__new_index(m, 1, &count, y.dims[dim])), hr__in(&draft, hr__real_input(m, y.rank, dims));
  hr__int(&draft, dim);
  hr__scalar(&draft, hr__chance(m, 2) ? 1 : -0.5);
  hr__out(&draft, y);
  hr__end(m, &draft);
}

/* x[i, :, j] and its counterpart that writes. */
static void add_index(hr__maker *m) {
  bool is_put = hr__chance(m, 2);
  hr_operand x = hr__any_tensor(m, false, 1);
  x = is_put ? hr__target(m, x.dtype, x.rank, x.dims) : x;
  int mask = 1 + hr__pick(m, (1 << x.rank) - 1), index_rank = 1 + hr__pick(m, 2), kept = 0, rank = 0;
  int position = x.rank - __builtin_popcount((unsigned)mask);
  position = hr__pick(m, position + 1);
  int64_t common[2] = {1 + hr__pick(m, 5), 1 + hr__pick(m, 3)}, dims[2 * HR_RANK_MAX];
  hr__draft draft = hr__begin(is_put ? HR_OP_INDEX_PUT : HR_OP_INDEX);
  hr__int(&draft, mask), hr__int(&draft, position);
  draft.input_count = 1;
  for (int d = 0; d < x.rank; ++d) {
    if ((mask >> d & 1) != 0) {
      hr__in(&draft, hr__new_index(m, index_rank, common, x.dims[d]));
    } else {
      dims[kept < position ? kept : kept + index_rank] = x.dims[d];
      ++kept;
    }
  }
  rank = kept + index_rank;
  memcpy(dims + position, common, (size_t)index_rank * sizeof *common);
  if (rank > HR_RANK_MAX || product(0, rank, dims) > 30000) {
    return;
  }
  if (is_put) {
    draft.inputs[0] = hr__input(m, x.dtype, rank, dims);
    hr__int(&draft, x.dtype != HR_DTYPE_BOOL && hr__chance(m, 2));
    hr__out(&draft, x);
  } else {
    draft.inputs[0] = x;
    hr__out(&draft, hr__output(m, x.dtype, rank, dims));
  }
  hr__end(m, &draft);
}

static void add_embedding_backward(hr__maker *m) {
  int64_t width = 1 + hr__pick(m, 9), rows = 1 + hr__pick(m, 12), count = 1 + hr__pick(m, 20);
  int64_t dims[2] = {count, width}, weight[2] = {rows, width};
  hr__draft draft = hr__begin(HR_OP_EMBEDDING_BACKWARD);
  hr_operand dy = hr__real_input(m, 2, dims);
  hr__in(&draft, dy), hr__in(&draft, hr__new_index(m, 1, &count, rows));
  hr__int(&draft, hr__chance(m, 2) ? -1 : 0), hr__int(&draft, hr__chance(m, 3));
  hr__out(&draft, hr__output(m, dy.dtype, 2, weight));
  hr__end(m, &draft);
}

/* Segments that follow each other, with rows of none between them, rarely one too long. */
static void add_segments(hr__maker *m) {
  int64_t count = 1 + hr__pick(m, 9), columns = 1 + hr__pick(m, 7), length = 0;
  hr_operand begin = hr__apart(m, HR_DTYPE_I64, 1, &count, false, false);
  hr_operand end = hr__apart(m, HR_DTYPE_I64, 1, &count, false, false);
  int64_t *from = m->g->memory[begin.index], *to = m->g->memory[end.index];
  for (int64_t s = 0; s < count; ++s) {
    from[s] = length + (hr__chance(m, 4) ? hr__pick(m, 3) : 0);
    length = to[s] = from[s] + hr__pick(m, 6);
  }
  bool is_listed = hr__chance(m, 2);
  length += hr__pick(m, 2);
  int64_t dims[2] = {is_listed ? 1 + hr__pick(m, 9) : length, columns}, made[2] = {count, columns};
  to[count - 1] += hr__chance(m, 40) ? 2 : 0;
  hr_operand x = hr__real_input(m, 2, dims);
  hr__draft draft = hr__begin(HR_OP_SEGMENTS);
  hr__in(&draft, x), hr__in(&draft, begin), hr__in(&draft, end);
  hr__in(&draft, is_listed ? hr__new_index(m, 1, &length, dims[0]) : hr__absent());
  hr__in(&draft, hr__chance(m, 2) ? hr__input(m, x.dtype, 1, &length) : hr__absent());
  hr__int(&draft, x.dtype == HR_DTYPE_BOOL ? HR_STORE_MAX : HR_STORE_ADD + hr__pick(m, 4));
  hr__int(&draft, is_listed ? hr__pick(m, 3) - 1 : -1);
  hr__scalar(&draft, hr__chance(m, 2) ? 0 : 1);
  hr__out(&draft, hr__output(m, x.dtype, 2, made));
  hr__end(m, &draft);
}

static void add_triangle_or_sum(hr__maker *m) {
  bool is_sum = hr__chance(m, 2);
  hr_operand x = hr__any_tensor(m, is_sum, 2);
  static const hr_op scans[] = {HR_OP_CUMSUM, HR_OP_CUMSUM, HR_OP_CUMPROD};
  hr__draft draft = hr__begin(is_sum ? HR__PICK_FROM(m, scans) : HR_OP_TRI);
  hr__in(&draft, x);
  if (is_sum) {
    int dim = hr__pick(m, x.rank);
    if (x.dims[dim] > 200) {
      return; /* its loops are quadratic */
    }
    hr__int(&draft, dim);
  } else {
    hr__int(&draft, hr__pick(m, 2));
    hr__scalar_integer(&draft, hr__pick(m, 5) - 2);
  }
  hr__out(&draft, hr__output(m, x.dtype, x.rank, x.dims));
  hr__end(m, &draft);
}

/* ---- random numbers ---- */

static void add_random(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_DROPOUT,   HR_OP_DROPOUT,    HR_OP_UNIFORM,    HR_OP_NORMAL,
                               HR_OP_BERNOULLI, HR_OP_RANDOM_INT, HR_OP_EXPONENTIAL};
  hr_op op = HR__PICK_FROM(m, pool);
  hr__draft draft = hr__begin(op);
  hr_operand x = hr__any_tensor(m, true, 1);
  hr_dtype dtype = op == HR_OP_RANDOM_INT && hr__chance(m, 2) ? HR_DTYPE_I64 : x.dtype;
  if (op == HR_OP_DROPOUT) {
    hr__in(&draft, x);
    hr__scalar(&draft, 0.3);
  } else if (op == HR_OP_UNIFORM) {
    hr__scalar(&draft, -1), hr__scalar(&draft, 2);
  } else if (op == HR_OP_NORMAL) {
    hr__in(&draft, maybe(m, x));
    hr__scalar(&draft, 0.5), hr__scalar(&draft, 2);
  } else if (op == HR_OP_RANDOM_INT) {
    hr__scalar_integer(&draft, -3), hr__scalar_integer(&draft, 1000);
  } else {
    hr__scalar(&draft, 0.4);
  }
  hr__scalar_integer(&draft, 1234 + hr__pick(m, 3)), hr__scalar_integer(&draft, hr__pick(m, 4));
  hr__out(&draft, hr__output(m, dtype, x.rank, x.dims));
  if (op == HR_OP_DROPOUT) {
    hr__out(&draft, maybe_output(m, HR_DTYPE_BOOL, x.rank, x.dims));
  }
  hr__end(m, &draft);
}

/* ---- contractions ---- */

static void add_matmul(hr__maker *m) {
  int64_t rows = 1 + hr__pick(m, 20), inner = 1 + hr__pick(m, 40), columns = 1 + hr__pick(m, 20);
  int64_t batch = hr__chance(m, 2) ? 1 : 3;
  int rank = batch > 1 ? 3 : 2;
  int64_t a[3] = {batch, rows, inner}, b[3] = {batch, inner, columns}, y[3] = {batch, rows, columns};
  hr__draft draft = hr__begin(HR_OP_MATMUL);
  hr_operand left = hr__real_input(m, rank, a + 3 - rank);
  hr__in(&draft, left);
  hr__in(&draft, hr__real_input(m, hr__chance(m, 3) ? 2 : rank, b + (rank == 2 ? 1 : 0)));
  if (draft.inputs[1].rank == 2 && rank == 3) {
    draft.inputs[1] = hr__real_input(m, 2, b + 1);
  }
  hr__in(&draft, maybe(m, hr__real_input(m, 1, &columns)));
  hr__out(&draft, hr__output(m, left.dtype, rank, y + 3 - rank));
  hr__end(m, &draft);
}

/* A product of 16-bit numbers that dies, and another one of it or of its transpose; later operations may read it, too.
 */
static void add_narrow_products(hr__maker *m) {
  static const int swap[2] = {1, 0};
  hr_dtype dtype = hr__chance(m, 2) ? HR_DTYPE_F16 : HR_DTYPE_BF16;
  int64_t rows = 2 + hr__pick(m, 12), columns = 5 + hr__pick(m, 36), inner = 1 + hr__pick(m, 8);
  bool is_turned = hr__chance(m, 2);
  hr_operand y = hr__apart(m, dtype, 2, (const int64_t[]){rows, columns}, true, true);
  hr_operand left = is_turned ? hr__permute(m, y, swap) : y;
  const hr_operand factors[2][2] = {{hr__new_tensor(m, dtype, 2, (const int64_t[]){rows, inner}),
                                     hr__new_tensor(m, dtype, 2, (const int64_t[]){inner, columns})},
                                    {left, hr__new_tensor(m, dtype, 2, (const int64_t[]){left.dims[1], inner})}};
  const hr_operand out = hr__new_output(m, dtype, 2, (const int64_t[]){left.dims[0], inner});
  for (int k = 0; k < 2; ++k) {
    hr__draft draft = hr__begin(HR_OP_MATMUL);
    hr__in(&draft, factors[k][0]);
    hr__in(&draft, factors[k][1]);
    hr__in(&draft, hr__absent());
    hr__out(&draft, k == 0 ? y : out);
    hr__end(m, &draft);
  }
  hr__add_view(m, &y, true);
}

static void add_conv(hr__maker *m) {
  int64_t groups = 1 + hr__chance(m, 3), in = groups * (1 + hr__pick(m, 2)), out = groups * (1 + hr__pick(m, 3));
  int64_t x[4] = {1 + hr__pick(m, 2), in, 3 + hr__pick(m, 6), 3 + hr__pick(m, 6)};
  int64_t w[4] = {out, in / groups, 1 + hr__pick(m, 3), 1 + hr__pick(m, 3)};
  int64_t y[4] = {x[0], out}, stride[2], padding[2];
  int algorithm = hr__pick(m, 3);
  hr__draft draft = hr__begin(algorithm == 0   ? HR_OP_CONV
                              : algorithm == 1 ? HR_OP_CONV_BACKWARD_DATA
                                               : HR_OP_CONV_BACKWARD_WEIGHT);
  for (int i = 0; i < 2; ++i) {
    stride[i] = 1 + hr__pick(m, 2), padding[i] = hr__pick(m, 2);
    y[2 + i] = (x[2 + i] + 2 * padding[i] - w[2 + i]) / stride[i] + 1;
  }
  hr__int(&draft, 2);
  for (int i = 0; i < 6; ++i) {
    hr__int(&draft, i < 2 ? stride[i] : i < 4 ? padding[i - 2] : 1);
  }
  hr__int(&draft, groups);
  hr__in(&draft, hr__real_input(m, 4, algorithm == 1 ? y : x));
  hr__in(&draft, hr__real_input(m, 4, algorithm == 2 ? y : w));
  if (algorithm == 0) {
    hr__in(&draft, maybe(m, hr__real_input(m, 1, &out)));
  }
  hr__out(&draft, hr__output(m, HR_DTYPE_F32, 4, algorithm == 0 ? y : algorithm == 1 ? x : w));
  hr__end(m, &draft);
}

/* ---- cells, attention ---- */

static hr_operand matrix(hr__maker *m, int64_t rows, int64_t columns) {
  return hr__input(m, HR_DTYPE_F32, 2, (int64_t[]){rows, columns});
}
static hr_operand new_matrix(hr__maker *m, int64_t rows, int64_t columns) {
  return hr__new_output(m, HR_DTYPE_F32, 2, (int64_t[]){rows, columns});
}

static void add_cell(hr__maker *m) {
  int64_t n = 1 + hr__pick(m, 9), h = 1 + hr__pick(m, 12);
  int kind = hr__pick(m, 4);
  bool is_lstm = kind < 2;
  int64_t gates = is_lstm ? 4 * h : 3 * h;
  hr__draft draft = hr__begin(kind == 0   ? HR_OP_LSTM_CELL
                              : kind == 1 ? HR_OP_LSTM_CELL_BACKWARD
                              : kind == 2 ? HR_OP_GRU_CELL
                                          : HR_OP_GRU_CELL_BACKWARD);
  if (kind == 0 || kind == 2) {
    hr__in(&draft, matrix(m, n, gates)), hr__in(&draft, matrix(m, n, gates)), hr__in(&draft, matrix(m, n, h));
    for (int i = 0; i < 2; ++i) {
      hr__in(&draft, maybe(m, hr__input(m, HR_DTYPE_F32, 1, &gates)));
    }
    hr__out(&draft, new_matrix(m, n, h));
    if (is_lstm) {
      hr__out(&draft, new_matrix(m, n, h));
    }
    hr__out(&draft, new_matrix(m, n, is_lstm ? 4 * h : 5 * h));
  } else if (is_lstm) {
    hr__in(&draft, maybe(m, matrix(m, n, h))), hr__in(&draft, maybe(m, matrix(m, n, h)));
    hr__in(&draft, matrix(m, n, h)), hr__in(&draft, matrix(m, n, h)), hr__in(&draft, matrix(m, n, 4 * h));
    hr__out(&draft, new_matrix(m, n, 4 * h)), hr__out(&draft, new_matrix(m, n, h));
  } else {
    hr__in(&draft, matrix(m, n, h)), hr__in(&draft, matrix(m, n, 5 * h));
    hr__out(&draft, new_matrix(m, n, 3 * h)), hr__out(&draft, new_matrix(m, n, 3 * h));
    hr__out(&draft, new_matrix(m, n, h));
  }
  hr__end(m, &draft);
}

static hr_operand steps(hr__maker *m, int64_t count, int64_t rows, int64_t columns) {
  return hr__input(m, HR_DTYPE_F32, 3, (int64_t[]){count, rows, columns});
}
static hr_operand new_steps(hr__maker *m, int64_t count, int64_t rows, int64_t columns) {
  return hr__new_output(m, HR_DTYPE_F32, 3, (int64_t[]){count, rows, columns});
}

static void add_layer(hr__maker *m) {
  int64_t t = 1 + hr__pick(m, 3), n = 1 + hr__pick(m, 4), h = 1 + hr__pick(m, 6);
  bool is_lstm = hr__chance(m, 2), is_backward = hr__chance(m, 2);
  int64_t gates = is_lstm ? 4 * h : 3 * h, kept = is_lstm ? 4 * h : 5 * h;
  hr__draft draft = hr__begin(is_backward ? is_lstm ? HR_OP_LSTM_BACKWARD : HR_OP_GRU_BACKWARD
                              : is_lstm   ? HR_OP_LSTM
                                          : HR_OP_GRU);
  hr__int(&draft, hr__pick(m, 2));
  if (is_backward) {
    hr__in(&draft, maybe(m, steps(m, t, n, h))), hr__in(&draft, maybe(m, matrix(m, n, h)));
    if (is_lstm) {
      hr__in(&draft, maybe(m, matrix(m, n, h))), hr__in(&draft, matrix(m, n, h)), hr__in(&draft, steps(m, t, n, h));
    }
    hr__in(&draft, steps(m, t, n, kept)), hr__in(&draft, matrix(m, gates, h));
    hr__out(&draft, new_steps(m, t, n, gates));
    hr__out(&draft, is_lstm ? new_matrix(m, n, h) : new_steps(m, t, n, gates));
    hr__out(&draft, new_matrix(m, n, h));
  } else {
    hr__in(&draft, steps(m, t, n, gates)), hr__in(&draft, matrix(m, n, h));
    hr__in(&draft, is_lstm ? matrix(m, n, h) : matrix(m, gates, h));
    hr__in(&draft, is_lstm ? matrix(m, gates, h) : maybe(m, hr__input(m, HR_DTYPE_F32, 1, &gates)));
    hr__out(&draft, new_steps(m, t, n, h));
    hr__out(&draft, new_steps(m, t, n, is_lstm ? h : kept));
    hr__out(&draft, is_lstm ? new_steps(m, t, n, kept) : new_matrix(m, n, h));
  }
  hr__end(m, &draft);
}

static void add_attention(hr__maker *m) {
  int64_t heads = 1 + hr__pick(m, 3), rows = 1 + hr__pick(m, 8), keys = 1 + hr__pick(m, 8);
  int64_t width = 1 + hr__pick(m, 6), values = 1 + hr__pick(m, 6);
  int64_t q[4] = {1, heads, rows, width}, k[4] = {1, heads, keys, width}, v[4] = {1, heads, keys, values};
  int64_t y[4] = {1, heads, rows, values}, mask[2] = {rows, keys}, lse[3] = {1, heads, rows};
  bool is_backward = hr__chance(m, 2);
  hr__draft draft = hr__begin(is_backward ? HR_OP_ATTENTION_BACKWARD : HR_OP_ATTENTION);
  hr__int(&draft, hr__pick(m, 2));
  hr__scalar(&draft, 0.5);
  if (is_backward) {
    hr__in(&draft, hr__input(m, HR_DTYPE_F32, 4, y));
  }
  hr__in(&draft, hr__input(m, HR_DTYPE_F32, 4, q)), hr__in(&draft, hr__input(m, HR_DTYPE_F32, 4, k));
  hr__in(&draft, hr__input(m, HR_DTYPE_F32, 4, v));
  hr__in(&draft, maybe(m, hr__input(m, hr__chance(m, 2) ? HR_DTYPE_BOOL : HR_DTYPE_F32, 2, mask)));
  if (is_backward) {
    hr__in(&draft, hr__input(m, HR_DTYPE_F32, 4, y)), hr__in(&draft, hr__input(m, HR_DTYPE_F32, 3, lse));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 4, q));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 4, k));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 4, v));
  } else {
    hr__out(&draft, hr__output(m, HR_DTYPE_F32, 4, y));
    hr__out(&draft, maybe_output(m, HR_DTYPE_F32, 3, lse));
  }
  hr__end(m, &draft);
}

/* ---- optimizers ---- */

static void add_optimizer(hr__maker *m) {
  enum { COUNT_MAX = 3 };
  bool is_adam = hr__chance(m, 2), has_more = hr__chance(m, 2);
  int n = 1 + hr__pick(m, COUNT_MAX), lists = is_adam ? 3 + has_more : 1 + has_more, rank[COUNT_MAX];
  int64_t dims[COUNT_MAX][3];
  hr__draft draft = hr__begin(is_adam ? HR_OP_ADAM : HR_OP_SGD);
  for (int i = 0; i < n; ++i) {
    rank[i] = hr__pick(m, 3);
    dims[i][0] = 1 + hr__pick(m, 40), dims[i][1] = 1 + hr__pick(m, 60);
  }
  for (int i = 0; i < n; ++i) {
    hr__in(&draft, hr__real_input(m, rank[i], dims[i]));
  }
  for (int i = 0; i < n && is_adam; ++i) {
    hr__in(&draft, hr__new_tensor(m, HR_DTYPE_F32, 0, NULL));
    *(float *)m->g->memory[draft.inputs[n + i].index] = (float)(1 + hr__pick(m, 5));
  }
  hr_dtype dtype = hr__chance(m, 4) ? HR_DTYPE_BF16 : HR_DTYPE_F32;
  for (int list = 0; list < lists; ++list) {
    for (int i = 0; i < n; ++i) {
      hr__out(&draft, hr__new_tensor(m, dtype, rank[i], dims[i]));
    }
  }
  if (is_adam) {
    hr__int(&draft, hr__pick(m, 2)), hr__int(&draft, hr__pick(m, 2)), hr__int(&draft, has_more);
    hr__scalar(&draft, 0.01), hr__scalar(&draft, 0.9), hr__scalar(&draft, 0.99), hr__scalar(&draft, 0.1);
    hr__scalar(&draft, 1e-8);
  } else {
    hr__int(&draft, hr__pick(m, 2)), hr__int(&draft, hr__pick(m, 2)), hr__int(&draft, hr__pick(m, 2));
    hr__int(&draft, has_more);
    hr__scalar(&draft, 0.1), hr__scalar(&draft, 0.9), hr__scalar(&draft, 0.01), hr__scalar(&draft, 0.1);
  }
  hr__end(m, &draft);
}

void hr__add_composite(hr__maker *m) {
  static void (*const makers[])(hr__maker *) = {add_moments,
                                                add_softmax,
                                                add_softmax,
                                                add_layer_norm,
                                                add_layer_norm,
                                                add_group_norm,
                                                add_batch_norm,
                                                add_batch_norm,
                                                add_loss,
                                                add_nll_loss,
                                                add_pool,
                                                add_pool,
                                                add_resize,
                                                add_adaptive_pool,
                                                add_resample,
                                                add_grid_sample,
                                                add_columns,
                                                add_cat,
                                                add_pad,
                                                add_pad_border,
                                                add_index_select,
                                                add_gather,
                                                add_picks,
                                                add_picks,
                                                add_scatter,
                                                add_index_add,
                                                add_index,
                                                add_random,
                                                add_random,
                                                add_embedding_backward,
                                                add_triangle_or_sum,
                                                add_segments,
                                                add_matmul,
                                                add_narrow_products,
                                                add_conv,
                                                add_cell,
                                                add_layer,
                                                add_attention,
                                                add_optimizer};
  HR__PICK_FROM(m, makers)(m);
}
