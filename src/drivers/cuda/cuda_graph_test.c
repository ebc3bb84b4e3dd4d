/* Graphs of the CUDA driver on a stand-in for libcuda (cuda_stand_in.h): captured nodes, their dependencies, and
 * failures. On a GPU they are replayed in cuda_kernel_test.c.
 */
#include "cuda_stand_in.h"

/* ---- graphs, on the stand-in ---- */

/* Three passes, one of which has nothing to do, on one argument with one scalar. */
static hr_device_kernel graph_kernel(const char *name) {
  return (hr_device_kernel){.base = {.name = name, .pass_count = 3},
                            .functions = {(void *)0x10, NULL, (void *)0x20},
                            .blocks = {3, 0, 5},
                            .threads = {32, 0, 64},
                            .shared = {16, 0, 50 << 10},
                            .arg_count = 1,
                            .scalar_count = 1};
}

static hr_status give(void *impl, const hr_device_kernel *kernel, void *arg, const hr_scalar *scalar) {
  return DRIVER->launch(impl, 1, &(hr_host_launch){&kernel->base, {.args = &arg, .scalars = scalar}});
}

static hr_status update(void *impl, void *graph, int index, const hr_device_kernel *kernel, void *arg,
                        const hr_scalar *scalar) {
  const hr_host_launch launch = {&kernel->base, {.args = &arg, .scalars = scalar}};
  return DRIVER->graph_update(impl, graph, index, &launch);
}

/* The argument and the scalar of the kernel that ran last. */
static void check_last(void *arg, double value) {
  struct {
    void *workspace, *arg;
    hr_scalar scalar;
  } seen;
  HR_ASSERT_EQ(fake_parameter_bytes, sizeof seen);
  memcpy(&seen, fake_parameters, sizeof seen);
  HR_ASSERT(seen.arg == arg && seen.scalar.value.f[0] == value);
}

HR_TEST(a_graph_runs_its_capture_with_the_latest_updates) {
  void *impl = open_fake(), *queue = NULL, *graph = NULL, *block;
  hr_device_kernel first = graph_kernel("first"), last = graph_kernel("last");
  hr_scalar scalars[3] = {hr_scalar_f64(1), hr_scalar_f64(2), hr_scalar_f64(3)};
  char bytes[8] = "capture", back[8] = "";
  HR_ASSERT_OK(DRIVER->allocate(impl, 8, &block));
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT(queue != NULL && queue != DRIVER->native(impl));
  HR_ASSERT_OK(give(impl, &first, (void *)0x100, &scalars[0]));
  HR_ASSERT_OK(DRIVER->copy_in(impl, block, bytes, sizeof bytes)); /* no part of it, as flush is none */
  HR_ASSERT_OK(DRIVER->flush(impl));
  HR_ASSERT_OK(give(impl, &last, (void *)0x200, &scalars[1]));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_launches, 0);
  HR_ASSERT_OK(DRIVER->copy_out(impl, back, block, sizeof back));
  HR_ASSERT_STR_EQ(back, "capture");
  for (int i = 1; i <= 2; ++i) {
    HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
    HR_ASSERT_EQ(fake_launches, 4 * i);
    check_last((void *)0x200, 2);
  }
  HR_ASSERT_OK(update(impl, graph, 1, &last, (void *)0x300, &scalars[2]));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last((void *)0x300, 3);
  HR_ASSERT_OK(
      update(impl, graph, 0, &first, (void *)0x400, &scalars[0])); /* another kernel's, to be seen by none after it */
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last((void *)0x300, 3);
  HR_ASSERT_OK(give(impl, &first, (void *)0x500, &scalars[0])); /* runs at once again */
  HR_ASSERT_EQ(fake_launches, 18);
  check_last((void *)0x500, 1);
  DRIVER->graph_destroy(impl, graph);
  DRIVER->graph_destroy(impl, NULL);
  DRIVER->free(impl, block, 8);
  close_fake(impl);
}

/* The nodes that captured node `at` waits for, directly or indirectly. */
static uint64_t all_before(int at) {
  uint64_t all = 0;
  for (int i = 0; i < at; ++i) {
    all |= (fake_capture.nodes[at].waits_for >> i & 1) != 0 ? all_before(i) | UINT64_C(1) << i : 0;
  }
  return all;
}

HR_TEST(kernels_given_together_do_not_wait_for_each_other) {
  enum { COUNT = 11, FIRST = 2, BEHIND = FIRST + 2 * (COUNT - 1) };
  void *impl = open_fake(), *queue, *graph;
  hr_device_kernel kernel = graph_kernel("kernel"), idle = kernel;
  hr_scalar scalar = hr_scalar_f64(1), other = hr_scalar_f64(2);
  void *arg = (void *)0x100;
  hr_host_launch launches[COUNT];
  idle.blocks[0] = idle.blocks[2] = 0;
  for (int i = 0; i < COUNT; ++i) {
    launches[i] = (hr_host_launch){i == 3 ? &idle.base : &kernel.base, {.args = &arg, .scalars = &scalar}};
  }
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, launches));
  HR_ASSERT_OK(DRIVER->launch(impl, COUNT, launches));
  HR_ASSERT_OK(DRIVER->launch(impl, 1, launches));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, BEHIND + 2);
  int alone = 0;
  for (int i = FIRST; i < BEHIND; i += 2) { /* the passes of a kernel */
    HR_ASSERT_EQ(fake_capture.nodes[i + 1].waits_for, UINT64_C(1) << i);
    HR_ASSERT_EQ(all_before(i) & 3, 3);
    alone += all_before(i) == 3;
  }
  HR_ASSERT_EQ(alone, 7); /* one of eight lanes has the idle one; the others are after one of them */
  HR_ASSERT_EQ(all_before(BEHIND), (UINT64_C(1) << BEHIND) - 1);
  launches[0].call.scalars = &other;
  HR_ASSERT_OK(DRIVER->graph_update(impl, graph, COUNT + 1, &launches[0]));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  check_last(arg, 2);
  DRIVER->graph_destroy(impl, graph);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue)); /* nothing before them, nothing to do, nothing after */
  HR_ASSERT_OK(DRIVER->launch(impl, 2, (hr_host_launch[]){launches[3], launches[3]}));
  HR_ASSERT_OK(DRIVER->launch(impl, 2, launches));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, 4);
  HR_ASSERT_EQ(fake_capture.nodes[2].waits_for, 0);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(kernels_that_wait_by_themselves_start_early) {
  enum { COUNT = 10, BEHIND = 4 + 2 * COUNT };
  void *impl = open_fake(), *queue, *graph, *arg = (void *)0x100;
  hr_device_kernel kernel = graph_kernel("kernel"), early = kernel;
  hr_scalar scalar = hr_scalar_f64(1);
  hr_host_launch launches[COUNT];
  early.begins_early = true;
  for (int i = 0; i < COUNT; ++i) {
    launches[i] = (hr_host_launch){&early.base, {.args = &arg, .scalars = &scalar}};
  }
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &early, arg, &scalar)); /* nodes 0 and 1: nothing is in front of the first */
  HR_ASSERT_OK(give(impl, &kernel, arg, &scalar));
  HR_ASSERT_OK(DRIVER->launch(impl, COUNT, launches));
  HR_ASSERT_OK(give(impl, &early, arg, &scalar)); /* after the ends of eight lanes */
  fake_type = CU_GRAPH_NODE_TYPE_MEMSET;
  HR_ASSERT_OK(give(impl, &early, arg, &scalar));
  fake_type = CU_GRAPH_NODE_TYPE_KERNEL;
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_EQ(fake_capture.count, BEHIND + 4);
  for (int i = 0; i < fake_capture.count; ++i) {
    bool is_early = (i >= 4 && i < BEHIND + 2) || i == 1;
    HR_ASSERT_EQ(fake_capture.nodes[i].is_early, is_early);
    HR_ASSERT_EQ(all_before(i) & 15, i < 4 ? (1 << i) - 1 : 15); /* and in the same order */
  }
  HR_ASSERT_EQ(all_before(BEHIND), (UINT64_C(1) << BEHIND) - 1);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(kernels_of_a_driver_without_properties_of_edges_start_one_after_the_other) {
  void *impl = open_fake(), *queue, *graph;
  hr__cuda_table old = fake;
  hr_device_kernel early = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  early.begins_early = true;
  old.cuStreamUpdateCaptureDependencies_v2 = NULL;
  hr__cuda_replace(&old, 1);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &early, (void *)0x100, &scalar));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT(fake_capture.count == 2 && !fake_capture.nodes[0].is_early && !fake_capture.nodes[1].is_early);
  DRIVER->graph_destroy(impl, graph);
  hr__cuda_replace(&fake, 1);
  close_fake(impl);
}

static hr_status wait_for_queue(void *queue) {
  return hr__cuda_status(hr__cuda()->cuStreamSynchronize(queue), "waiting");
}

HR_TEST(a_capture_that_fails_leaves_nothing_and_the_next_one_works) {
  void *impl = open_fake(), *queue, *graph = NULL;
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  for (int i = 0; i < 2; ++i) {
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
    HR_ASSERT_STATUS(DRIVER->call(impl, wait_for_queue, queue), HR_STATUS_INTERNAL);
    HR_ASSERT_STATUS(DRIVER->capture_end(impl, i == 0 ? &graph : NULL), HR_STATUS_INTERNAL);
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    fake_no_room = 1;
    HR_ASSERT_STATUS(DRIVER->capture_end(impl, &graph), HR_STATUS_RESOURCE_EXHAUSTED);
    fake_no_room = 0;
    HR_ASSERT_NULL(graph);
    HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
    HR_ASSERT_OK(DRIVER->capture_end(impl, NULL)); /* forgotten */
  }
  HR_ASSERT_EQ(fake_launches, 0);
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_OK(DRIVER->capture_end(impl, &graph));
  HR_ASSERT_OK(DRIVER->graph_launch(impl, graph));
  HR_ASSERT_EQ(fake_launches, 2);
  DRIVER->graph_destroy(impl, graph);
  close_fake(impl);
}

HR_TEST(a_capture_that_cannot_be_ended_leaves_nothing) {
  void *impl = open_fake(), *queue, *graph = NULL;
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  int64_t live = hr__allocator_live();
  HR_ASSERT_OK(DRIVER->capture_begin(impl, &queue));
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  fake_refuses_contexts = true;
  HR_ASSERT_STATUS(DRIVER->capture_end(impl, &graph), HR_STATUS_INTERNAL);
  fake_refuses_contexts = false;
  HR_ASSERT_NULL(graph);
  HR_ASSERT_EQ(hr__allocator_live(), live);
  fake_captured = NULL; /* CUDA's own end of it */
  free(fake_names);
  fake_names = NULL;
  close_fake(impl);
}

HR_TEST(shared_memory_is_allowed_once_for_each_function) {
  void *impl = open_fake(), *module, *functions[1];
  hr_device_kernel kernel = graph_kernel("kernel"), other = kernel;
  hr_scalar scalar = hr_scalar_f64(1);
  other.functions[2] = (void *)0x30;
  fake_attributes = 0;
  for (int i = 0; i < 5; ++i) {
    HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  }
  HR_ASSERT_EQ(fake_attributes, 1);
  HR_ASSERT_OK(give(impl, &other, (void *)0x100, &scalar));
  kernel.shared[2] = 49 << 10; /* less than is allowed */
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_EQ(fake_attributes, 2);
  kernel.shared[2] = 60 << 10;
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_EQ(fake_attributes, 3);
  HR_ASSERT_OK(DRIVER->load(impl, "image", 5, 1, (const char *const[]){"a"}, &module, functions));
  DRIVER->unload(impl, module); /* a function loaded later may have the address of one that went */
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_EQ(fake_attributes, 4);
  close_fake(impl);
}

HR_TEST(large_clusters_are_allowed_once_for_each_function) {
  void *impl = open_fake();
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  fake_large_clusters = 0;
  HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  HR_ASSERT_EQ(fake_large_clusters, 0);
  kernel.has_large_clusters = true;
  kernel.functions[0] = (void *)0x40, kernel.functions[1] = (void *)0x50, kernel.functions[2] = (void *)0x60;
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT_OK(give(impl, &kernel, (void *)0x100, &scalar));
  }
  HR_ASSERT_EQ(fake_large_clusters, kernel.base.pass_count - 1); /* one has no blocks */
  close_fake(impl);
}

HR_TEST(a_driver_without_graphs_says_so) {
  void *impl = open_fake(), *queue = NULL;
  hr__cuda_table old = fake;
  old.cuGraphLaunch = NULL;
  hr__cuda_replace(&old, 1);
  HR_ASSERT_ERROR(DRIVER->capture_begin(impl, &queue), HR_STATUS_UNIMPLEMENTED, "11.4");
  HR_ASSERT_NULL(queue);
  hr__cuda_replace(&fake, 1);
  close_fake(impl);
}

static void *oom_impl;

static hr_status capture_two(void) {
  void *queue, *graph = NULL;
  hr_device_kernel kernel = graph_kernel("kernel");
  hr_scalar scalar = hr_scalar_f64(1);
  HR_RETURN_IF_ERROR(DRIVER->capture_begin(oom_impl, &queue));
  hr_status status = give(oom_impl, &kernel, (void *)0x100, &scalar);
  if (status == HR_OK) {
    status = give(oom_impl, &kernel, (void *)0x100, &scalar);
  }
  hr_status ended = DRIVER->capture_end(oom_impl, status == HR_OK ? &graph : NULL);
  DRIVER->graph_destroy(oom_impl, graph);
  hr_status_ignore(status != HR_OK ? ended : HR_OK);
  return status != HR_OK ? status : ended;
}

HR_TEST(a_capture_without_host_memory_fails_and_leaks_nothing) {
  oom_impl = open_fake();
  HR_TEST_OOM(capture_two);
  close_fake(oom_impl);
}
