/* shared_primitives.c: see shared_primitives.h. */
#include "providers/onednn/shared_primitives.h"

#include <string.h>

#include "base/allocator.h"

enum { PROOFS_MIN = 2 };

/* Bytes that a primitive takes with its code, by the begin of the implementation's name: measured with
 * version 3.2 for AVX-512. The first that fits counts. */
static const struct {
  const char *name;
  size_t bytes;
} sizes[] = {{"jit:uni", 14 << 10}, /* a reorder */
             {"brgconv_strided", 40 << 10},
             {"brgconv", 34 << 10},
             {"brg", 76 << 10}, /* a product */
             {"", 30 << 10}};

struct hr__dnnl_primitive {
  int reference_count;       /* with the list's mutex, as the next */
  dnnl_primitive_desc first; /* NULL once the primitive is made */
  hr_mutex mutex;
  dnnl_primitive made; /* NULL: not yet */
  atomic_int proofs;   /* -1: it gave other bits than another primitive; else how often the same */
};

static hr__dnnl_primitives *primitives(void) {
  return &hr__dnnl_opened()->primitives;
}

/* With the list's mutex. */
static dnnl_const_primitive_desc desc_of(const hr__dnnl_primitive *p) {
  dnnl_const_primitive_desc desc = p->first;
  if (desc == NULL) {
    (void)hr__dnnl()->primitive_get_primitive_desc(p->made, &desc);
  }
  return desc;
}

hr__dnnl_primitive *hr__dnnl_primitive_of(dnnl_primitive_desc desc) {
  hr__dnnl_primitive *p = desc != NULL ? hr_calloc(1, sizeof *p) : NULL;
  if (p == NULL) {
    hr__dnnl()->primitive_desc_destroy(desc);
    return NULL;
  }
  p->reference_count = 1, p->first = desc;
  hr_mutex_init(&p->mutex);
  return p;
}

hr__dnnl_primitive *hr__dnnl_primitive_retain(hr__dnnl_primitive *p) {
  hr_mutex_lock(&primitives()->mutex);
  ++p->reference_count;
  hr_mutex_unlock(&primitives()->mutex);
  return p;
}

void hr__dnnl_primitive_release(hr__dnnl_primitive *p) {
  if (p == NULL) {
    return;
  }
  hr_mutex_lock(&primitives()->mutex);
  bool is_last = --p->reference_count == 0;
  hr_mutex_unlock(&primitives()->mutex);
  if (is_last) {
    if (p->made != NULL) {
      hr__dnnl()->primitive_destroy(p->made);
    }
    hr__dnnl()->primitive_desc_destroy(p->first);
    hr_mutex_fini(&p->mutex);
    hr_free(p);
  }
}

static const char *name_of(const hr__dnnl_primitive *p) {
  const char *name = NULL;
  int code = hr__dnnl()->primitive_desc_query(desc_of(p), DNNL_QUERY_IMPL_INFO_STR, 0, &name);
  return code == DNNL_SUCCESS ? name : NULL;
}

const char *hr__dnnl_primitive_name(const hr__dnnl_primitive *p) {
  hr_mutex_lock(&primitives()->mutex);
  const char *name = name_of(p);
  hr_mutex_unlock(&primitives()->mutex);
  return name;
}

static size_t bytes_of(const hr__dnnl_primitive *p) {
  const char *name = name_of(p);
  int i = 0;
  while (name != NULL && strncmp(name, sizes[i].name, strlen(sizes[i].name)) != 0) {
    ++i;
  }
  return sizes[i].bytes;
}

size_t hr__dnnl_primitive_footprint(hr__dnnl_primitive *p) {
  hr_mutex_lock(&primitives()->mutex);
  size_t bytes = bytes_of(p) / (size_t)p->reference_count;
  hr_mutex_unlock(&primitives()->mutex);
  return bytes;
}

static dnnl_const_memory_desc layout_of(const hr__dnnl_primitive *p, int what) {
  return hr__dnnl()->primitive_desc_query_md(desc_of(p), what, 0);
}

dnnl_memory_desc hr__dnnl_primitive_layout(const hr__dnnl_primitive *p, int what) {
  dnnl_memory_desc copy = NULL;
  hr_mutex_lock(&primitives()->mutex);
  int code = hr__dnnl()->memory_desc_clone(&copy, layout_of(p, what));
  hr_mutex_unlock(&primitives()->mutex);
  return code == DNNL_SUCCESS ? copy : NULL;
}

/* With the primitive's mutex. */
static int make(hr__dnnl_primitive *p, int threads) {
  dnnl_primitive made = NULL;
  int before = hr_library_threads_set(threads);
  int code = hr__dnnl()->primitive_create(&made, p->first);
  (void)hr_library_threads_set(before);
  if (code != DNNL_SUCCESS) {
    return code;
  }
  hr_mutex_lock(&primitives()->mutex);
  dnnl_primitive_desc first = p->first;
  p->made = made, p->first = NULL;
  hr_mutex_unlock(&primitives()->mutex);
  return hr__dnnl()->primitive_desc_destroy(first);
}

int hr__dnnl_primitive_make(hr__dnnl_primitive *p, int threads, dnnl_primitive *out_made) {
  hr_mutex_lock(&p->mutex);
  int code = p->made == NULL ? make(p, threads) : DNNL_SUCCESS;
  *out_made = p->made;
  hr_mutex_unlock(&p->mutex);
  return code;
}

hr__dnnl_proof hr__dnnl_primitive_proof(const hr__dnnl_primitive *p) {
  int proofs = atomic_load_explicit(&p->proofs, memory_order_relaxed);
  return proofs < 0 ? HR__DNNL_OTHER_BITS : proofs < PROOFS_MIN ? HR__DNNL_UNPROVED : HR__DNNL_SAME_BITS;
}

void hr__dnnl_primitive_prove(hr__dnnl_primitive *p, bool has_same_bits) {
  int before = atomic_load_explicit(&p->proofs, memory_order_relaxed);
  while (before >= 0 && before < PROOFS_MIN &&
         !atomic_compare_exchange_weak(&p->proofs, &before, has_same_bits ? before + 1 : -1)) {
  }
}

/* ---- reorders ---- */

static bool is_reorder(const hr__dnnl_reorder *r, dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads) {
  const hr__dnnl_table *library = hr__dnnl();
  return r->primitive != NULL && r->threads == threads &&
         library->memory_desc_equal(layout_of(r->primitive, DNNL_QUERY_SRC), from) &&
         library->memory_desc_equal(layout_of(r->primitive, DNNL_QUERY_DST), to);
}

hr__dnnl_primitive *hr__dnnl_known_reorder(dnnl_const_memory_desc from, dnnl_const_memory_desc to, int threads) {
  hr__dnnl_primitive *found = NULL;
  hr_mutex_lock(&primitives()->mutex);
  for (int i = 0; found == NULL && i < HR__DNNL_REORDERS; ++i) {
    if (is_reorder(&primitives()->reorders[i], from, to, threads)) {
      found = primitives()->reorders[i].primitive;
      ++found->reference_count;
    }
  }
  hr_mutex_unlock(&primitives()->mutex);
  return found;
}

static void set_reorder(int place, hr__dnnl_primitive *primitive, int threads) {
  hr_mutex_lock(&primitives()->mutex);
  hr__dnnl_reorder *r = &primitives()->reorders[place < 0 ? (int)(primitives()->noted++ % HR__DNNL_REORDERS) : place];
  hr__dnnl_primitive *before = r->primitive;
  *r = (hr__dnnl_reorder){primitive, threads};
  hr_mutex_unlock(&primitives()->mutex);
  hr__dnnl_primitive_release(before);
}

void hr__dnnl_note_reorder(hr__dnnl_primitive *reorder, int threads) {
  if (reorder != NULL) {
    set_reorder(-1, hr__dnnl_primitive_retain(reorder), threads);
  }
}

void hr__dnnl_forget_reorders(void) {
  for (int i = 0; i < HR__DNNL_REORDERS; ++i) {
    set_reorder(i, NULL, 0);
  }
}
