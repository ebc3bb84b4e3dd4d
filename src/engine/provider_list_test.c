/* Providers and the algorithms that they list: none is left out. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hr_test.h"

#include "engine/algorithms.h"
#include "headrace/stream.h"

/* The first test of the process: nothing is open yet. */
HR_TEST(a_child_of_fork_has_whole_providers_while_a_thread_opens_them) {
#ifdef __SANITIZE_THREAD__
  HR_SKIP("the sanitizer lets no child of a process with threads start its own");
#endif
  hr_device *device;
  hr_stream *stream;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  hr_stream_open_libraries(stream);
  hr_stream_open_libraries(stream);
  pid_t children[8];
  for (int i = 0; i < 8; ++i) {
    children[i] = fork();
    if (children[i] == 0) {
      alarm(20);
      _exit(hr__algorithms_providers(HR_DIALECT_HOST)[0] == hr_providers()[0] ? 0 : 1);
    }
    usleep(4000);
  }
  for (int i = 0; i < 8; ++i) {
    int result = 0;
    HR_ASSERT(waitpid(children[i], &result, 0) == children[i]);
    HR_ASSERT_EQ(result, 0);
  }
  HR_ASSERT(hr__algorithms_providers(HR_DIALECT_HOST)[0] == hr_providers()[0]);
  hr_stream_release(stream);
  hr_device_release(device);
}

/* True if the provider is available for kernels of this dialect. */
static bool is_wanted(const hr_provider *provider, hr_dialect dialect) {
  bool runs_rows = provider->dialect == HR_DIALECT_HOST && provider->has != NULL;
  if (provider->dialect != dialect && !runs_rows) {
    return false;
  }
  hr_status status = hr__provider_open(provider);
  bool is_open = status == HR_OK;
  hr_status_ignore(status);
  return is_open;
}

HR_TEST(every_provider_that_opens_is_listed_in_order) {
  for (int dialect = 0; dialect <= HR_DIALECT_CUDA; ++dialect) {
    const hr_provider *const *listed = hr__algorithms_providers((hr_dialect)dialect);
    int count = 0;
    for (int i = 0; hr_providers()[i] != NULL; ++i) {
      if (is_wanted(hr_providers()[i], (hr_dialect)dialect)) {
        HR_ASSERT(listed[count] == hr_providers()[i]);
        ++count;
      }
    }
    HR_ASSERT(listed[count] == NULL);
  }
}

static bool may_run(const hr_provider *provider, hr_op op) {
  return provider->runs == NULL || provider->runs(op);
}

HR_TEST(a_row_lists_the_providers_that_may_run_it) {
  for (int dialect = 0; dialect <= HR_DIALECT_CUDA; ++dialect) {
    for (int op = HR_OP_NONE; op < HR_OP_COUNT; ++op) {
      const hr_provider *const *of = hr__algorithms_providers_of((hr_dialect)dialect, (hr_op)op);
      for (const hr_provider *const *all = hr__algorithms_providers((hr_dialect)dialect); *all != NULL; ++all) {
        if (may_run(*all, (hr_op)op)) {
          HR_ASSERT(*of++ == *all);
        }
      }
      HR_ASSERT(*of == NULL);
    }
  }
}

HR_TEST(a_product_is_not_passed_to_providers_of_convolutions) {
  const hr_provider *const *products = hr__algorithms_providers_of(HR_DIALECT_HOST, HR_OP_MATMUL);
  HR_ASSERT(products == hr__algorithms_providers_of(HR_DIALECT_HOST, HR_OP_MATMUL)); /* the list is made once */
  HR_ASSERT(products[0] != NULL);
  for (int i = 0; products[i] != NULL; ++i) {
    HR_ASSERT(strcmp(products[i]->name, "winograd") != 0 && strcmp(products[i]->name, "attention") != 0);
  }
}

static int count_of(const hr_provider *const *list) {
  int count = 0;
  while (list[count] != NULL) {
    ++count;
  }
  return count;
}

HR_TEST(without_memory_for_a_rows_list_all_providers_stand_in_for_it_once) {
  hr_context *context, *before;
  HR_ASSERT_OK(hr__context_create(&context));
  before = hr__context_enter(context);
  const hr_provider *const *all = hr__algorithms_providers(HR_DIALECT_HOST);
  hr__allocator_fail_after(0);
  HR_ASSERT(hr__algorithms_providers_of(HR_DIALECT_HOST, HR_OP_MATMUL) == all);
  hr__allocator_fail_after(-1);
  HR_ASSERT(count_of(hr__algorithms_providers_of(HR_DIALECT_HOST, HR_OP_MATMUL)) < count_of(all));
  hr__context_enter(before);
  hr__context_destroy(context);
}

HR_TEST(a_list_of_algorithms_has_room_for_a_dialects_providers) {
  for (int dialect = 0; dialect <= HR_DIALECT_CUDA; ++dialect) {
    int count = 0;
    for (int i = 0; hr_providers()[i] != NULL; ++i) {
      const hr_provider *provider = hr_providers()[i];
      bool is_listed =
          (int)provider->dialect == dialect || (provider->dialect == HR_DIALECT_HOST && provider->has != NULL);
      for (int algorithm = HR_ALGORITHM_OWN;
           is_listed && (algorithm < 0 || (provider->algorithms != NULL && provider->algorithms[algorithm] != NULL));
           ++algorithm) {
        ++count;
      }
    }
    HR_ASSERT(count <= HR_ALGORITHMS_MAX);
  }
}

HR_TEST(composites_that_no_provider_runs_are_not_asked_for) {
  hr_device *device;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT(hr__algorithms_may_keep(device, HR_OP_ATTENTION));
  HR_ASSERT(hr__algorithms_may_keep(device, HR_OP_MATMUL));
  HR_ASSERT(hr__algorithms_may_keep(device, HR_OP_SORT) && hr__algorithms_may_keep(device, HR_OP_CALL));
  HR_ASSERT(!hr__algorithms_may_keep(device, HR_OP_SOFTMAX) && !hr__algorithms_may_keep(device, HR_OP_LAYER_NORM));
  hr_device_release(device);
}
