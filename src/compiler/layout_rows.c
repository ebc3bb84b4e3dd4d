/* Rows of 16-bit matrices that begin where the library's fast kernels can read them. See layout.c.
 *
 *   before   %3:bf16[8192,50257]{50257,1} = matmul(%0, %1)       after   %3:bf16[8192,50257]{50264,1} = matmul(%0, %1)
 *            loop %4:f32[8192,50257]{50257,1} = cast(%3:..)              loop %4:f32[8192,50257]{50257,1} = cast(%3:..{50264,1})
 *
 * The columns of an operand of a product are its neighbours in memory; everything else is rows. A row becomes longer by the few
 * elements that nobody sees.
 */
#include "compiler/layout_internal.h"

enum { NARROW_BYTES = 2, SHARE_MOST = 4 /* a row grows by at most one part of so many */ };

/* Which operands of a node may lie so: the factors and the product. */
static uint32_t matrices(const hr_node *node) {
  return !node->is_loop && node->op == HR_OP_MATMUL ? 3u | 1u << node->input_count : 0;
}

static bool takes(const hr__layout *l, const hr_node *node, int operand) {
  (void)l;
  return matrices(node) >> operand & 1;
}

/* The layout of a buffer that an operand walks densely, its rows being longer; false when it doesn't, or when they need not be. */
static bool layout_of(const hr_program *program, const hr_operand *operand, size_t alignment, hr__layout *out_layout) {
  int columns = hr__layout_next_dim(operand, 1);
  if (columns < operand->rank - 2 || columns < 0 || hr_dtype_size(operand->dtype) != NARROW_BYTES) {
    return false;
  }
  int64_t width = operand->dims[columns], unit = (int64_t)(alignment / NARROW_BYTES), rows = 1;
  for (int d; (d = hr__layout_next_dim(operand, width * rows)) >= 0;) {
    rows *= operand->dims[d];
  }
  int64_t pitch = (width + unit - 1) / unit * unit;
  *out_layout = (hr__layout){.dims = {rows, 1, width},
                             .strides = {pitch, pitch, 1},
                             .element_bytes = NARROW_BYTES,
                             .bytes = (size_t)(rows * pitch) * NARROW_BYTES};
  return (size_t)(rows * width) * NARROW_BYTES == program->buffers[operand->index].bytes && pitch != width &&
         rows > 1 && (pitch - width) * SHARE_MOST <= width;
}

bool hr__layout_rows(hr__layout_pass *p, size_t alignment) {
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    uint32_t mask = matrices(node);
    for (int i = 0; mask != 0 && i < node->input_count + node->output_count; ++i) {
      const hr_operand *operand = hr_node_operand(node, i);
      hr__layout l;
      if ((mask >> i & 1) && hr__layout_is_open(p, operand) && !p->candidates[operand->index].is_seen &&
          layout_of(p->program, operand, alignment, &l) && !hr__layout_relay(p, operand, &l, takes)) {
        return false;
      }
    }
  }
  return true;
}
