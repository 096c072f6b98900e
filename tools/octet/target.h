// What commands are pointed at: a checkpoint file or a run directory, and pictures for it.
#pragma once

#include <string>

#include "src/data/loader.h"
#include "src/eval/run_directory.h"
#include "src/graph/int8_graph.h"

namespace octet::cli {

/// "runs/demo" -> "runs/demo/int8.safetensors"; a file stays as it is. Throws Error(data) when neither is there.
std::string checkpoint_of(const std::string& path);

/// The run directory at `path`; throws Error(data) when it is none.
RunDirectory run_directory(const std::string& path);

/// The evaluation transform that the checkpoint's preprocessing asks for.
Transform transform_of(const Int8Graph& graph);

/// A picture as the network's input: resize and crop as the checkpoint says; without these the picture must already
/// have the input's size, or an Error(data) names both sizes.
Image fit(const Image& image, const Transform& transform, const std::string& path);

}  // namespace octet::cli
