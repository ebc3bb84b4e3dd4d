/* host.c: the provider of library rows that are written in this folder, and of composites whose loops are slow. No
 * library is opened.
 */
#include "providers/host/host.h"

static const hr__library_row rows[] = {
    {HR_OP_SORT, hr__sort_supports, hr__sort_scratch, hr__sort_run, NULL},
    {HR_OP_TOPK, hr__sort_supports, hr__topk_scratch, hr__topk_run, NULL},
    {HR_OP_KTH, hr__line_supports, hr__line_scratch, hr__kth_run, NULL},
    {HR_OP_MODE, hr__line_supports, hr__line_scratch, hr__mode_run, NULL},
    {HR_OP_CUMMAX, hr__line_supports, NULL, hr__cummax_run, NULL},
    {HR_OP_CUMMIN, hr__line_supports, NULL, hr__cummin_run, NULL},
    {HR_OP_CUMSUM, hr__scan_supports, NULL, hr__scan_run, NULL},
    {HR_OP_CUMPROD, hr__scan_supports, NULL, hr__scan_run, NULL},
    {HR_OP_LOGCUMSUMEXP, hr__scan_supports, NULL, hr__scan_run, NULL},
    {HR_OP_SEGMENTS, hr__segments_supports, NULL, hr__segments_run, NULL},
    {HR_OP_SEARCH, hr__search_supports, NULL, hr__search_run, NULL},
    {HR_OP_UNIQUE, hr__unique_supports, hr__unique_scratch, hr__unique_run, NULL},
    {HR_OP_PLACES, hr__places_supports, hr__places_scratch, hr__places_run, NULL},
    {HR_OP_LU_PERMUTATION, hr__permutation_supports, NULL, hr__permutation_run, NULL},
    {HR_OP_FFT, hr__fft_supports, hr__fft_scratch, hr__fft_run, hr__fft_prepare},
    {HR_OP_FFT_REAL, hr__fft_supports, hr__fft_scratch, hr__fft_run, hr__fft_prepare},
    {HR_OP_FFT_HALF, hr__fft_supports, hr__fft_scratch, hr__fft_run, hr__fft_prepare},
    {HR_OP_NONE, NULL, NULL, NULL, NULL},
};

static hr_status has(hr_op op) {
  return hr__library_find(rows, op) != NULL ? HR_OK : hr_status_make(HR_STATUS_NOT_FOUND, "not a row of this provider");
}

static bool runs(hr_op op) {
  return hr__library_find(rows, op) != NULL;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  const hr__library_row *row = hr__library_find(rows, node->op);
  return row != NULL && row->supports(node);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  return hr__library_prepare(rows, node, out_prepared, out_workspace_bytes);
}

const hr_provider HR_CPU_NAME(hr__host_provider) = {
    .name = "host",
    .has = has,
    .runs = runs,
    .supports = supports,
    .prepare = prepare,
    .needs_team = hr__library_needs_team,
    .run = hr__library_run,
    .release = hr__library_free,
};
