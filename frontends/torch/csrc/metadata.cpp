// metadata.cpp: named flags that torch keeps with a tensor of a backend (torch._utils.set_tensor_metadata). The device
// reads none of them: it keeps the names that it is given, so that torch.save, detach and fake tensors preserve them.
#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <string>
#include <unordered_map>

#include "record.h"

namespace headrace {
namespace {

using Flags = std::unordered_map<std::string, bool>;

struct Metadata final : c10::BackendMeta { // never changed: tensors share it
  explicit Metadata(Flags flags) : flags(std::move(flags)) {}
  const Flags flags;
};

void read_flags(const Tensor &tensor, Flags &out_flags) {
  if (const auto *kept = dynamic_cast<const Metadata *>(tensor.unsafeGetTensorImpl()->get_backend_meta()))
    out_flags.insert(kept->flags.begin(), kept->flags.end());
}

// torch has removed the flags of its own, "conj" and "neg".
void write_flags(const Tensor &tensor, Flags &flags) {
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  if (!flags.empty())
    impl->set_backend_meta(c10::make_intrusive<Metadata>(flags));
  else if (impl->get_backend_meta() != nullptr)
    impl->set_backend_meta(nullptr);
}

struct MetadataRegistration {
  MetadataRegistration() {
    torch::jit::TensorBackendMetaRegistry(c10::DeviceType::PrivateUse1, &read_flags, &write_flags);
  }
} metadata_registration;

} // namespace
} // namespace headrace
