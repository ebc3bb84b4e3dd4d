// stream_graph.h: a captured piece of the stream, which can be appended again (stream_graph.cpp).
#pragma once

#include <memory>
#include <vector>

#include "record.h"

namespace headrace {

class StreamGraph {
public:
  StreamGraph() = default;
  StreamGraph(const StreamGraph &) = delete;
  ~StreamGraph();
  void capture_begin();
  void capture_end();
  void replay();
  void reset();
  int64_t record_count() const;

private:
  void take(Capture &capture);

  c10::DeviceIndex index_ = 0;
  bool is_capturing_ = false;
  hr_part *part_ = nullptr;
  std::vector<hr_buffer *> params_; // a reference of each
  std::vector<Capture::Random> randoms_;
  int64_t ticket_count_ = 0;
};

} // namespace headrace
