// The constants of an int8 network held against a second derivation from what was trained (derive_constants.h): what
// came of it, and in words. Engines and QAT graph take their constants from the same functions of src/quant, so that
// equal codes say nothing about those.
#pragma once

#include <string>
#include <vector>

namespace octet {

/// A constant of the int8 network that is not what follows from the trained weights and scales.
struct WrongConstant {
  std::string node;
  std::string what;          ///< "multiplier", "bias", "table entry" ...
  long index = -1;           ///< place in the node's list of them, as the checkpoint has it; -1: the node has one
  double stored = 0;         ///< in the int8 network
  double expected = 0;       ///< by the second derivation
  std::string text() const;  ///< "'conv1': bias 3 is 0.5, the trained weights give 0.25"
};

/// The outcome. All counts are of constants that were looked at, right or wrong.
struct DerivedConstants {
  bool derived = false;  ///< false: there were no trained weights to derive them from
  long multipliers = 0;  ///< multipliers and biases
  long table_entries = 0;
  long weights = 0;  ///< codes of weights and their scales
  long edges = 0;    ///< scales, zero points and bounds of codes
  long wrong = 0;
  std::vector<WrongConstant> first;  ///< the first wrong one of each kind of each node, in graph order

  long count() const { return multipliers + table_entries + weights + edges; }
};

/// A line for people that begins with "constants: ": how many were derived and whether they are right, else which are
/// wrong; or that they were not derived.
std::string describe(const DerivedConstants& constants);

}  // namespace octet
