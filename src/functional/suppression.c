/* suppression.c: non-maximum suppression, on the host: which boxes stay depends on all better ones, in order. Boxes and
 * scores are read, so a call waits; inferences and captures fail. The order and the comparisons are those of ONNX's
 * NonMaxSuppression.
 */
#include <math.h>
#include <stdlib.h>

#include "base/allocator.h"
#include "functional/formula.h"

typedef struct candidate {
  double score;
  int64_t box;
} candidate;

typedef struct suppression {
  int64_t batches, classes, boxes, most;
  double overlap, least;
  bool has_least, is_center;
  const double *corners, *scores; /* [batches, boxes, 4], [batches, classes, boxes] */
  candidate *candidates, *kept;   /* of one class */
  int64_t *found, count, room;    /* triples: batch, class, box */
} suppression;

/* The best score first; of equal ones the first box. */
static int compare(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  return x->score > y->score ? -1 : x->score < y->score ? 1 : (x->box > y->box) - (x->box < y->box);
}

/* The two ends of a box along y (0) or x (1). */
static void ends_of(const suppression *s, const double *box, int along, double out[2]) {
  double first = box[along], second = box[along + 2];
  if (s->is_center) { /* x, y, width, height */
    double middle = box[1 - along], half = box[3 - along] / 2;
    first = middle - half, second = middle + half;
  }
  out[0] = first < second ? first : second, out[1] = first < second ? second : first;
}

/* Intersection over union; 0 for boxes without area. */
static double overlap_of(const suppression *s, const double *a, const double *b) {
  double shared = 1, areas[2] = {1, 1};
  for (int along = 0; along < 2; ++along) {
    double x[2], y[2];
    ends_of(s, a, along, x);
    ends_of(s, b, along, y);
    double low = x[0] > y[0] ? x[0] : y[0], high = x[1] < y[1] ? x[1] : y[1];
    shared *= high > low ? high - low : 0;
    areas[0] *= x[1] - x[0], areas[1] *= y[1] - y[0];
  }
  return areas[0] > 0 && areas[1] > 0 && shared > 0 ? shared / (areas[0] + areas[1] - shared) : 0;
}

static hr_status keep(suppression *s, int64_t batch, int64_t class, int64_t box) {
  if (s->count == s->room) {
    int64_t room = 2 * s->room + 64;
    int64_t *grown = hr_realloc(s->found, (size_t)room * 3 * sizeof *grown);
    if (grown == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "non_max_suppression: no memory for %lld boxes",
                            (long long)room);
    }
    s->found = grown, s->room = room;
  }
  int64_t *triple = s->found + 3 * s->count++;
  triple[0] = batch, triple[1] = class, triple[2] = box;
  return HR_OK;
}

/* Candidates of a class in order: those that overlap no kept one. */
static hr_status select_class(suppression *s, int64_t batch, int64_t class) {
  const double *scores = s->scores + (batch * s->classes + class) * s->boxes,
               *boxes = s->corners + batch * s->boxes * 4;
  int64_t count = 0, kept = 0;
  for (int64_t i = 0; i < s->boxes; ++i) {
    if (s->has_least ? scores[i] > s->least : !isnan(scores[i])) {
      s->candidates[count++] = (candidate){scores[i], i};
    }
  }
  qsort(s->candidates, (size_t)count, sizeof *s->candidates, compare);
  for (int64_t i = 0; i < count && kept < s->most; ++i) {
    bool is_free = true;
    for (int64_t j = 0; is_free && j < kept; ++j) {
      is_free = overlap_of(s, boxes + 4 * s->candidates[i].box, boxes + 4 * s->kept[j].box) <= s->overlap;
    }
    if (is_free) {
      s->kept[kept++] = s->candidates[i];
      HR_RETURN_IF_ERROR(keep(s, batch, class, s->candidates[i].box));
    }
  }
  return HR_OK;
}

static hr_status select_all(suppression *s) {
  for (int64_t batch = 0; batch < s->batches; ++batch) {
    for (int64_t class = 0; class < s->classes; ++class) {
      HR_RETURN_IF_ERROR(select_class(s, batch, class));
    }
  }
  return HR_OK;
}

/* ---- tensors ---- */

/* A copy of x's elements in f64 on the host, which the caller frees; NULL after a failure. */
static double *read_numbers(hr__formula *f, const hr_tensor *x) {
  const hr_tensor *wide = hr__dense(f, hr__as_dtype(f, x, HR_DTYPE_F64));
  if (hr__formula_failed(f)) {
    return NULL;
  }
  double *numbers = hr_malloc(((size_t)hr_tensor_count(wide) + 1) * sizeof *numbers);
  if (numbers == NULL) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory", f->call->row->name));
    return NULL;
  }
  hr_view view = hr_tensor_view(wide);
  hr__formula_fail(f, hr_stream_read(f->call->stream, &view, numbers));
  return numbers;
}

static const hr_tensor *written(hr__formula *f, const suppression *s) {
  const int64_t dims[2] = {s->count, 3};
  const hr_tensor *y = hr__copied(f, hr__integer(f, 0), HR_DTYPE_I64, 2, dims);
  if (!hr__formula_failed(f) && s->count > 0) {
    hr_view view = hr_tensor_view(y);
    hr__formula_fail(f, hr_stream_write(f->call->stream, &view, s->found));
  }
  return y;
}

static hr_status read_suppression(const hr__function_call *c, suppression *s) {
  enum { MOST, OVERLAP, LEAST, CENTER };
  const hr_tensor *boxes = c->inputs[0], *scores = c->inputs[1];
  hr_scalar overlap = hr__real_attribute(c, OVERLAP), least = hr__real_attribute(c, LEAST);
  int64_t most = hr__int_attribute(c, MOST);
  bool fits = boxes->rank == 3 && scores->rank == 3 && boxes->dims[2] == 4 && boxes->dims[0] == scores->dims[0] &&
              boxes->dims[1] == scores->dims[2];
  if (!fits || hr_dtype_is_complex(boxes->dtype) || hr_dtype_is_complex(scores->dtype)) {
    char dims[2][HR__SHAPE_TEXT];
    return HR__CALL_FAIL(c, "boxes %s and scores %s, expected [B, N, 4] and [B, C, N]",
                         hr__shape_text(boxes->rank, boxes->dims, dims[0]),
                         hr__shape_text(scores->rank, scores->dims, dims[1]));
  }
  *s = (suppression){.batches = scores->dims[0],
                     .classes = scores->dims[1],
                     .boxes = scores->dims[2],
                     .most = most < 0 ? INT64_MAX : most,
                     .overlap = hr_scalar_as_f64(&overlap),
                     .least = hr_scalar_as_f64(&least),
                     .has_least = hr__given_attribute(c, LEAST) != NULL,
                     .is_center = hr__int_attribute(c, CENTER) != 0};
  return c->stream != NULL
             ? HR_OK
             : hr_status_make(HR_STATUS_UNIMPLEMENTED,
                              "%s: the result's dims depend on data, which an inference does not read", c->row->name);
}

hr_status hr__emit_non_max_suppression(const hr__function_call *c) {
  suppression s = {0};
  HR_RETURN_IF_ERROR(read_suppression(c, &s));
  hr__formula f;
  hr__formula_begin(&f, c);
  double *corners = read_numbers(&f, c->inputs[0]), *scores = read_numbers(&f, c->inputs[1]);
  candidate *places = hr_malloc(((size_t)s.boxes + 1) * 2 * sizeof *places);
  if (places == NULL) {
    hr__formula_fail(&f, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory", c->row->name));
  }
  const hr_tensor *y = c->inputs[0];
  if (!hr__formula_failed(&f)) {
    s.corners = corners, s.scores = scores, s.candidates = places, s.kept = places + s.boxes + 1;
    hr__formula_fail(&f, select_all(&s));
    y = written(&f, &s);
  }
  hr_free(corners);
  hr_free(scores);
  hr_free(places);
  hr_free(s.found);
  return hr__formula_end(&f, y);
}
