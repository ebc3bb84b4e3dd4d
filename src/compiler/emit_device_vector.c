/* Element-wise kernels whose innermost dim is contiguous: four neighbours for each thread.
 *
 *   for (u < 2) { v0[u] = 16 bytes of x; v1[u] = 16 bytes of y; }
 *   for (u < 2) {
 *     for (h < 4) { r0 = v0[u][h]; r1 = v1[u][h]; r2 = r0 + r1; o2[h] = r2; }
 *     16 bytes of z = o2;
 *   }
 *
 * A thread's accesses are wide. Its loads all come first, so that several are in flight at once. The result is the same
 * as for one element after the other, because a kernel reads memory that it writes only at the same element
 * (compiler/fuse.c). In a large kernel with few loads, a thread has two or four groups of four.
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

/* True if groups of four along the inner dim are aligned, and all inside of the bounds or all outside. */
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

static bool is_wide_load(const device *d, const hr_instr *instr) {
  return instr->kind == HR_INSTR_LOAD && is_wide(d, &d->e->kernel->accesses[instr->access]);
}

/* The number of fours of a thread: enough to load BYTES_AHEAD, if the device is still busy then. */
static int fours_of(const device *d) {
  enum { FOURS_MOST = 4, BYTES_AHEAD = 32, THREADS_LEAST = 1 << 19 };
  const hr_kernel *kernel = d->e->kernel;
  int bytes = 0, fours = 1;
  for (int k = 0; k < kernel->instr_count; ++k) {
    bytes += is_wide_load(d, &kernel->instrs[k]) ? bytes_of(d, &kernel->instrs[k]) : 0;
  }
  while (2 * fours <= FOURS_MOST && 2 * fours * bytes <= BYTES_AHEAD &&
         d->rows >= (int64_t)2 * fours * WIDTH * THREADS_LEAST) {
    fours *= 2;
  }
  return fours;
}

/* The bounds condition of an access, or true. */
static void emit_inside(const device *d, const hr_instr *instr) {
  HR__EMIT(d->e, hr__device_condition(d, instr) ? ";\n" : "1;\n");
}

static void load_wide(const device *d, const hr_instr *instr, int k) {
  HR__EMIT(d->e, "in%d[u] = ", k);
  emit_inside(d, instr);
  HR__EMIT(d->e, "if (in%d[u]) { hr_copy%d(v%d[u], ", k, bytes_of(d, instr), k);
  hr__device_address(d, instr);
  HR__EMIT(d->e, "); }\n");
}

static void take_element(const device *d, const hr_instr *instr, int k) {
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  hr_class cls = d->e->kernel->registers[instr->dst].cls;
  HR__EMIT(d->e, "const %s r%d = in%d[u] ? HR__LOAD_%s(v%d[u][h]) : ", hr__emit_type(cls), instr->dst, k,
           dtype_of(d, instr), k);
  hr__emit_fill(d->e, access, cls);
  HR__EMIT(d->e, ";\n");
}

static void put_element(const device *d, const hr_instr *instr, int k) {
  HR__EMIT(d->e, "o%d[h] = ", k);
  hr__emit_stored(d->e, instr, "");
  HR__EMIT(d->e, ";\n");
}

static void store_wide(const device *d, const hr_instr *instr, int k) {
  HR__EMIT(d->e, "const int in%d = ", k);
  emit_inside(d, instr);
  HR__EMIT(d->e, "if (in%d) { hr_copy%d(", k, bytes_of(d, instr));
  hr__device_address(d, instr);
  HR__EMIT(d->e, ", o%d); }\n", k);
}

/* Opens four u of a thread, if it exists: neighbouring threads have neighbouring fours. */
static void open_four(const device *d, int fours) {
  HR__EMIT(d->e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", fours);
  HR__EMIT(d->e, "const int64_t unit = HR_BLOCK * %d + u * %d + HR_THREAD;\nif (unit < " HR__FREE ") {\n",
           fours * HR__DEVICE_THREADS, (int)HR__DEVICE_THREADS, (long long)(d->rows / WIDTH));
  hr__device_coordinates(d, &d->e->kept, "unit * 4", "c");
}

static void emit_loads(const device *d, int fours) {
  const hr_kernel *kernel = d->e->kernel;
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (is_wide_load(d, &kernel->instrs[k])) {
      HR__EMIT(d->e, "HR_ALIGNED HR__MEMORY_%s v%d[%d][%d];\nint in%d[%d];\n", dtype_of(d, &kernel->instrs[k]), k,
               fours, (int)WIDTH, k, fours);
    }
  }
  open_four(d, fours);
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (is_wide_load(d, &kernel->instrs[k])) {
      load_wide(d, &kernel->instrs[k], k);
    }
  }
  HR__EMIT(d->e, "}\n}\n");
}

/* The elements of four u, and their stores. */
static void emit_elements(const device *d, int fours) {
  hr__emitter *e = d->e;
  const hr_kernel *kernel = e->kernel;
  const char *type = hr__device_index_type(d);
  device of_four = *d;
  int inner = inner_of(d);
  of_four.is_wide = is_wide;
  open_four(d, fours);
  for (int k = 0; k < kernel->instr_count; ++k) {
    if (kernel->instrs[k].kind == HR_INSTR_STORE) {
      HR__EMIT(e, "HR_ALIGNED HR__MEMORY_%s o%d[%d];\n", dtype_of(d, &kernel->instrs[k]), k, (int)WIDTH);
    }
  }
  HR__EMIT(e,
           "const %s first = c%d;\nHR_UNROLL\nfor (int h = 0; h < %d; ++h) {\nconst %s c%d = first + h;\n(void)c%d;\n",
           type, inner, (int)WIDTH, type, inner, inner);
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (is_wide_load(d, instr)) {
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
  HR__EMIT(e, "}\n}\n");
}

void hr__device_vectors(const device *d, hr_device_emission *emission) {
  int fours = fours_of(d);
  hr__device_head(d, 0, HR__DEVICE_THREADS);
  emit_loads(d, fours);
  emit_elements(d, fours);
  HR__EMIT(d->e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] = hr_divide_up(d->rows / WIDTH, (int64_t)fours * HR__DEVICE_THREADS);
  emission->threads[0] = HR__DEVICE_THREADS;
}
