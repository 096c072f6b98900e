// The names of the files of a run directory; documented in trainers/README.md. Plain paths: nothing is opened here.
#pragma once

#include <array>
#include <string>

namespace octet {

struct RunDirectory {
  std::string root;  ///< "runs/small_cnn-1"; no trailing slash

  std::string recipe() const { return root + "/recipe.yaml"; }            ///< resolved: every key with its value
  std::string command() const { return root + "/command.txt"; }           ///< one line for each start or resume
  std::string environment() const { return root + "/environment.json"; }  ///< versions, seed, machine
  std::string metrics() const { return root + "/metrics.jsonl"; }         ///< one JSON object an epoch
  std::string events() const { return root + "/events"; }                 ///< for TensorBoard
  std::string checkpoints() const { return root + "/checkpoints"; }
  std::string float_state() const { return checkpoints() + "/float.state.safetensors"; }  ///< for --resume
  std::string qat_state() const { return checkpoints() + "/qat.state.safetensors"; }      ///< for --resume
  std::string float_control_state() const { return checkpoints() + "/float_control.state.safetensors"; }  ///< likewise
  std::string float_weights() const { return root + "/float.safetensors"; }  ///< PyTorch names, loadable as weights
  std::string float_control() const { return root + "/float_control.safetensors"; }  ///< with qat.float_control
  std::string quantized() const { return root + "/qat.safetensors"; }                ///< weights and quantizer state
  std::string int8(const std::string& name = "int8.safetensors") const { return root + "/" + name; }
  /// What the run's int8 checkpoint must not replace.
  std::array<std::string, 6> other_weights() const {
    return {float_weights(), float_control(), quantized(), float_state(), qat_state(), float_control_state()};
  }
  std::string report_json() const { return root + "/report.json"; }
  std::string report_html() const { return root + "/report.html"; }
  std::string report_svg() const { return root + "/report.svg"; }  ///< its results as one picture
};

}  // namespace octet
