/* live_layout_test.c: random programs on buffers whose layout an earlier program has changed give the same bits as on
 * the default layout.
 *
 * Buffers get layouts derived from some operand's view, so that programs can propagate some and reject others. Results
 * may get a layout, too, and are read back. Sums of floating-point numbers and products are left out: their order
 * depends on the layout.
 *
 * HEADRACE_TEST_PROGRAMS sets the number of programs (default 300).
 */
#include <stdlib.h>

#include "hr_test.h"

#include "core/ir/build.h"
#include "core/ops/op.h"
#include "engine/stream.h"
#include "program_stream.h"

static int given, followed, undone, made; /* buffers with layouts: before, still so after, rejected; new ones */

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state >> 11;
}

/* ---- programs ---- */

static bool is_integer(hr_dtype dtype) {
  return dtype >= HR_DTYPE_BOOL && dtype <= HR_DTYPE_I64;
}

/* True if bits can depend on the order of a domain. */
static bool depends_on_order(const generated *g) {
  hr_program expanded;
  HR_ASSERT_OK(hr_expand(&g->program, NULL, NULL, &expanded));
  bool depends = hr__has_products(&g->program);
  for (int n = 0; n < expanded.node_count; ++n) {
    const hr_node *node = &expanded.nodes[n];
    bool reduces = node->is_loop && node->reduce_mask != 0;
    depends |= reduces && !is_integer(node->inputs[0].dtype);
  }
  hr_program_fini(&expanded);
  return depends;
}

/* True if a node writes the whole buffer. */
static bool is_made(const generated *g, int b) {
  for (int n = 0; n < g->program.node_count; ++n) {
    const hr_node *node = &g->program.nodes[n];
    for (int i = 0; i < node->output_count; ++i) {
      const hr_operand *x = &node->outputs[i];
      int64_t count = 1;
      for (int d = x->rank - 1; x->kind == HR_OPERAND_VALUE && x->index == (uint32_t)b && d >= 0; --d) {
        count *= x->dims[d] == 1 || x->strides[d] == count ? x->dims[d] : 0;
      }
      bool updates = node->op == HR_OP_SCATTER || node->op == HR_OP_INDEX_PUT || node->op == HR_OP_INDEX_ADD;
      if (x->kind == HR_OPERAND_VALUE && x->index == (uint32_t)b && !updates && x->offset == 0 &&
          (size_t)count * hr_dtype_size(x->dtype) == g->bytes[b]) {
        return true;
      }
    }
  }
  return false;
}

/* ---- layouts ---- */

/* The channels and inner elements of a view of the whole buffer; false when none of the views is one. */
static bool suggest(const generated *g, int b, uint64_t *state, hr_buffer_layout *out_layout) {
  int seen = 0;
  for (int n = 0; n < g->program.node_count; ++n) {
    const hr_node *node = &g->program.nodes[n];
    for (int i = 0; i < node->input_count + node->output_count; ++i) {
      const hr_operand *x = hr_node_operand(node, i);
      if (x->kind != HR_OPERAND_VALUE || x->index != (uint32_t)b || x->rank < 2) {
        continue;
      }
      int64_t inner = 1, size = (int64_t)hr_dtype_size(g->dtypes[b]), count = (int64_t)g->bytes[b] / size;
      int split = 1 + (int)(next_random(state) % (uint64_t)(x->rank - 1));
      for (int d = split; d < x->rank; ++d) {
        inner *= x->dims[d];
      }
      int64_t image = inner * x->dims[split - 1];
      if (inner > 1 && image > inner && count % image == 0 && next_random(state) % (uint64_t)++seen == 0) {
        *out_layout = (hr_buffer_layout){(size_t)size, x->dims[split - 1], inner};
      }
    }
  }
  return seen > 0;
}

/* The buffer's contents in the order of the layout. */
static void lay_out(hr_buffer *buffer, const hr_buffer_layout *layout) {
  size_t size = layout->element_bytes, channels = (size_t)layout->channels, inner = (size_t)layout->inner;
  char *memory = hr__buffer_address(buffer), *plain = malloc(buffer->bytes);
  memcpy(plain, memory, buffer->bytes);
  for (size_t at = 0; at < buffer->bytes / size; ++at) {
    size_t i = at % inner, c = at / inner % channels, image = at / inner / channels;
    memcpy(memory + ((image * inner + i) * channels + c) * size, plain + at * size, size);
  }
  free(plain);
  atomic_store(&buffer->layout, hr_layout_pack(layout));
}

static void lay_all_out(hr__side *side, const generated *g, uint64_t *state) {
  HR_ASSERT_OK(hr_stream_synchronize(side->stream));
  for (int b = 0; b < g->buffer_count; ++b) {
    hr_buffer_layout layout;
    if (hr_dtype_size(g->dtypes[b]) <= 8 && next_random(state) % 4 != 0 && suggest(g, b, state, &layout) &&
        hr__buffer_address(side->buffers[b]) != NULL) {
      lay_out(side->buffers[b], &layout);
      ++given;
    }
  }
}

/* ---- sides ---- */

/* Contents for all buffers but those that the program makes. */
static void fill(hr__side *side, const generated *g) {
  int64_t dims[1], strides[1];
  side->buffers = calloc((size_t)g->buffer_count + 1, sizeof *side->buffers);
  for (int b = 0; b < g->buffer_count; ++b) {
    HR_ASSERT_OK(hr_buffer_create(side->device, g->bytes[b], &side->buffers[b]));
    hr_view view = hr__side_bytes(side, g, b, dims, strides);
    bool is_fresh = g->program.buffers[b].is_fresh && is_made(g, b);
    if (g->bytes[b] > 0 && !is_fresh) {
      HR_ASSERT_OK(hr_stream_write(side->stream, &view, g->memory[b]));
    }
  }
}

static void open_side(hr__side *side, bool frees) {
  *side = (hr__side){0};
  HR_ASSERT_OK(hr_device_open("cpu", &side->device));
  HR_ASSERT_OK(hr_stream_create(side->device, &side->stream));
  hr_stream_set_mode(side->stream, HR_MODE_FUSE);
  side->stream->frees_live = frees;
}

static void close_side(hr__side *side) {
  hr_stream_release(side->stream);
  hr_device_release(side->device);
}

static bool is_nan(hr_dtype dtype, const void *at) {
  float single;
  double twice;
  uint16_t half;
  switch (dtype) {
    case HR_DTYPE_F32:
    case HR_DTYPE_C64:
      memcpy(&single, at, sizeof single);
      return single != single;
    case HR_DTYPE_F64:
    case HR_DTYPE_C128:
      memcpy(&twice, at, sizeof twice);
      return twice != twice;
    default:
      memcpy(&half, at, sizeof half);
      return dtype == HR_DTYPE_BF16 ? (half & 0x7fff) > 0x7f80 : (half & 0x7fff) > 0x7c00;
  }
}

static void compare(uint64_t seed, const generated *g, int b, const char *a, const char *e) {
  hr_dtype dtype = g->dtypes[b];
  size_t size = dtype == HR_DTYPE_C64    ? 4
                : dtype == HR_DTYPE_C128 ? 8
                : dtype == HR_DTYPE_C32  ? 2
                                         : hr_dtype_size(dtype);
  for (size_t at = 0; at < g->bytes[b]; at += size) {
    if (memcmp(a + at, e + at, size) != 0 && (is_integer(dtype) || !is_nan(dtype, a + at) || !is_nan(dtype, e + at))) {
      hr_text text = {0};
      HR_ASSERT_OK(hr_program_print(&g->program, &text));
      HR_FAIL("seed %llu: buffer %%%d, element %zu of %s\n%s", (unsigned long long)seed, b, at / size,
              hr_dtype_name(dtype), hr_text_chars(&text));
    }
  }
}

static void check_program(hr__side *sides, uint64_t seed) {
  generated g;
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  HR_ASSERT_OK(hr__generate_program(seed, 1 + (int)(seed % 12), &g));
  if (depends_on_order(&g)) {
    hr__generated_fini(&g);
    return;
  }
  hr_status results[2];
  for (int k = 0; k < 2; ++k) {
    fill(&sides[k], &g);
    if (k == 1) {
      lay_all_out(&sides[k], &g, &state);
    }
    results[k] = hr__side_run(&sides[k], &g);
  }
  HR_ASSERT_EQ(hr_status_code_of(results[1]), hr_status_code_of(results[0]));
  bool fails = results[0] != NULL;
  hr_status_free(results[0]);
  hr_status_free(results[1]);
  for (int b = 0; b < g.buffer_count; ++b) {
    bool has_layout = hr__buffer_layout(sides[1].buffers[b]) != 0, is_fresh = g.program.buffers[b].is_fresh;
    followed += has_layout && !is_fresh;
    made += has_layout && is_fresh;
    if (g.bytes[b] == 0 || (fails && is_fresh)) {
      continue;
    }
    int64_t dims[1], strides[1];
    char *read[2];
    for (int k = 0; k < 2; ++k) {
      read[k] = malloc(g.bytes[b]);
      hr_view view = hr__side_bytes(&sides[k], &g, b, dims, strides);
      HR_ASSERT_OK(hr_stream_read(sides[k].stream, &view, read[k]));
    }
    compare(seed, &g, b, read[1], read[0]);
    free(read[0]);
    free(read[1]);
  }
  hr__side_drop(&sides[0], &g);
  hr__side_drop(&sides[1], &g);
  hr__generated_fini(&g);
}

HR_TEST(buffers_with_layouts_give_the_same_bits) {
  const char *wanted = getenv("HEADRACE_TEST_PROGRAMS");
  uint64_t count = wanted != NULL ? strtoull(wanted, NULL, 10) : (uint64_t)hr_test_count(300);
  hr__side sides[2];
  open_side(&sides[0], false);
  open_side(&sides[1], true);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    check_program(sides, seed);
  }
  hr_stats stats;
  hr_stream_stats(sides[1].stream, &stats);
  undone = (int)stats.layouts_undone;
  printf("%d buffers had layouts, %d kept them, %d programs' own; %d were made plain\n", given, followed, made, undone);
  HR_ASSERT(followed > 0 && undone > 0 && made > 0);
  close_side(&sides[0]);
  close_side(&sides[1]);
}
