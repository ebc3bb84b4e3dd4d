/* matrices.h: operands of the rows of linear algebra, whose matrices are column-major. */
#ifndef HEADRACE_FUNCTIONAL_MATRICES_H_
#define HEADRACE_FUNCTIONAL_MATRICES_H_

#include "functional/formula.h"

/* Input `i` as matrices in a dtype of the rows; fails for less than 2 dims and other dtypes. */
const hr_tensor *hr__matrices(hr__formula *f, int i);
/* The same of square ones. */
const hr_tensor *hr__square_matrices(hr__formula *f, int i);
/* The matrices transposed, a view; and dense: x column-major, as the rows read it. */
const hr_tensor *hr__transposed(hr__formula *f, const hr_tensor *x);
const hr_tensor *hr__columns(hr__formula *f, const hr_tensor *x);
/* A number everywhere, ones on the diagonal: of x's batch dims, then `rows` and `columns`. */
const hr_tensor *hr__filled(hr__formula *f, double number, hr_dtype dtype, int rank, const int64_t *dims);
const hr_tensor *hr__identities(hr__formula *f, const hr_tensor *x, int64_t rows, int64_t columns);
/* The number of rows and columns of matrices, 0 after a failure. */
int64_t hr__row_count(const hr__formula *f, const hr_tensor *x);
int64_t hr__column_count(const hr__formula *f, const hr_tensor *x);
/* A failure of the run, which the next wait reports, if an element of the i32 tensor `info` is not 0. `text` is a
 * constant, the reason. If the host can't read the device's memory, the call waits instead, and captures fail. */
void hr__check_info(hr__formula *f, const hr_tensor *info, const char *text);
/* True for the dtypes of matrices that are factored: f32, f64, c64, c128. */
bool hr__has_factors(hr_dtype dtype);

#endif
