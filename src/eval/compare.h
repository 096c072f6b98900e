// SPDX-License-Identifier: Apache-2.0
// Compares programs layer by layer: do all of them give the same bytes? That is what octet promises.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/eval/derive_constants.h"
#include "src/eval/evaluate.h"

namespace octet {

/// How the outputs of one node differ. Vectors have an entry for each program after the first, which is compared with
/// the first.
struct LayerDifference {
  std::string layer;
  bool is_logits = false;        ///< floats instead of codes: bit patterns are compared, distances are in ULP
  long codes = 0;                ///< number of codes of the first program over all images
  std::vector<long> differing;   ///< number of codes that differ
  std::vector<int> largest_lsb;  ///< largest |difference| in codes (floats: in ULP, capped at the largest int)
  /// The squares, of floats, of the first program's values and of what the others differ by, summed over the images
  /// that each other program was compared on. Their ratio says more than ULP for a program that does not promise equal
  /// codes.
  std::vector<double> signal, noise;
  std::vector<bool> shown;  ///< whether the program shows this node, else it is not compared; empty: all do

  bool shown_by(size_t program) const { return shown.empty() || shown[program]; }
};

/// The result of compare(). programs[0] is what the further programs are compared with; vectors and arguments named
/// `program` count the further programs only, from 0.
struct Comparison {
  std::vector<std::string> programs;
  long images = 0;
  long answers = 1;                         ///< predictions for an image: one, or one for each pixel; 0: none, as
                                            ///< there are several outputs, or one of codes
  std::vector<LayerDifference> layers;      ///< in graph order
  std::vector<long> differing_predictions;  ///< counted if there are answers
  std::vector<long> program_images;         ///< on how many of the images each further program was compared
  std::vector<bool> exact;                  ///< whether it promises the bytes of programs[0]; else it is only counted
  DerivedConstants constants;               ///< filled in by the caller: compare() runs programs, which share them

  bool promised() const;   ///< at least one further program promises equal bytes
  bool identical() const;  ///< promised, no code or logit compared differs, and no constant is wrong
  bool broken() const { return (promised() && !identical()) || constants.wrong > 0; }
  int first_differing_layer() const;           ///< index of the first layer where an exact program differs, or -1
  long codes() const;                          ///< number of codes and logits of programs[0]
  long codes(size_t program) const;            ///< number that the further program was compared on
  long differing_codes() const;                ///< over all layers and exact programs
  long differing_codes(size_t program) const;  ///< of one further program, over all layers
};

struct NamedProgram {
  std::string name;
  Program* program;
  long images = 0;    ///< compared on the first so many images only, for slow programs; 0: all. Not for program 0
  bool exact = true;  ///< promises the reference's bytes: Engine::exact()
  /// Whether the program shows the output of each node; empty: all. Other runtimes may not show some. Not for program
  /// 0.
  std::vector<bool> shown = {};
};

/// A NamedProgram that owns its program.
struct OwnedProgram {
  std::string name;
  std::unique_ptr<Program> program;
  long images = 0;
  bool exact = true;
  std::vector<bool> shown = {};
};
std::vector<NamedProgram> named(const std::vector<OwnedProgram>& programs);

/// Runs all programs on the same batches with taps on every node; one batch of program 0's outputs is held in memory.
/// The network's outputs are those that run() returns, not those of a tap. If processes share the set, all of them get
/// the result of the whole. Throws Error(promise) when a program does not show a node that it should, or shows it with
/// another size; Error(usage) for fewer than two programs; Error(interrupted) on Ctrl-C.
Comparison compare(const Int8Graph& graph, const std::vector<NamedProgram>& programs, const EvaluationSet& set,
                   int batch_size);

/// Returns one line: "identical: 0 of 12,345,678 codes differ in 3 programs over 10,000 images", or "BROKEN: first at
/// ...". It names programs that were compared on fewer images, and what differs in those that promise nothing. Wrong
/// constants come first: "BROKEN: 3 of 1,234 constants ...; codes: identical ...".
std::string verdict(const Comparison& comparison);

/// Returns a table with a line for each layer, in which differing layers are marked; the constants; and the verdict.
std::string describe(const Comparison& comparison);

}  // namespace octet
