// node.h: hand-written nodes of autograd's graph.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace headrace {

// torch 2.13 nodes have intrusive reference counts, older ones shared pointers.
using NodePointer = decltype(std::declval<torch::autograd::Node &>().getptr());
template <class Kind> NodePointer make_node() {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>)
    return NodePointer(new Kind);
  else
    return NodePointer(c10::make_intrusive<Kind>());
}

} // namespace headrace
