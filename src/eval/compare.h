// Layer by layer: do all programs give the same bytes? The promise of octet as a tool.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/eval/constants.h"
#include "src/eval/evaluate.h"

namespace octet {

struct LayerDifference {
  std::string layer;
  bool is_logits = false;        ///< floats instead of codes: bit patterns are compared, distances are in ULP
  long codes = 0;                ///< of program 0 over all images; a further program may stop earlier
  std::vector<long> differing;   ///< against program 0, one for each further program
  std::vector<int> largest_lsb;  ///< largest |difference| in codes (floats: in ULP, capped at the largest int)
  std::vector<bool> shown;       ///< by each further program, compared where it does; empty: by all

  bool shown_by(size_t program) const { return shown.empty() || shown[program]; }
};

struct Comparison {
  std::vector<std::string> programs;  ///< [0] is what the others are held against
  long images = 0;
  long answers = 1;                         ///< predictions of an image: one, or one for each pixel
  std::vector<LayerDifference> layers;      ///< in graph order
  std::vector<long> differing_predictions;  ///< of the only output's logits: pictures', or pixels'; of others none
  std::vector<long> program_images;         ///< how many of the images each further program was compared over
  /// Which further programs promise the bytes of program 0. Differences of the others are counted and shown, they break
  /// no promise.
  std::vector<bool> exact;
  DerivedConstants constants;  ///< for the caller to fill in: compare() runs programs, which share them

  bool promised() const;   ///< by at least one further program
  bool identical() const;  ///< promised, not one of the codes or logits compared differs, and no constant is wrong
  bool broken() const { return (promised() && !identical()) || constants.wrong > 0; }
  int first_differing_layer() const;           ///< of an exact program: index into layers; -1: none
  long codes() const;                          ///< codes and logits of program 0
  long codes(size_t program) const;            ///< that a further program was compared over, 0 being the first of them
  long differing_codes() const;                ///< over all layers and exact programs
  long differing_codes(size_t program) const;  ///< of one further program, 0 being the first of them, over all layers
};

struct NamedProgram {
  std::string name;
  Program* program;
  long images = 0;    ///< compared over the first so many images only, for slow programs; 0: all. Not for program 0
  bool exact = true;  ///< promises the reference's bytes: Engine::exact()
  /// By node, whether it shows what the node gives, other runtimes not all of it; empty: all. Not for program 0.
  std::vector<bool> shown = {};
};

/// The same with the program in it.
struct OwnedProgram {
  std::string name;
  std::unique_ptr<Program> program;
  long images = 0;
  bool exact = true;
  std::vector<bool> shown = {};
};
std::vector<NamedProgram> named(const std::vector<OwnedProgram>& programs);

/// Runs all programs over the same batches with taps on every node; holds one batch of program 0's outputs in memory.
/// Outputs of the network are those that run() returns, not those of a tap. Of a set that processes share all of them
/// get the result of the whole. Throws Error(promise) when a program does not show a node that it should, or shows it
/// with another size; Error(usage) for fewer than two programs; Error(interrupted) on Ctrl-C.
Comparison compare(const Int8Graph& graph, const std::vector<NamedProgram>& programs, const EvaluationSet& set,
                   int batch_size);

/// One line: "identical: 0 of 12,345,678 codes differ in 3 programs over 10,000 images", or "BROKEN: first at ...".
/// A program that was compared over fewer images is named with their number, one that promises nothing with what
/// differs. Wrong constants come before that: "BROKEN: 3 of 1,234 constants ...; codes: identical ...".
std::string verdict(const Comparison& comparison);

/// A table for people: one line a layer, differing layers marked; the constants; and the verdict.
std::string describe(const Comparison& comparison);

}  // namespace octet
