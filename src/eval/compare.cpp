// SPDX-License-Identifier: Apache-2.0
#include "src/eval/compare.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <limits>

#include "kernels/core/cpu.h"
#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/threads.h"
#include "src/eval/metrics.h"

namespace octet {
namespace {

struct Difference {
  long count = 0;
  int largest = 0;
  double signal = 0, noise = 0;  ///< of floats
};

/// Compares up to kBlock codes, without branches, so that the compiler makes vector code of it.
constexpr size_t kBlock = 4096;
template <typename Code>
inline __attribute__((always_inline)) Difference block_difference(const uint8_t* a, const uint8_t* b, size_t count) {
  int differing = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const int distance = std::abs(static_cast<Code>(a[i]) - static_cast<Code>(b[i]));
    differing += distance != 0;
    largest = std::max(largest, distance);
  }
  return {differing, largest};
}

template <typename Code>
OCTET_CLONES Difference code_difference(const uint8_t* a, const uint8_t* b, size_t count) {
  Difference d;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const Difference block = block_difference<Code>(a + begin, b + begin, std::min(kBlock, count - begin));
    d.count += block.count;
    d.largest = std::max(d.largest, block.largest);
  }
  return d;
}

/// Maps a float to an integer such that the order stays and a difference counts the floats in between (ULP).
int64_t ordered_bits(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits >= 0 ? bits : static_cast<int64_t>(std::numeric_limits<int32_t>::min()) - bits;
}

/// Compares bit patterns: 0 and -0 differ, and a NaN equals itself.
Difference float_difference(const float* a, const float* b, size_t count) {
  Difference d;
  for (size_t i = 0; i < count; ++i) {
    const double from = a[i], difference = from - b[i];
    d.signal += from * from;
    if (std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i])) continue;
    d.noise += difference * difference;
    ++d.count;
    const int64_t ulp = std::max<int64_t>(1, std::abs(ordered_bits(a[i]) - ordered_bits(b[i])));
    d.largest = std::max(d.largest, static_cast<int>(std::min<int64_t>(ulp, std::numeric_limits<int>::max())));
  }
  return d;
}

bool is_output(const Int8Graph& graph, size_t node) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), static_cast<int>(node)) != graph.outputs.end();
}

/// Returns whether the network's only output are logits, whose arg max is a prediction.
bool predicts(const Int8Graph& graph) {
  return graph.outputs.size() == 1 && graph.nodes[graph.outputs[0]].float_output;
}

bool shows(const NamedProgram& program, size_t node) { return program.shown.empty() || program.shown[node]; }

/// Checks the taps of one run: each node that the program shows, other than the network's outputs, must come once and
/// with all of its bytes.
class TapCheck {
 public:
  TapCheck(const Int8Graph& graph, const NamedProgram& program, int batch)
      : graph_(graph), program_(program), batch_(batch), seen_(graph.nodes.size()) {}

  /// Returns whether this node's data can be compared. Throwing here would unwind through the program, so finish()
  /// throws what is wrong.
  bool accept(int node, size_t bytes) {
    if (node < 0 || node >= static_cast<int>(seen_.size())) return fail(fmt::format("showed a node {}", node));
    const Int8Node& n = graph_.nodes[node];
    const size_t expected = n.image_bytes() * batch_;
    if (bytes != expected) {
      return fail(fmt::format("showed {} bytes of '{}', expected {}", bytes, n.name, expected));
    }
    if (seen_[node]) return fail(fmt::format("showed '{}' twice", n.name));
    seen_[node] = true;
    return !is_output(graph_, node);
  }

  void finish() {
    for (size_t node = 0; node < seen_.size() && !problem_; ++node) {
      if (!seen_[node] && !is_output(graph_, node) && shows(program_, node))
        fail(fmt::format("never showed '{}'", graph_.nodes[node].name));
    }
    if (problem_) throw promise_error(fmt::format("compare: program {} {}", program_.name, *problem_));
  }

 private:
  bool fail(std::string problem) {
    if (!problem_) problem_ = std::move(problem);
    return false;
  }
  const Int8Graph& graph_;
  const NamedProgram& program_;
  int batch_;
  std::vector<bool> seen_;
  std::optional<std::string> problem_;
};

Comparison empty_comparison(const Int8Graph& graph, const std::vector<NamedProgram>& programs) {
  Comparison c;
  for (const auto& p : programs) c.programs.push_back(p.name);
  const size_t others = programs.size() - 1;
  for (const Int8Node& node : graph.nodes) {
    LayerDifference& layer = c.layers.emplace_back();
    layer = {.layer = node.name,
             .is_logits = node.float_output,
             .differing = std::vector<long>(others),
             .largest_lsb = std::vector<int>(others),
             .signal = std::vector<double>(others),
             .noise = std::vector<double>(others)};
    for (size_t p = 1; p < programs.size(); ++p) layer.shown.push_back(shows(programs[p], c.layers.size() - 1));
  }
  c.differing_predictions.resize(others);
  const Shape& output = graph.nodes[graph.outputs[0]].shape;
  c.answers = predicts(graph) ? static_cast<long>(output.h) * output.w : 0;
  c.program_images.resize(others);
  for (size_t other = 1; other < programs.size(); ++other)
    c.exact.push_back(programs[0].exact && programs[other].exact);
  return c;
}

void record(LayerDifference& layer, size_t other, const Difference& d) {
  layer.differing[other] += d.count;
  layer.largest_lsb[other] = std::max(layer.largest_lsb[other], d.largest);
  layer.signal[other] += d.signal;
  layer.noise[other] += d.noise;
}

/// Returns how many images of a batch a program is still compared on.
int wanted_images(const NamedProgram& program, long seen, int batch) {
  return program.images == 0 ? batch : static_cast<int>(std::clamp<long>(program.images - seen, 0, batch));
}

/// Calls body(begin, end, thread) for pieces of `bytes` bytes, on all threads: one alone is slower than the memory.
template <typename Body>
void for_pieces(ThreadPool& threads, size_t bytes, const Body& body) {
  constexpr size_t kPiece = size_t{1} << 20;
  threads.run(static_cast<int>((bytes + kPiece - 1) / kPiece), [&](int piece, int thread) {
    const size_t begin = piece * kPiece;
    body(begin, std::min(begin + kPiece, bytes), thread);
  });
}

void copy_bytes(ThreadPool& threads, const uint8_t* from, size_t bytes, std::vector<uint8_t>& to) {
  to.resize(bytes);
  for_pieces(threads, bytes, [&](size_t begin, size_t end, int) { std::copy(from + begin, from + end, &to[begin]); });
}

/// Compares `bytes` bytes of one node's output.
Difference output_difference(ThreadPool& threads, const Int8Node& node, const uint8_t* a, const uint8_t* b,
                             size_t bytes) {
  if (node.float_output) {
    return float_difference(reinterpret_cast<const float*>(a), reinterpret_cast<const float*>(b),
                            bytes / sizeof(float));
  }
  std::vector<Difference> found(threads.size());
  for_pieces(threads, bytes, [&](size_t begin, size_t end, int thread) {
    const uint8_t *from = a + begin, *to = b + begin;
    const size_t count = end - begin;
    if (std::memcmp(from, to, count) == 0) return;
    const Difference d =
        node.out.is_signed() ? code_difference<int8_t>(from, to, count) : code_difference<uint8_t>(from, to, count);
    found[thread].count += d.count;
    found[thread].largest = std::max(found[thread].largest, d.largest);
  });
  Difference all;
  for (const Difference& d : found) all = {all.count + d.count, std::max(all.largest, d.largest)};
  return all;
}

/// Returns in how many of `count` answers, each with the logits of `classes` classes, the predictions differ.
long predicted_differently(const uint8_t* a, const uint8_t* b, size_t count, size_t classes) {
  long differing = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto logits = [&](const uint8_t* all) {
      return std::span<const float>(reinterpret_cast<const float*>(all) + i * classes, classes);
    };
    differing += arg_max(logits(a)) != arg_max(logits(b));
  }
  return differing;
}

/// Replaces each value by what combine() makes of those of all processes.
template <typename T, typename Combine>
void take_all(const Sharing& sharing, const std::vector<T*>& mine, const Combine& combine) {
  std::vector<T> values;
  for (const T* value : mine) values.push_back(*value);
  const std::vector<std::vector<T>> all = sharing.all(values);
  for (size_t i = 0; i < mine.size(); ++i) {
    *mine[i] = 0;
    for (const std::vector<T>& of_one : all) *mine[i] = combine(*mine[i], of_one.at(i));
  }
}

/// Combines the comparisons of all processes: adds counts and takes the largest differences.
void take_all(const Sharing& sharing, Comparison& c) {
  std::vector<long*> counts{&c.images};
  std::vector<int*> largest;
  std::vector<double*> powers;
  for (LayerDifference& layer : c.layers) {
    counts.push_back(&layer.codes);
    for (long& differing : layer.differing) counts.push_back(&differing);
    for (int& lsb : layer.largest_lsb) largest.push_back(&lsb);
    for (double& power : layer.signal) powers.push_back(&power);
    for (double& power : layer.noise) powers.push_back(&power);
  }
  for (long& differing : c.differing_predictions) counts.push_back(&differing);
  for (long& images : c.program_images) counts.push_back(&images);
  take_all(sharing, counts, std::plus<>());
  take_all(sharing, largest, [](int a, int b) { return std::max(a, b); });
  take_all(sharing, powers, std::plus<>());
}

/// Runs every program on one batch and records the differences. `seen` is the number of images of the set before the
/// batch. outputs[node] holds program 0's bytes; the vectors are reused between batches.
void compare_batch(const Int8Graph& graph, const std::vector<NamedProgram>& programs, const Batch& batch, long seen,
                   ThreadPool& threads, std::vector<std::vector<uint8_t>>& outputs, Comparison& c) {
  const OutputBuffers expected(graph, batch.size), given(graph, batch.size);
  {
    TapCheck check(graph, programs[0], batch.size);
    programs[0].program->run(batch.images.data(), batch.size, expected.memory(),
                             [&](int node, const void* data, size_t bytes) {
                               if (!check.accept(node, bytes)) return;
                               copy_bytes(threads, static_cast<const uint8_t*>(data), bytes, outputs[node]);
                             });
    check.finish();
  }
  for (size_t node = 0; node < graph.nodes.size(); ++node) {
    c.layers[node].codes += batch.size * graph.nodes[node].shape.elements();
  }
  for (size_t other = 0; other + 1 < programs.size(); ++other) {
    const NamedProgram& p = programs[other + 1];
    const int count = wanted_images(p, seen, batch.size);
    if (count == 0) continue;
    TapCheck check(graph, p, count);
    p.program->run(batch.images.data(), count, given.memory(), [&](int node, const void* data, size_t bytes) {
      if (!check.accept(node, bytes)) return;
      const auto* codes = static_cast<const uint8_t*>(data);
      record(c.layers[node], other, output_difference(threads, graph.nodes[node], outputs[node].data(), codes, bytes));
    });
    check.finish();
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      if (!shows(p, graph.outputs[i])) continue;
      const Int8Node& node = graph.nodes[graph.outputs[i]];
      const size_t bytes = node.image_bytes() * count;
      record(c.layers[graph.outputs[i]], other,
             output_difference(threads, node, expected[i].data(), given[i].data(), bytes));
    }
    if (predicts(graph) && shows(p, graph.outputs[0])) {
      c.differing_predictions[other] += predicted_differently(expected[0].data(), given[0].data(), count * c.answers,
                                                              graph.nodes[graph.outputs[0]].shape.c);
    }
    c.program_images[other] += count;
  }
  c.images += batch.size;
}

}  // namespace

std::vector<NamedProgram> named(const std::vector<OwnedProgram>& programs) {
  std::vector<NamedProgram> list;
  for (const OwnedProgram& p : programs) list.push_back({p.name, p.program.get(), p.images, p.exact, p.shown});
  return list;
}

Comparison compare(const Int8Graph& graph, const std::vector<NamedProgram>& programs, const EvaluationSet& set,
                   int batch_size) {
  if (programs.size() < 2) throw usage_error("compare: needs at least two programs");
  if (set.indices.empty()) throw data_error(fmt::format("compare: the {} set is empty", set.name));
  Comparison c = empty_comparison(graph, programs);
  std::vector<std::vector<uint8_t>> outputs(graph.nodes.size());
  const Sharing alone, &sharing = set.sharing ? *set.sharing : alone;
  const std::vector<size_t> mine = sharing.mine(set.indices, batch_size);
  Progress progress("compare", static_cast<long>(set.indices.size()));
  // Differences of programs that do not promise equal codes appear in the table only.
  const auto difference = [&] { return c.promised() ? fmt::format("{} codes differ", c.differing_codes()) : ""; };
  if (!mine.empty()) {
    Loader loader(*set.dataset, mine, set.transform, {.batch_size = batch_size, .workers = set.workers});
    ThreadPool threads(set.threads > 0 ? set.threads : usable_cores());
    Batch batch;
    for (long number = sharing.rank; loader.next(batch); number += sharing.size) {
      throw_if_interrupted();
      compare_batch(graph, programs, batch, number * batch_size, threads, outputs, c);
      progress.update(sharing.so_far(c.images, set.indices.size()), set.sharing ? "" : difference());
    }
  }
  if (set.sharing) {
    take_all(sharing, c);
    progress.update(c.images, difference());
  }
  return c;
}

}  // namespace octet
