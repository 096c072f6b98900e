// The cpu engine computes on uint8 only: signed edges are shifted by +128 when a network is compiled.
#pragma once

#include "src/graph/int8_graph.h"

namespace octet {

/// Added to every code, zero point and clamp of a signed edge. As bytes: the highest bit flipped.
inline constexpr int kSignedShift = 128;

/// The same network with uint8 edges everywhere: same reals, same logits, codes of signed edges raised by kSignedShift.
Int8Graph with_unsigned_edges(Int8Graph graph);

}  // namespace octet
