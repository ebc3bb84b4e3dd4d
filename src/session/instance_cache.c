/* instance_cache.c: the instances of a session, by graph, dims and numbers. Those that were not used for the longest
 * time go when there are more than the session may keep, or when they need too much host memory. See graph_instance.h.
 */
#include "base/hash.h"
#include "session/graph_instance.h"

enum { KEY_MAX = 2 * HR_GRAPH_SYMBOLS_MAX };

typedef struct search {
  const hr_graph *graph;
  uint64_t hash;
  size_t count; /* of the key */
  int64_t key[KEY_MAX];
} search;

void hr__instance_cache_init(hr__instance_cache *cache) {
  hr_mutex_init(&cache->mutex);
  hr_mutex_init(&cache->making);
}

/* ---- the list ---- */

static void unlink_instance(hr__instance_cache *cache, hr__graph_instance *i) {
  *(i->newer != NULL ? &i->newer->older : &cache->newest) = i->older;
  *(i->older != NULL ? &i->older->newer : &cache->oldest) = i->newer;
}

static void link_newest(hr__instance_cache *cache, hr__graph_instance *i) {
  i->newer = NULL, i->older = cache->newest;
  *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = i;
  cache->newest = i;
}

static void drop_oldest(hr__instance_cache *cache) {
  hr__graph_instance *i = cache->oldest;
  unlink_instance(cache, i);
  hr_table_unlink(&cache->table, i->hash, i, offsetof(hr__graph_instance, same));
  --cache->count;
  cache->bytes -= (int64_t)i->host_bytes;
  hr__graph_instance_release(i);
}

void hr__instance_cache_fini(hr__instance_cache *cache) {
  while (cache->oldest != NULL) {
    drop_oldest(cache);
  }
  hr_table_fini(&cache->table);
  hr_mutex_fini(&cache->mutex);
  hr_mutex_fini(&cache->making);
}

/* ---- keys ---- */

/* Numbers of inputs behind those of the symbols: for each input how many, then they. False: there is no room. */
static bool add_numbers(search *s, const hr__fact *const *facts) {
  for (size_t i = 0; facts != NULL && i < s->graph->inputs.count; ++i) {
    size_t elements = facts[i]->numbers != NULL ? 1 : 0;
    for (int d = 0; d < facts[i]->rank; ++d) {
      elements *= (size_t)facts[i]->dims[d];
    }
    if (s->count + 1 + elements > KEY_MAX) {
      return false;
    }
    s->key[s->count++] = facts[i]->numbers != NULL ? (int64_t)elements : -1;
    for (size_t e = 0; e < elements; ++e) {
      s->key[s->count++] = facts[i]->numbers[e];
    }
  }
  return true;
}

/* The parameters' dims as numbers: those of the symbols, but all dims for a piece. */
static bool add_dims(search *s, const hr_tensor *const *params) {
  s->count = s->graph->is_piece ? 0 : s->graph->symbols.count;
  for (size_t i = 0; s->graph->is_piece && i < s->graph->inputs.count; ++i) {
    if (s->count + (size_t)params[i]->rank > KEY_MAX) {
      return false;
    }
    memcpy(s->key + s->count, params[i]->dims, (size_t)params[i]->rank * sizeof *s->key);
    s->count += (size_t)params[i]->rank;
  }
  return true;
}

static void hash_key(search *s) {
  s->hash = hr_hash_mix(HR_HASH_SEED, (uint64_t)(uintptr_t)s->graph);
  for (size_t i = 0; i < s->count; ++i) {
    s->hash = hr_hash_mix(s->hash, (uint64_t)s->key[i]);
  }
}

/* ---- finding and keeping ---- */

/* The instance, with a reference, as the newest; NULL: there is none. The cache is locked. */
static hr__graph_instance *find_instance(hr__instance_cache *cache, const search *s) {
  hr__graph_instance *i = hr_table_get(&cache->table, s->hash);
  while (i != NULL && (i->graph != s->graph || i->key_count != s->count ||
                       (s->count > 0 && memcmp(i->key, s->key, s->count * sizeof *s->key) != 0))) {
    i = i->same;
  }
  if (i != NULL && i != cache->newest) {
    unlink_instance(cache, i);
    link_newest(cache, i);
  }
  if (i != NULL) {
    hr_refcount_retain(&i->refcount);
  }
  return i;
}

/* The instance, and its place in the statistics. */
static hr__graph_instance *look_up(hr_session *session, const search *s, bool is_first) {
  hr_mutex_lock(&session->instances.mutex);
  hr__graph_instance *found = find_instance(&session->instances, s);
  session->stats.hits += found != NULL;
  session->stats.waits_for_instances += found != NULL && !is_first;
  if (found != NULL) {
    session->stats.records = found->part != NULL ? hr_part_record_count(found->part) : 0;
  }
  hr_mutex_unlock(&session->instances.mutex);
  return found;
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for an instance");
}

/* Adds an instance as the newest, and drops those beyond the limits. The cache is locked. */
static bool add_instance(hr__instance_cache *cache, hr__graph_instance *made) {
  made->same = hr_table_get(&cache->table, made->hash);
  if (!hr_table_put(&cache->table, made->hash, made)) {
    return false;
  }
  hr_refcount_retain(&made->refcount);
  link_newest(cache, made);
  ++cache->count;
  cache->bytes += (int64_t)made->host_bytes;
  while (cache->count > cache->count_max || (cache->bytes > cache->bytes_max && cache->count > 1)) {
    drop_oldest(cache);
  }
  return true;
}

static hr_status keep_instance(hr_session *session, const search *s, hr__graph_instance *made) {
  hr__instance_cache *cache = &session->instances;
  made->key = hr_calloc(s->count + 1, sizeof *made->key);
  if (made->key == NULL) {
    return no_memory();
  }
  memcpy(made->key, s->key, s->count * sizeof *made->key);
  made->key_count = s->count, made->hash = s->hash;
  made->host_bytes += s->count * sizeof *made->key;
  hr_mutex_lock(&cache->mutex);
  ++session->stats.instances;
  session->stats.records = made->part != NULL ? hr_part_record_count(made->part) : 0;
  bool is_kept = add_instance(cache, made);
  hr_mutex_unlock(&cache->mutex);
  return is_kept ? HR_OK : no_memory();
}

/* The thread that makes an instance. */
static hr_status make_instance(hr_session *session, const search *s, const hr_tensor *const *params,
                               const hr__fact *const *facts, hr__graph_instance **out_instance) {
  hr__graph_instance *made = look_up(session, s, false); /* another thread may have made it */
  hr_status status = HR_OK;
  if (made == NULL) {
    status = hr__graph_instance_make(session, s->graph, params, facts, &made);
    status = status == HR_OK ? keep_instance(session, s, made) : status;
  }
  if (status == HR_OK) {
    *out_instance = made;
  } else {
    hr__graph_instance_release(made);
  }
  return status;
}

hr_status hr__session_instance(hr_session *session, const hr_graph *graph, const hr_tensor *const *params,
                               const hr__fact *const *facts, hr__graph_instance **out_instance) {
  search s;
  s.graph = graph, s.count = 0;
  *out_instance = NULL;
  HR_RETURN_IF_ERROR(hr__graph_bind(graph, (int)graph->inputs.count, params, s.key));
  if (!add_dims(&s, params) || !add_numbers(&s, facts)) {
    return HR_OK;
  }
  hash_key(&s);
  *out_instance = look_up(session, &s, true);
  if (*out_instance != NULL) {
    return HR_OK;
  }
  hr_mutex_lock(&session->instances.making);
  hr_status status = make_instance(session, &s, params, facts, out_instance);
  hr_mutex_unlock(&session->instances.making);
  return status;
}
