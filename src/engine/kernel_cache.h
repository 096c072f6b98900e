// SPDX-License-Identifier: Apache-2.0
// Keeps the names of the fastest kernels from one process to the next, in a folder with one small file a choice. A file
// that is damaged, belongs to another choice, or cannot be read or written is ignored: the kernels are measured again.
#pragma once

#include <optional>
#include <string>

namespace octet {

/// Returns "$XDG_CACHE_HOME/octet/kernels", or else "$HOME/.cache/octet/kernels"; "" if neither variable holds an
/// absolute path.
std::string kernel_cache_folder();

/// Sets the folder that programs compiled from now on keep their choices in; any thread may do so. It is "" (none) at
/// first, because test programs measure concurrently, which makes their choices unreliable.
void set_kernel_cache(const std::string& folder);
std::string kernel_cache();  ///< that folder

/// Returns the name that was kept under `key`, one line with everything that the choice depends on.
std::optional<std::string> cached_kernel(const std::string& folder, const std::string& key);

/// Keeps `name` under `key`. Processes that write the same key concurrently leave one complete file.
void cache_kernel(const std::string& folder, const std::string& key, const std::string& name);

}  // namespace octet
