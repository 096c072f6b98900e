// From names of engines, as recipes and command lines give them, to engines that this machine can run.
#pragma once

#include <string>
#include <vector>

#include "src/engine/engine.h"

namespace octet {

/// An engine and the GPU that it is to run on.
struct EngineChoice {
  const Engine* engine = nullptr;
  int gpu = kCurrentGpu;
};

/// "cuda:1" is engine cuda on GPU 1, as PyTorch names devices; a name alone leaves the GPU open. Throws Error(usage)
/// for an unknown engine, for a number behind one that runs on no GPU, and for what is no number. Does not ask the
/// machine.
EngineChoice parse_engine(const std::string& name);

/// What --device leaves: any engine, or those that need no GPU.
enum class EngineDevices { any, cpu };

/// Whether the devices and this machine let the engine run at all; if not, the reason names the engine.
Support usable(const Engine& engine, EngineDevices devices);

/// "auto" becomes all of exact_engines() that are not named besides, in its place; other names stay. Throws
/// Error(usage) for an engine that is unknown or that this machine (or EngineDevices::cpu) cannot run, with the reason
/// and the cure. Never empty for names that are not.
std::vector<std::string> resolve_engines(const std::vector<std::string>& names,
                                         EngineDevices devices = EngineDevices::any);

/// The engine that "auto" prefers.
const Engine& preferred_engine(EngineDevices devices = EngineDevices::any);

}  // namespace octet
