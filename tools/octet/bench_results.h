// What octet bench measured of whole networks: as lines while it goes on, at the end as --json and --svg.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/bench/layer_bars.h"
#include "src/bench/network.h"
#include "src/bench/sweep.h"
#include "src/engine/machine.h"
#include "tools/octet/bench_options.h"

namespace octet::cli {

class BenchResults {
 public:
  /// All three outlive it; `first` is the network of the first size.
  BenchResults(const Common& common, const BenchCommand& command, const Int8Graph& first)
      : common_(common), command_(command), first_(first) {}

  /// A line of text, at once; nothing where --json's document is to come.
  void say(const std::string& text) const;

  /// Says a measurement and keeps it. `at`: what the line says behind the engine.
  void add(const std::string& engine, const std::string& at, int size, const BenchResult& result);
  void add_refusal(const std::string& engine, const std::string& at, int size, std::optional<int> batch,
                   const Error& why);

  /// Prints --json's document and writes --svg's file of what there is. `interrupted`: that is not all.
  void finish(bool interrupted) const;

  /// Several batches or sizes are drawn as curves; one, or with --layers the first, as its layers.
  bool draws_layers() const;

  const std::string machine = machine_model();
  const std::optional<ChipRates> rates = chip_rates();
  std::optional<Error> failed;  ///< the first that was not measured

 private:
  std::string svg() const;

  const Common& common_;
  const BenchCommand& command_;
  const Int8Graph& first_;
  nlohmann::json json_ = nlohmann::json::array();
  std::vector<LayerSeries> series_;  ///< at the first batch and size
  std::vector<SweepPoint> points_;
};

}  // namespace octet::cli
