// What a file is by its first bytes, for errors: files are given where others are expected, or under another's name.
#pragma once

#include <cstddef>

namespace octet {

/// An ONNX model begins with its ir_version and the next field of its protobuf message (onnx.ai/onnx/repo-docs/IR.md).
bool is_onnx(const std::byte* data, size_t size);

/// The length of a header that lies in the file and is a JSON object.
bool is_safetensors(const std::byte* data, size_t size);

/// What torch.save writes: a zip archive, or, before PyTorch 1.6, a pickle of protocol 2.
bool is_pytorch(const std::byte* data, size_t size);

}  // namespace octet
