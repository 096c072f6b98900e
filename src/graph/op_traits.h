// The facts about operators, in one table: whoever asks what an operator is like asks here.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// How many multipliers an int8 node has.
enum class Multipliers { none, one, one_per_input, one_per_channel };

struct OpTraits {
  Op op;
  std::string_view name;       ///< in recipes and checkpoints
  std::optional<Int8Op> int8;  ///< of the same name; none: fuse and convert leave none of these
  size_t least_inputs, most_inputs;
  bool windowed;         ///< has a Window; of subsample_pad's the strides count
  bool grouped;          ///< has groups
  bool has_factor;       ///< factor_h and factor_w
  bool weighted;         ///< has weights
  bool passes_codes_on;  ///< writes the codes it reads, with one set of qparams for both edges
  bool keeps_sign;       ///< gives nothing negative where no input is
  bool passes_scale_on;  ///< f(s x) = s f(x) for s > 0, each channel on its own; of relu6 once it is a relu
  Multipliers multipliers;
  int version;  ///< of the checkpoint's format that brought it
};

const OpTraits& traits(Op op);
const OpTraits& traits(Int8Op op);

inline bool has_weight(Int8Op op) { return traits(op).weighted; }
inline bool passes_codes_on(Op op) { return traits(op).passes_codes_on; }
inline bool passes_codes_on(Int8Op op) { return traits(op).passes_codes_on; }

/// Whether an int8 node may give floats: only what multiplies has a number that is not yet a code.
inline bool can_give_floats(const OpTraits& op) { return op.multipliers != Multipliers::none; }

/// A relu or relu6, alone or fused into the node: it gives nothing negative.
bool activates(const Node& node);

/// "3 inputs, needs 1 to 2", or "".
std::string arity_fault(const OpTraits& op, size_t inputs);

}  // namespace octet
