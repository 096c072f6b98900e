// A picture as a checkpoint's network sees it, by the function that validation uses.
#pragma once

#include <string>
#include <vector>

#include "src/data/loader.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// The picture in `file`, uint8 [height, width, channels] of the network's input: turned as its EXIF data says if the
/// checkpoint says so, resized as it says, then the centre. `notes` gets a sentence for each thing that the user may
/// not expect: what a checkpoint without a resize leaves out of a larger picture, an orientation that is not followed,
/// a 16-bit PNG that is nearly black. Throws Error(data), also for a picture that is too small, naming both sizes.
Image network_picture(const Int8Graph& graph, const std::string& file, std::vector<std::string>& notes);

}  // namespace octet
