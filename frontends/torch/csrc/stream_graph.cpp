// stream_graph.cpp: graphs that a program captures by itself: torch.accelerator.Graph, torch.headrace.Graph.
//
// While a thread captures, its records go to a capture instead of the stream, and so do those of backward passes, which
// run on autograd's threads. Nothing runs. The graph is an hr_part without results: every buffer that somebody else
// holds when the capture ends, or that had memory, is a parameter, and each replay gets the same ones. All others are
// temporaries. A replay appends the records to the stream, so that they fuse with what comes before and after.
//
// Each replay draws new random numbers from the device's generator. Numbers of the host, such as a learning rate, stay
// as captured.
//
// Threads: one capture at a time in the process. A graph belongs to one thread at a time.
#include "stream_graph.h"

#include "device.h"
#include "extension.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define HEADRACE_HAS_GRAPHS 1
#endif

namespace headrace {

namespace {

// Optimizers that count their steps on the host would repeat the captured step: the module makes them refuse.
void watch_optimizers() {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *module = PyImport_ImportModule("headrace._counted_steps");
  python_error error;
  if (module == nullptr)
    error.persist();
  Py_XDECREF(module);
  PyGILState_Release(state);
  if (module == nullptr)
    throw error;
}

} // namespace

StreamGraph::~StreamGraph() {
  try {
    reset();
  } catch (const c10::Error &) { // it is still captured, in another thread
  }
}

void StreamGraph::reset() {
  if (std::exchange(is_capturing_, false))
    (void)shared_capture_end();
  hr_part_release(std::exchange(part_, nullptr));
  for (hr_buffer *buffer : params_)
    release_buffer(buffer);
  params_.clear();
  randoms_.clear();
}

void StreamGraph::capture_begin() {
  TORCH_CHECK(part_ == nullptr, "This graph has been captured already: reset() it first");
  watch_optimizers();
  index_ = here_index();
  shared_capture_begin();
  is_capturing_ = true;
}

void StreamGraph::capture_end() {
  TORCH_CHECK(is_capturing_, "This graph is not being captured: call capture_begin() first, in the same thread");
  std::unique_ptr<Capture> capture = shared_capture_end();
  is_capturing_ = false;
  take(*capture);
}

void StreamGraph::take(Capture &capture) {
  for (int64_t i = 0; i < hr_capture_buffer_count(capture.stream); ++i) {
    hr_buffer *buffer = hr_capture_buffer(capture.stream, i);
    if (hr_buffer_has_memory(buffer) || !hr_capture_holds_alone(capture.stream, i)) {
      hr_buffer_retain(buffer);
      params_.push_back(buffer);
    }
  }
  std::vector<int64_t> arguments;
  for (const Capture::Random &random : capture.randoms)
    arguments.insert(arguments.end(), {random.scalar, random.scalar + 1});
  hr_part_spec spec{static_cast<int>(params_.size()),
                    0,
                    static_cast<int>(arguments.size()),
                    params_.data(),
                    nullptr,
                    arguments.data()};
  hr_status status = hr_part_create(capture.stream, &spec, &part_);
  if (status != nullptr)
    reset();
  check(status);
  randoms_ = capture.randoms;
  ticket_count_ = capture.ticket_count;
}

void StreamGraph::replay() {
  TORCH_CHECK(part_ != nullptr, "This graph has not been captured");
  OnDevice on(c10::Device(c10::DeviceType::PrivateUse1, index_));
  TORCH_CHECK(capture() == nullptr || ticket_count_ == 0, "headrace: a graph inside a graph draws random numbers");
  Philox place = ticket_count_ > 0 ? next_philox(std::nullopt, ticket_count_) : Philox{0, 0};
  std::vector<hr_scalar> scalars;
  for (const Capture::Random &random : randoms_) {
    scalars.push_back(hr_scalar_i64(place.seed));
    scalars.push_back(hr_scalar_i64(place.offset + random.ticket));
  }
  check(run_and_submit_early(stream(), part_, params_.data(), nullptr, scalars.data()));
}

int64_t StreamGraph::record_count() const {
  return part_ != nullptr ? hr_part_record_count(part_) : 0;
}

// ---- torch.accelerator.Graph

#ifdef HEADRACE_HAS_GRAPHS

struct AcceleratorGraph final : at::GraphImplInterface {
  explicit AcceleratorGraph(const at::GraphImplArgs &) {}
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override {
    pool_ = pool;
    graph_.capture_begin();
  }
  void capture_end() override {
    graph_.capture_end();
  }
  void instantiate() override {} // the stream compiles it with its neighbours
  void replay() override {
    graph_.replay();
  }
  void reset() override {
    graph_.reset();
  }
  c10::MempoolId_t pool() const override {
    return pool_; // buffers that only one graph needs are temporaries, which share memory anyway
  }
  void enable_debug_mode() override {}
  void debug_dump(const std::string &) override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "headrace: HEADRACE_DUMP=folder writes the programs of graphs as texts");
  }

private:
  StreamGraph graph_;
  c10::MempoolId_t pool_{0, 0};
};

} // namespace headrace

// The key is the device's name as c10::DeviceTypeName returns it after it was renamed.
namespace at {
REGISTER_GRAPH_IMPL(HEADRACE, headrace::AcceleratorGraph)
} // namespace at

namespace headrace {

#endif

namespace {

// ---- torch.headrace.Graph: a capsule

const char *const kGraphCapsule = "headrace.graph";

void destroy_graph(PyObject *capsule) {
  delete static_cast<StreamGraph *>(PyCapsule_GetPointer(capsule, kGraphCapsule));
}

StreamGraph &graph_argument(PyObject *arguments) {
  PyObject *capsule = nullptr;
  parse(arguments, "O", &capsule);
  auto *graph = static_cast<StreamGraph *>(PyCapsule_GetPointer(capsule, kGraphCapsule));
  if (graph == nullptr)
    throw python_error();
  return *graph;
}

PyObject *make_graph(PyObject *, PyObject *) {
  return answer([] { return PyCapsule_New(new StreamGraph, kGraphCapsule, &destroy_graph); });
}

template <void (StreamGraph::*method)()> PyObject *call_graph(PyObject *, PyObject *arguments) {
  return answer([&] {
    StreamGraph &graph = graph_argument(arguments);
    {
      Unlocked unlocked;
      (graph.*method)();
    }
    Py_RETURN_NONE;
  });
}

PyObject *count_records(PyObject *, PyObject *arguments) {
  return answer([&] { return PyLong_FromLongLong(graph_argument(arguments).record_count()); });
}

PyObject *is_capturing(PyObject *, PyObject *) {
  return PyBool_FromLong(capture() != nullptr);
}

} // namespace

PyMethodDef stream_graph_functions[] = {
    {"graph_make", make_graph, METH_NOARGS, "A graph without contents."},
    {"graph_capture_begin", call_graph<&StreamGraph::capture_begin>, METH_VARARGS,
     "What this thread records is the graph."},
    {"graph_capture_end", call_graph<&StreamGraph::capture_end>, METH_VARARGS, "Ends that."},
    {"graph_replay", call_graph<&StreamGraph::replay>, METH_VARARGS,
     "Appends the graph's records to its device's stream."},
    {"graph_reset", call_graph<&StreamGraph::reset>, METH_VARARGS, "Drops the graph's contents."},
    {"graph_record_count", count_records, METH_VARARGS, "How many operations a replay appends."},
    {"is_capturing", is_capturing, METH_NOARGS, "True while this thread captures a graph."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
