/* Four neighbours a thread: element-wise kernels whose innermost dim lies side by side in memory.
 *
 *   v0 = 16 bytes of x; v1 = 16 bytes of y;
 *   for (h < 4) { r0 = v0[h]; r1 = v1[h]; r2 = r0 + r1; o2[h] = r2; }
 *   16 bytes of z = o2;
 *
 * A thread's accesses are wide, and its loads all come first, so that several are on their way at once. That is the same as one
 * element after the other: a kernel reads what it writes at the same element, or not at all (compiler/fuse.c).
 */
#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { WIDTH = 4 };

static int inner_of(const device *d) {
  return d->e->kept.rank - 1;
}

static int64_t inner_stride(const device *d, const int64_t *strides) {
  return strides[d->e->kept.source[inner_of(d)]];
}

/* Whether groups of four along the inner dim are aligned, and all inside of the bounds or all outside. */
static bool is_wide(const device *d, const hr_access *access) {
  const hr_dims *kept = &d->e->kept;
  bool is = access->term_count == 0 && inner_stride(d, access->strides) == 1 && access->offset % WIDTH == 0;
  for (int k = 0; is && k < kept->rank - 1; ++k) {
    is = access->strides[kept->source[k]] % WIDTH == 0;
  }
  for (int b = 0; is && b < access->bound_count; ++b) {
    is = inner_stride(d, access->bounds[b].strides) == 0;
  }
  return is;
}

bool hr__device_is_vector(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  bool stores = false, is_any_wide = false;
  if (kernel->reduce_mask != 0 || kernel->ordered_mask != 0 || d->e->kept.rank == 0 ||
      d->e->kept.dims[inner_of(d)] % WIDTH != 0) {
    return false;
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    bool is_memory = instr->kind == HR_INSTR_LOAD || instr->kind == HR_INSTR_STORE;
    bool wide = is_memory && is_wide(d, &kernel->accesses[instr->access]);
    if (instr->level != HR_LEVEL_ELEMENT || (instr->kind == HR_INSTR_LOAD && stores) ||
        (instr->kind == HR_INSTR_STORE && (!wide || instr->mode != HR_STORE_SET))) {
      return false;
    }
    stores |= instr->kind == HR_INSTR_STORE;
    is_any_wide |= wide;
  }
  return is_any_wide;
}

static const char *dtype_of(const device *d, const hr_instr *instr) {
  return hr__emit_dtype(d->e->kernel->accesses[instr->access].dtype);
}

static int bytes_of(const device *d, const hr_instr *instr) {
  return WIDTH * (int)hr_dtype_size(d->e->kernel->accesses[instr->access].dtype);
}

/* Declares the four of an instruction: NAMEk. */
static void declare(const device *d, const hr_instr *instr, char name, int k) {
  HR__EMIT(d->e, "HR_ALIGNED HR__MEMORY_%s %c%d[%d];\n", dtype_of(d, instr), name, k, (int)WIDTH);
}

static void emit_address(const device *d, const hr_instr *instr) {
  hr_text memory = {0};
  hr__device_memory(d, instr, &memory);
  HR__EMIT(d->e, "&%s", hr_text_chars(&memory));
  d->e->text->failed |= memory.failed;
  hr_text_fini(&memory);
}

/* "const int inK = ...", true where there are no bounds. */
static void emit_inside(const device *d, const hr_instr *instr, int k) {
  HR__EMIT(d->e, "const int in%d = ", k);
  HR__EMIT(d->e, hr__device_condition(d, instr) ? ";\n" : "1;\n");
}

static void load_wide(const device *d, const hr_instr *instr, int k) {
  declare(d, instr, 'v', k);
  emit_inside(d, instr, k);
  HR__EMIT(d->e, "if (in%d) { hr_copy%d(v%d, ", k, bytes_of(d, instr), k);
  emit_address(d, instr);
  HR__EMIT(d->e, "); }\n");
}

static void take_element(const device *d, const hr_instr *instr, int k) {
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  hr_class cls = d->e->kernel->registers[instr->dst].cls;
  HR__EMIT(d->e, "const %s r%d = in%d ? HR__LOAD_%s(v%d[h]) : ", hr__emit_type(cls), instr->dst, k, dtype_of(d, instr),
           k);
  hr__emit_fill(d->e, access, cls);
  HR__EMIT(d->e, ";\n");
}

static void put_element(const device *d, const hr_instr *instr, int k) {
  HR__EMIT(d->e, "o%d[h] = ", k);
  hr__emit_stored(d->e, instr, "");
  HR__EMIT(d->e, ";\n");
}

static void store_wide(const device *d, const hr_instr *instr, int k) {
  emit_inside(d, instr, k);
  HR__EMIT(d->e, "if (in%d) { hr_copy%d(", k, bytes_of(d, instr));
  emit_address(d, instr);
  HR__EMIT(d->e, ", o%d); }\n", k);
}

void hr__device_vectors(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  device of_four = *d;
  int64_t units = d->rows / WIDTH;
  int inner = inner_of(d);
  of_four.is_wide = is_wide;
  hr__device_head(d, 0, HR__DEVICE_THREADS);
  HR__EMIT(e, "const int64_t unit = HR_BLOCK * %d + HR_THREAD;\nif (unit >= %lld) { return; }\n",
           (int)HR__DEVICE_THREADS, (long long)units);
  hr__device_coordinates(d, &e->kept, "unit * 4", "c");
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_LOAD && is_wide(d, &kernel->accesses[instr->access])) {
      load_wide(d, instr, k);
    } else if (instr->kind == HR_INSTR_STORE) {
      declare(d, instr, 'o', k);
    }
  }
  HR__EMIT(e,
           "const %s first = c%d;\nHR_UNROLL\nfor (int h = 0; h < %d; ++h) {\nconst %s c%d = first + h;\n(void)c%d;\n",
           hr__device_index_type(d), inner, (int)WIDTH, hr__device_index_type(d), inner, inner);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_LOAD && is_wide(d, &kernel->accesses[instr->access])) {
      take_element(d, instr, k);
    } else if (instr->kind == HR_INSTR_STORE) {
      put_element(d, instr, k);
    } else {
      hr__device_instr(&of_four, instr);
    }
  }
  HR__EMIT(e, "}\n");
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_STORE) {
      store_wide(d, &kernel->instrs[k], k);
    }
  }
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = hr_divide_up(units, HR__DEVICE_THREADS);
  emission->threads[0] = HR__DEVICE_THREADS;
}
