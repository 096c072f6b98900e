# SPDX-License-Identifier: Apache-2.0
"""Whether a timed training step trains, and quantizes: a framework may be fast because it skips work without saying so.

(torch.compile made another framework's QAT fast by gradients of exactly zero in 413 parameters; recorded with octet's issue 10.)
"""
import math


class NotTraining(RuntimeError):
    pass


def check_gradients(model, loss):
    """After a step: its loss is a number and no parameter's gradient is zero everywhere. Returns figures for the result."""
    if not math.isfinite(loss.item()):
        raise NotTraining(f"its loss is {loss.item()}")
    parameters = [(name, parameter.grad) for name, parameter in model.named_parameters() if parameter.requires_grad]
    shares = {name: 1.0 if gradient is None else 1 - gradient.count_nonzero().item() / gradient.numel() for name, gradient in parameters}
    zero = [name for name, share in shares.items() if share == 1]
    if zero:
        raise NotTraining(f"it does not train: {len(zero)} of {len(shares)} gradients are zero everywhere ({zero[0]}, ...)")
    return {"parameters": len(shares), "largest_zero_share": max(shares.values())}


def check_quantization(model, logits, switch):
    """`logits()`, by the same calls that were timed, must move when quantization is switched on, by more than they move by themselves."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]  # running statistics and ranges

    def output(on):
        for buffer, before in buffers:
            buffer.copy_(before)
        switch(on)
        return logits().detach().float()

    without, again, quantized = output(False), output(False), output(True)
    noise, effect = ((other - without).norm().item() / without.norm().item() for other in (again, quantized))
    if not effect > 3 * noise + 1e-4:
        raise NotTraining(f"quantization was not active: on and off, its logits differ by {effect:.1e}, off twice by {noise:.1e}")
    return {"quantization_effect": effect, "quantization_noise": noise}
