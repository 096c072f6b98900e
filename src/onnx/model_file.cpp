#include "src/onnx/model_file.h"

#include <fmt/format.h>

#include <limits>
#include <new>

#include "src/common/error.h"
#include "src/tensor_files/file_kind.h"

namespace octet {
namespace {

constexpr size_t kMaxGrowth = 32, kAlwaysAllowed = size_t{1} << 20;

thread_local size_t memory_left = 0;  // of the parse that runs on this thread

struct OutOfBudget {};

void* allocate_block(size_t size) {
  if (size > memory_left) throw OutOfBudget{};
  memory_left -= size;
  return ::operator new(size);
}

void free_block(void* block, size_t) { ::operator delete(block); }

[[noreturn]] void fail(const OnnxFile& file, const std::string& what) {
  throw data_error(fmt::format("{}: {}", file.name, what));
}

int opset_of(const OnnxFile& file) {
  int opset = 0;
  for (const onnx::OperatorSetIdProto& set : file.model->opset_import()) {
    if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
    if (opset != 0) fail(file, "names ONNX's operator set twice");
    if (set.version() < kOldestOpset || set.version() > kNewestOpset) {
      fail(file, fmt::format("opset {}; octet reads {} to {}: export the network again, torch.onnx.export(..., "
                             "opset_version=17)",
                             set.version(), kOldestOpset, kNewestOpset));
    }
    opset = static_cast<int>(set.version());
  }
  if (opset == 0) fail(file, "does not say its opset: not an ONNX model");
  return opset;
}

}  // namespace

OnnxFile open_onnx(const std::byte* data, size_t size, const std::string& name, const std::string& folder) {
  OnnxFile file{.name = name, .folder = folder, .size = size};
  if (is_safetensors(data, size))
    fail(file, "a safetensors file, not an ONNX model; octet takes it under a name that ends in .safetensors");
  if (size > static_cast<size_t>(std::numeric_limits<int>::max()))
    fail(file, "larger than 2 GB, which no ONNX file is; keep weights in external data");
  memory_left = kMaxGrowth * size + kAlwaysAllowed;
  google::protobuf::ArenaOptions options;
  options.block_alloc = allocate_block;
  options.block_dealloc = free_block;
  file.memory = std::make_unique<google::protobuf::Arena>(options);
  try {
    auto* model = google::protobuf::Arena::CreateMessage<onnx::ModelProto>(file.memory.get());
    file.model = model;
    if (!model->ParseFromArray(data, static_cast<int>(size))) fail(file, "damaged, or not an ONNX model");
  } catch (const OutOfBudget&) {
    fail(file, fmt::format("would take more than {} times its size in memory: not an ONNX model", kMaxGrowth));
  }
  if (!file.model->has_graph()) fail(file, "has no graph: not an ONNX model");
  file.opset = opset_of(file);
  if (file.model->graph().sparse_initializer_size() > 0)
    fail(file, "holds sparse weights; octet reads dense float32 weights");
  return file;
}

}  // namespace octet
