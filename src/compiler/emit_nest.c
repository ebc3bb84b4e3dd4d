/* Element-wise kernels as a nest of loops with literal bounds: windows over planes whose channels are neighbours.
 *
 *   dims [512, 14, 14, 20], loads of 2 x 2 elements side by side (emit_unroll.c)
 *
 *   for (unit ...) {            one of 512 * 14
 *     for (c2 < 14) {           p0 = ...; p1 = ...; p2 = ...; p3 = ...; p4 = ...
 *       for (j < 16) { r0 = p0[j]; r1 = p1[j]; r2 = maximum(r0, r1); ... p4[j] = r6; }
 *       for (16 <= j < 20) { the same }
 *     }
 *   }
 *
 * Blocks of emit_points.c would first copy each of the four windows. Bounds that do not move along the innermost dim
 * select the address or a line of fills outside of the vectorised loop.
 */
#include <stdio.h>

#include "compiler/emit_internal.h"

enum { WIDTH_MIN = 8, WEIGHT_MAX = 240, WEIGHT_OF_ONE_MAX = 4, HEAVY_PART = 4 };

typedef struct nest {
  hr__emitter *e;
  int inner; /* of the kept dims: the last one */
  int64_t width;
  int *fill_of; /* by access: the access whose line of fills it shares; -1: none */
} nest;

static bool moves_simply(const hr__emitter *e, const hr_instr *instr, int dim, bool *steps) {
  if (instr->access < 0) {
    return true;
  }
  const hr_access *access = &e->kernel->accesses[instr->access];
  int64_t step = access->strides[e->kept.source[dim]];
  for (int b = 0; b < access->bound_count; ++b) {
    if (access->bounds[b].strides[e->kept.source[dim]] != 0) {
      return false;
    }
  }
  switch (instr->kind) {
    case HR_INSTR_LOAD:
      *steps |= step == 1;
      return access->term_count == 0 && (step == 0 || step == 1);
    case HR_INSTR_STORE:
      return access->term_count == 0 && access->bound_count == 0 && step != 0;
    default:
      return access->bound_count == 0;
  }
}

/* True if all loads move along `dim` element by element or stay in place. */
static bool is_inner(const hr__emitter *e, int dim) {
  bool steps = false;
  if (e->target != NULL && e->kept.dims[dim] < WIDTH_MIN) {
    return false;
  }
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    if (!moves_simply(e, &e->kernel->instrs[k], dim, &steps)) {
      return false;
    }
  }
  return steps;
}

/* True if transcendentals, which have stages of their own in blocks, are a small part of the work, as after a large
 * window. */
static bool is_light(const hr_kernel *kernel) {
  int weight = 0, heavy = 0;
  for (int k = 0; k < kernel->instr_count; ++k) {
    int mine = hr__emit_weight(kernel, &kernel->instrs[k]);
    weight += mine;
    heavy += mine > WEIGHT_OF_ONE_MAX ? mine : 0;
  }
  return weight <= WEIGHT_MAX && heavy * HEAVY_PART <= weight;
}

bool hr__emit_is_nest(hr__emitter *e) {
  const hr_kernel *kernel = e->kernel;
  hr_dims *kept = &e->kept;
  int inner = kept->rank - 1;
  if (!is_light(kernel)) {
    return false;
  }
  while (inner >= 0 && !is_inner(e, inner)) {
    --inner;
  }
  if (inner < 0 || kernel->reduce_mask != 0) {
    return false;
  }
  for (int d = inner; d < kept->rank - 1; ++d) { /* kept dims may run in any order */
    int64_t dim = kept->dims[d];
    int source = kept->source[d];
    kept->dims[d] = kept->dims[d + 1], kept->source[d] = kept->source[d + 1];
    kept->dims[d + 1] = dim, kept->source[d + 1] = source;
  }
  return true;
}

/* ---- text ---- */

/* The step of an instruction's access from one element to the next. */
static int64_t step_of(const nest *n, const hr_instr *instr) {
  return instr->access >= 0 ? n->e->kernel->accesses[instr->access].strides[n->e->kept.source[n->inner]] : 0;
}

static bool has_line(const nest *n, const hr_access *access) {
  return access->bound_count > 0 && access->strides[n->e->kept.source[n->inner]] == 1;
}

/* A line of fills for each kind of bounded load. */
static void emit_fills(const nest *n) {
  hr__emitter *e = n->e;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    const hr_access *access = &e->kernel->accesses[a];
    n->fill_of[a] = -1;
    if (!has_line(n, access)) {
      continue;
    }
    for (int b = 0; b < a && n->fill_of[a] < 0; ++b) {
      const hr_access *other = &e->kernel->accesses[b];
      if (n->fill_of[b] == b && other->fill == access->fill && other->dtype == access->dtype) {
        n->fill_of[a] = b;
      }
    }
    if (n->fill_of[a] >= 0) {
      continue;
    }
    n->fill_of[a] = a;
    const char *type = hr__emit_dtype(access->dtype);
    int64_t at = hr__emit_reserve(e, n->width * (int64_t)hr_dtype_size(access->dtype));
    HR__EMIT(e, "HR__MEMORY_%s *const f%d = (HR__MEMORY_%s *)(scratch + %lld);\n", type, a, type, (long long)at);
    HR__EMIT(e, "for (int j = 0; j < %lld; ++j) { f%d[j] = HR__STORE_%s(", (long long)n->width, a, type);
    hr__emit_fill(e, access, hr_dtype_class(access->dtype));
    HR__EMIT(e, "); }\n");
  }
}

/* The addresses of all accesses at one place of the outer dims; values that are constant along the innermost one. */
static void emit_place(const nest *n) {
  hr__emitter *e = n->e;
  for (int a = 0; a < e->kernel->access_count; ++a) {
    const hr_access *access = &e->kernel->accesses[a];
    hr__emit_pointer(e, a, &e->kept, 0, n->inner, "c", NULL);
    if (has_line(n, access)) {
      HR__EMIT(e, "const HR__MEMORY_%s *const q%d = ", hr__emit_dtype(access->dtype), a);
      hr__emit_inside(e, a);
      HR__EMIT(e, " ? p%d : f%d;\n", a, n->fill_of[a]);
    }
  }
  for (int k = 0; k < e->kernel->instr_count; ++k) {
    const hr_instr *instr = &e->kernel->instrs[k];
    if (instr->kind == HR_INSTR_LOAD && step_of(n, instr) == 0) {
      hr__emit_uniform_load(e, instr);
    }
  }
}

static void emit_instr(const nest *n, const hr_instr *instr) {
  hr__emitter *e = n->e;
  const hr_access *access = instr->access >= 0 ? &e->kernel->accesses[instr->access] : NULL;
  long long step = (long long)step_of(n, instr);
  char index[48];
  switch (instr->kind) {
    case HR_INSTR_LOAD:
      if (step != 0) {
        HR__EMIT(e, "const %s r%d = HR__LOAD_%s(%s%d[j]);\n", hr__emit_type(e->values[instr->dst].cls), instr->dst,
                 hr__emit_dtype(access->dtype), has_line(n, access) ? "q" : "p", instr->access);
      }
      break;
    case HR_INSTR_INDEX:
      HR__EMIT(e, "const int64_t r%d = p%d + j * %lld;\n", instr->dst, instr->access, step);
      break;
    case HR_INSTR_STORE:
      snprintf(index, sizeof index, "j * %lld", step);
      hr__emit_store(e, instr, index);
      break;
    default:
      if (e->values[instr->dst].alias == instr->dst) {
        hr__emit_statement(e, instr);
      }
      break;
  }
}

static void emit_lanes(const nest *n) {
  hr__emitter *e = n->e;
  for (int64_t from = 0, to; from < n->width; from = to) {
    to = hr__emit_cut(from, n->width);
    HR__EMIT(e, "HR_LANES\nfor (int64_t j = %lld; j < %lld; ++j) {\n", (long long)from, (long long)to);
    for (int k = 0; k < e->kernel->instr_count; ++k) {
      emit_instr(n, &e->kernel->instrs[k]);
    }
    HR__EMIT(e, "}\n");
  }
}

hr_status hr__emit_nest(hr__emitter *e, const char *name, hr_emission *out_emission) {
  const hr_dims *kept = &e->kept;
  nest n = {.e = e, .inner = kept->rank - 1, .width = kept->dims[kept->rank - 1]};
  n.fill_of = HR_ARENA_ARRAY(&e->arena, int, (size_t)e->kernel->access_count + 1);
  if (n.fill_of == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "emit: no memory for kernel %s", name);
  }
  int64_t units = n.width > 0 ? 1 : 0, line = n.inner > 0 ? kept->dims[n.inner - 1] : 1;
  for (int d = 0; d < n.inner; ++d) {
    units *= d < n.inner - 1 || kept->dims[d] == 0 ? kept->dims[d] : 1;
  }
  HR_RETURN_IF_ERROR(hr__emit_worth(e, 0));
  hr__emit_find_aliases(e);
  hr__emit_head(e, name, 0);
  emit_fills(&n);
  HR__EMIT(e, "for (int64_t unit = begin; unit < end; ++unit) {\nint64_t rest = unit;\n");
  for (int d = n.inner - 2; d > 0; --d) {
    HR__EMIT(e, "const int64_t c%d = rest %% %lld;\nrest /= %lld;\n", d, (long long)kept->dims[d],
             (long long)kept->dims[d]);
  }
  HR__EMIT(e, n.inner > 1 ? "const int64_t c0 = rest;\n" : ""); /* for any length */
  if (n.inner > 0) {
    HR__EMIT(e, "for (int64_t c%d = 0; c%d < %lld; ++c%d) {\n", n.inner - 1, n.inner - 1, (long long)line, n.inner - 1);
  }
  emit_place(&n);
  emit_lanes(&n);
  HR__EMIT(e, n.inner > 0 ? "}\n}\n}\n" : "}\n}\n");
  out_emission->pass_count = 1;
  out_emission->units[0] = units;
  out_emission->grain[0] = hr__emit_grain(e->kernel, line * n.width);
  return HR_OK;
}
