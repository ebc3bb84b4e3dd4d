/* Tiles of elements: element-wise kernels that store along one dim and load along another, such as transposing copies.
 *
 *   for (u < 4) { tile0[8 * u + t / 32][t % 32] = x at row t % 32, column 8 * u + t / 32; }    along the rows of x
 *   barrier;
 *   for (u < 4) { r0 = tile0[t % 32][8 * u + t / 32]; ... y = r1; }                            along the rows of y
 *
 * Neighbouring threads access neighbouring elements both times. A block makes all such loads for its elements before it
 * stores any. This is safe, because a kernel reads memory that it writes only at the same element (compiler/fuse.c).
 */
#include "base/integer.h"
#include "compiler/emit_device_internal.h"

enum { THREADS = HR__DEVICE_THREADS, SIDE = 32, SIDE_LARGE = 64, SHARED_BYTES = 40 << 10 };

typedef struct tiles {
  const device *d;
  int inner, along; /* kept dims: of the stores, and of the loads */
  int side;
} tiles;

static int64_t stride_of(const device *d, const hr_access *access, int k) {
  return access->strides[d->e->kept.source[k]];
}

/* The kept dim along which a load is contiguous, if it is not that of the stores; -1: there is none. */
static int find_along(const device *d, const hr_instr *instr) {
  enum { BYTES_APART = 32 };
  const hr_access *access = &d->e->kernel->accesses[instr->access];
  int inner = d->e->kept.rank - 1;
  int64_t apart = stride_of(d, access, inner) * (int64_t)hr_dtype_size(access->dtype);
  if (instr->kind != HR_INSTR_LOAD || access->term_count > 0 || (apart < BYTES_APART && apart > -BYTES_APART)) {
    return -1;
  }
  for (int k = inner - 1; k >= 0; --k) {
    if (stride_of(d, access, k) == 1 && d->e->kept.dims[k] >= SIDE / 2) {
      return k;
    }
  }
  return -1;
}

/* True if a load's values go through a tile. */
static bool is_turned(const tiles *t, const hr_instr *instr) {
  return instr->kind == HR_INSTR_LOAD && find_along(t->d, instr) == t->along;
}

/* True if instructions are loads, then computations, then stores along the inner dim. */
static bool stores_along_inner(const device *d) {
  const hr_kernel *kernel = d->e->kernel;
  bool stores = false;
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    const hr_access *access = instr->access >= 0 ? &kernel->accesses[instr->access] : NULL;
    bool is_store = instr->kind == HR_INSTR_STORE;
    if (instr->level != HR_LEVEL_ELEMENT || (instr->kind == HR_INSTR_LOAD && stores) ||
        (is_store &&
         (access->term_count > 0 || instr->mode != HR_STORE_SET || stride_of(d, access, d->e->kept.rank - 1) != 1))) {
      return false;
    }
    stores |= is_store;
  }
  return stores;
}

static bool find(const device *d, tiles *out) {
  enum { ELEMENTS_LEAST = 1 << 14, ELEMENTS_LARGE = 1 << 22 };
  const hr_kernel *kernel = d->e->kernel;
  int64_t bytes = 0;
  *out = (tiles){.d = d, .inner = d->e->kept.rank - 1, .along = -1, .side = SIDE};
  if (kernel->reduce_mask != 0 || kernel->ordered_mask != 0 || kernel->phase_count != 1 || d->e->kept.rank < 2 ||
      d->e->kept.dims[out->inner] < SIDE / 2 || d->rows < ELEMENTS_LEAST || !stores_along_inner(d)) {
    return false;
  }
  for (int k = 0; k < kernel->instr_count && out->along < 0; ++k) {
    out->along = kernel->instrs[k].kind == HR_INSTR_LOAD ? find_along(d, &kernel->instrs[k]) : -1;
  }
  for (int k = 0; k < kernel->instr_count && out->along >= 0; ++k) {
    bytes +=
        is_turned(out, &kernel->instrs[k]) ? (int64_t)hr_class_size(kernel->registers[kernel->instrs[k].dst].cls) : 0;
  }
  if (d->rows >= ELEMENTS_LARGE && bytes * SIDE_LARGE * (SIDE_LARGE + 1) <= SHARED_BYTES) {
    out->side = SIDE_LARGE;
  }
  return out->along >= 0 && bytes * SIDE * (SIDE + 1) <= SHARED_BYTES;
}

bool hr__device_is_tiles(const device *d) {
  tiles t;
  return find(d, &t);
}

static int64_t tiles_along(const tiles *t, int k) {
  return hr_divide_up(t->d->e->kept.dims[k], t->side);
}

/* Coordinates that are constant in a block, and the start of its tile: first and second. */
static void emit_block(const tiles *t) {
  hr__emitter *e = t->d->e;
  const char *type = hr__device_index_type(t->d);
  HR__EMIT(e, "%s rest = (%s)HR_BLOCK;\nconst %s first = (%s)(rest %% " HR__FREE ") * %d;\nrest /= " HR__FREE ";\n",
           type, type, type, type, (long long)tiles_along(t, t->inner), t->side, (long long)tiles_along(t, t->inner));
  HR__EMIT(e, "const %s second = (%s)(rest %% " HR__FREE ") * %d;\nrest /= " HR__FREE ";\n", type, type,
           (long long)tiles_along(t, t->along), t->side, (long long)tiles_along(t, t->along));
  for (int k = t->inner - 1; k >= 0; --k) {
    if (k != t->along) {
      HR__EMIT(e, "const %s c%d = (%s)(rest %% " HR__FREE ");\nrest /= " HR__FREE ";\n", type, k, type,
               (long long)e->kept.dims[k], (long long)e->kept.dims[k]);
    }
  }
}

/* The thread's elements u: `near` is the place in the dim along which threads are neighbours, `far` in the other
 * one. */
static void open_elements(const tiles *t, bool is_loading) {
  hr__emitter *e = t->d->e;
  const char *type = hr__device_index_type(t->d);
  HR__EMIT(e, "HR_UNROLL\nfor (int u = 0; u < %d; ++u) {\n", t->side * t->side / THREADS);
  HR__EMIT(e, "const int near = HR_THREAD %% %d, far = HR_THREAD / %d + u * %d;\n", t->side, t->side,
           THREADS / t->side);
  HR__EMIT(e, "const %s c%d = first + %s, c%d = second + %s;\n", type, t->inner, is_loading ? "far" : "near", t->along,
           is_loading ? "near" : "far");
  if (e->kept.dims[t->inner] % t->side != 0 || e->kept.dims[t->along] % t->side != 0) {
    HR__EMIT(e, "if (c%d < " HR__FREE " && c%d < " HR__FREE ") ", t->inner, (long long)e->kept.dims[t->inner], t->along,
             (long long)e->kept.dims[t->along]);
  }
  HR__EMIT(e, "{\n");
}

static void emit_elements(const tiles *t, bool is_loading) {
  hr__emitter *e = t->d->e;
  open_elements(t, is_loading);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (!is_turned(t, instr)) {
      if (!is_loading) {
        hr__device_instr(t->d, instr);
      }
    } else if (is_loading) {
      hr__device_instr(t->d, instr);
      HR__EMIT(e, "tile%d[far][near] = r%d;\n", k, instr->dst);
    } else {
      HR__EMIT(e, "const %s r%d = tile%d[near][far];\n", hr__emit_type(e->kernel->registers[instr->dst].cls),
               instr->dst, k);
    }
  }
  HR__EMIT(e, "}\n}\n");
}

void hr__device_tiles(const device *d, hr_device_emission *emission) {
  hr__emitter *e = d->e;
  tiles t;
  (void)find(d, &t);
  hr__device_head(d, 0, THREADS);
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    if (is_turned(&t, &e->kernel->instrs[k])) {
      HR__EMIT(e, "HR_SHARED HR_ALIGNED %s tile%d[%d][%d];\n",
               hr__emit_type(e->kernel->registers[e->kernel->instrs[k].dst].cls), k, t.side, t.side + 1);
    }
  }
  emit_block(&t);
  emit_elements(&t, true);
  HR__EMIT(e, "HR_BARRIER;\n");
  emit_elements(&t, false);
  HR__EMIT(e, "}\n");
  emission->pass_count = 1;
  emission->blocks[0] =
      d->rows / e->kept.dims[t.inner] / e->kept.dims[t.along] * tiles_along(&t, t.inner) * tiles_along(&t, t.along);
  emission->threads[0] = THREADS;
}
