/* layers.c: layers of LSTM and GRU, and their gradients, on CUDA devices: all steps in one launch (layers.text).
 *
 * A step by itself is short, and needs all of the one before: as kernels, steps are bound by their launches. Here the
 * blocks of a cluster keep the weights in registers and shared memory for all steps, and hand states to each other.
 * Clusters divide the batch; they need not wait for each other.
 *
 * Supports f32, with the operands of layer_places.h, up to HIDDEN_MOST hidden numbers. Larger layers and batches are
 * lowered (lower_sequence.c), because products of many rows run well in a library. Needs a device with clusters.
 *
 * Numbers: cells have the bits of lower_cell.c. The bits of products depend on the sizes of the layer, and neither on
 * the batch nor on strides.
 */
#include "base/integer.h"
#include "providers/cuda_limits.h"
#include "providers/device_text.h"
#include "providers/layer_places.h"

enum {
  ARCHITECTURE_MIN = 9, /* clusters */
  HIDDEN_MOST = 512,
  CLUSTER_MOST = 16,
  CLUSTER_PORTABLE = 8, /* every such device runs clusters of as many blocks */
  ROWS_OF_STEP = 2,
  THREADS_MOST = 512, /* with 128 registers each */
  TILES_MOST = 2,
  EACH_MOST = 16, /* numbers of a sum's depth for each thread */
  WAVES_MOST = 2, /* rounds of clusters; 1 if registers do not hold the weights */
  WARP = 32,
  WORD_COUNT = 2
};

typedef struct layer {
  hr__place places[HR__ROLES];
  bool is_lstm, is_backward;
  int64_t steps, batch;
  int hidden, gates, depth, out;
  int team, each;            /* threads of a team; numbers for each */
  int cluster, units, teams; /* of a block */
  int tiles, threads, rows, buffers;
  int64_t clusters;
} layer;

/* ---- supported nodes ---- */

static void find_sizes(const hr_node *node, layer *l) {
  const hr_operand *weight = &node->inputs[l->places[WEIGHT].arg], *first = &node->outputs[0]; /* [T, N, ..] */
  l->is_lstm = node->op == HR_OP_LSTM || node->op == HR_OP_LSTM_BACKWARD;
  l->is_backward = node->op == HR_OP_LSTM_BACKWARD || node->op == HR_OP_GRU_BACKWARD;
  l->steps = first->dims[0], l->batch = first->dims[1];
  l->hidden = (int)hr_min(weight->dims[1], INT32_MAX);
  l->gates = l->is_lstm ? 4 : 3;
}

static void find_teams(layer *l) {
  l->out = l->is_backward ? 4 : l->gates;
  l->depth = l->is_backward ? l->gates * l->hidden : l->hidden;
  for (l->team = 1; l->team * EACH_MOST < l->depth;) {
    l->team *= 2;
  }
  l->each = (int)hr_round_up(hr_divide_up(l->depth, l->team), 4);
}

/* The fewest blocks in whose registers the weights fit; the largest clusters have a part of them in shared memory. */
static void find_cluster(layer *l) {
  for (l->cluster = 1;; l->cluster *= 2) {
    l->units = (int)hr_divide_up(l->hidden, l->cluster);
    l->teams = l->is_backward ? (int)hr_divide_up(l->units, l->out) : l->units;
    l->tiles = (int)hr_divide_up((int64_t)l->teams * l->team, THREADS_MOST);
    if (l->tiles == 1 || l->cluster == CLUSTER_MOST) {
      break;
    }
  }
  int threads = (int)hr_divide_up(l->teams, l->tiles) * l->team;
  l->threads = (int)hr_round_up(threads, WARP);
}

static int shared_of(const layer *l) {
  int parts = l->team > WARP ? l->team / WARP : 1;
  int sums = parts * l->rows * l->teams * l->out, handed = l->buffers * l->rows * l->team * l->each;
  return 4 * (sums + handed + (l->tiles - 1) * l->out * l->each * l->threads);
}

static bool fits(const layer *l) {
  return shared_of(l) <= hr__cuda_limits_known()->shared_bytes;
}

/* Clusters of more than two blocks leave processors idle: of an H200's 132 they use 120, or 112. */
static int64_t clusters_at_once(const layer *l) {
  int64_t processors = hr__cuda_limits_known()->processors;
  return hr_max((l->cluster > 2 ? processors * 10 / 11 : processors) / l->cluster, 1);
}

/* A step takes about as long as ROWS_OF_STEP rows more. False: there are too many clusters, or too large ones. */
static bool find_rows(layer *l) {
  static const int choices[] = {1, 2, 3, 4, 5, 8, 10, 12};
  int64_t at_once = clusters_at_once(l), most = l->tiles > 1 ? 1 : WAVES_MOST, least = INT64_MAX;
  for (size_t i = 0; i < sizeof choices / sizeof *choices; ++i) {
    layer with = *l;
    with.rows = choices[i], with.buffers = 2;
    with.buffers = fits(&with) ? 2 : 1;
    with.clusters = hr_divide_up(l->batch, with.rows);
    int64_t waves = hr_divide_up(with.clusters, at_once), cost = waves * (with.rows + ROWS_OF_STEP);
    if (fits(&with) && waves <= most && cost < least) {
      least = cost, *l = with;
    }
  }
  return least < INT64_MAX;
}

static bool is_layer(const hr_node *node, layer *l) {
  *l = (layer){.steps = 0};
  if (!hr__find_layer_places(node, l->places)) {
    return false;
  }
  find_sizes(node, l);
  if (l->steps < 1 || l->batch < 1 || l->hidden < 1 || l->hidden > HIDDEN_MOST) {
    return false;
  }
  find_teams(l);
  find_cluster(l);
  return l->tiles <= TILES_MOST && find_rows(l);
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  layer l;
  return is_layer(node, &l);
}

/* ---- the text ---- */

static const char *const texts[] = {
#include "providers/layers/layers_text.inc"
};

static void write_text(const hr_node *node, const layer *l, hr_text *text) {
  static const char *const names[HR__ROLES] = {"GATES",     "H0",        "C0",      "WEIGHT", "BIAS",      "STATES",
                                               "CELLS",     "WORKSPACE", "LAST_H",  "LAST_C", "BY_STATES", "BY_LAST_H",
                                               "BY_LAST_C", "DGATES",    "DHIDDEN", "DH0",    "DC0"};
  const hr__device_definition definitions[] = {{"GATE_COUNT", l->gates},
                                               {"HIDDEN", l->hidden},
                                               {"IS_LSTM", l->is_lstm},
                                               {"IS_BACKWARD", l->is_backward},
                                               {"IS_REVERSE", node->ints[0] != 0},
                                               {"DEPTH", l->depth},
                                               {"CLUSTER", l->cluster},
                                               {"UNITS", l->units},
                                               {"ROWS", l->rows},
                                               {"TEAM", l->team},
                                               {"OUT", l->out},
                                               {"EACH", l->each},
                                               {"TEAMS", l->teams},
                                               {"TILES", l->tiles},
                                               {"THREADS", l->threads},
                                               {"BUFFERS", l->buffers},
                                               {"ARGS", node->input_count + node->output_count}};
  hr__device_text_define(text, sizeof definitions / sizeof *definitions, definitions);
  for (int role = 0; role < HR__ROLES; ++role) {
    int arg = l->places[role].arg;
    hr_text_printf(text, "#define HAS_%s %d\n#define ARG_%s %d\n", names[role], arg >= 0, names[role],
                   arg >= 0 ? arg : 0);
  }
  hr_text_append_all(text, sizeof texts / sizeof *texts, texts);
}

static void write_words(const hr_node *node, const layer *l, hr_device_source *source) {
  source->words[0] = l->steps, source->words[1] = l->batch;
  for (int role = 0; role < HR__ROLES; ++role) {
    const hr__place *place = &l->places[role];
    if (place->arg >= 0) {
      int64_t *words = source->words + WORD_COUNT + 4 * place->arg;
      words[0] = place->offset, words[1] = place->time, words[2] = place->row, words[3] = place->column;
    }
  }
  source->word_count = WORD_COUNT + 4 * (node->input_count + node->output_count);
}

static hr_status write(const hr_program *program, const hr_node *node, hr_device_source *out_source) {
  (void)program;
  layer l;
  hr_device_source source = {.name = "hr_layers", .pass_count = 1};
  if (!is_layer(node, &l)) {
    return hr_status_make(HR_STATUS_INTERNAL, "layers: a layer that it does not support");
  }
  write_text(node, &l, &source.text);
  write_words(node, &l, &source);
  source.blocks[0] = l.clusters * l.cluster;
  source.has_large_clusters = l.cluster > CLUSTER_PORTABLE;
  source.threads[0] = l.threads;
  source.shared[0] = shared_of(&l);
  return hr__device_text_finish(&source, out_source);
}

static hr_status open_provider(void) {
  return hr__cuda_limits_find("layers", ARCHITECTURE_MIN);
}

const hr_provider hr__layers_provider = {
    .name = "layers",
    .dialect = HR_DIALECT_CUDA,
    .open = open_provider,
    .runs = hr__is_layer,
    .supports = supports,
    .write = write,
};
