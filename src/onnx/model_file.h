// The ONNX file as protobuf reads it, and what is checked before anything is made of it.
#pragma once

#include <google/protobuf/arena.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "onnx.pb.h"

namespace octet {

struct OnnxFile {
  std::string name;                        ///< for messages
  std::string folder;                      ///< where external data may lie; "": there is none
  size_t size = 0;                         ///< bytes
  std::map<std::string, size_t> external;  ///< files of external data that were read, with their sizes
  int opset = 0;
  std::unique_ptr<google::protobuf::Arena> memory;  ///< owns the model
  const onnx::ModelProto* model = nullptr;
};

inline constexpr int kOldestOpset = 11, kNewestOpset = 23;

/// Parses the bytes; throws Error(data) unless they are a model with one graph and an opset from 11 to 23. An empty
/// message costs two bytes in the file and a hundred in memory: a file that would grow more than 32 times is refused.
OnnxFile open_onnx(const std::byte* data, size_t size, const std::string& name, const std::string& folder);

}  // namespace octet
