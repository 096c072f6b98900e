#include "src/model/autocast.h"

#include <ATen/autocast_mode.h>

namespace octet {

Autocast::Autocast(at::DeviceType device, Precision precision)
    : device_(device), active_(precision != Precision::fp32) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device);
  old_dtype_ = at::autocast::get_autocast_dtype(device);
  at::autocast::set_autocast_enabled(device, true);
  at::autocast::set_autocast_dtype(device, precision == Precision::bf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

}  // namespace octet
