/* The ways that providers offer beside their own (provider.h), against plain loops in double precision (provider_trials.h). */
#include "base/thread.h"
#include "provider_trials.h"

static void open_provider(const hr_provider *provider) {
  random_state = 7;
  hr_status status = provider->open();
  bool is_there = status == NULL;
  hr_status_ignore(status);
  if (!is_there) {
    HR_SKIP("the provider can't be had");
  }
}

/* Checks all ways of a node; adds up which there were. */
static void check_ways(trial t, int *taken) {
  for (int way = 0; t.provider->ways[way] != NULL; ++way) {
    trial copy = t;
    taken[way] += trial_check_way(&copy, way + 1);
  }
}

static void check_windows(const hr_provider *provider, const window *list, size_t count, int layouts, hr_op op,
                          bool channels_last, int *taken) {
  for (size_t i = 0; i < count; ++i) {
    for (int turn = 0; turn < layouts; ++turn) {
      image_layout x = channels_last ? IMAGE_CHANNELS_LAST : (image_layout)turn;
      image_layout y = channels_last ? IMAGE_CHANNELS_LAST : (image_layout)random_below(IMAGE_LAYOUTS);
      bool is_weight = op == HR_OP_CONV_BACKWARD_WEIGHT;
      image_layout w = (image_layout)(is_weight || !channels_last ? random_below(IMAGE_LAYOUTS) : IMAGE_DENSE);
      trial t = window_trial(op, &list[i], HR_DTYPE_F32, x, w, y, !is_weight && random_below(2) == 0);
      t.provider = provider;
      t.writes_weights = !is_weight && random_below(2) == 0;
      check_ways(t, taken);
    }
  }
}

HR_TEST(onednn_convolves_in_every_way) {
  open_provider(&hr__onednn_provider);
  int taken[3] = {0};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
    check_windows(&hr__onednn_provider, windows, WINDOWS, 2, op, false, taken);
    check_windows(&hr__onednn_provider, windows, WINDOWS, 2, op, true, taken);
  }
  HR_ASSERT(taken[0] > 0 && taken[1] > 0); /* direct, product */
}

HR_TEST(onednn_multiplies_in_every_way) {
  open_provider(&hr__onednn_provider);
  int taken[3] = {0};
  const product sizes[] = {{0, {0}, 64, 48, 96}, {1, {3}, 40, 70, 50}, {0, {0}, 2, 64, 900}, {2, {2, 3}, 20, 64, 65}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        trial t =
            product_trial(&hr__onednn_provider, &sizes[i], HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                          (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_VECTOR + 1));
        t.writes_weights = random_below(2) == 0;
        if (t.writes_weights && b >= MATRIX_OUTPUTS) {
          continue; /* elements that are there twice can't be written */
        }
        check_ways(t, taken);
      }
    }
  }
  HR_ASSERT(taken[2] > 0 || hr_thread_count() == 1); /* threads */
}
