// A picture as a checkpoint's network sees it, by the function that validation uses.
#pragma once

#include <string>

#include "src/data/loader.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// The evaluation transform that the checkpoint's preprocessing asks for.
Transform transform_of(const Int8Graph& graph);

/// Resized as the checkpoint says, then the centre. Without a resize `note` says what is left out of a larger picture
/// ("" when nothing is), and a smaller one is an Error(data) that names both sizes. `path` is for messages.
Image fit(const Image& image, const Transform& transform, const std::string& path, std::string& note);

}  // namespace octet
